/** `active.json`: which files are real and where replay starts. Its rename is the commit point of a checkpoint. */
import type { FileSystem } from '../env/file-system.js'
import { FORMAT } from '../limits.js'
import { ACTIVE_FILE, type JobPaths, parseBucketName } from './file-names.js'
import { corrupt } from './format.js'
import { readJsonFile, writeJsonFile } from './json-file.js'

export type StoreKind = 'queue' | 'frontier'

/** Durable since the directory was made. */
export interface CounterValues {
  added: number
  duplicates: number
  acked: number
  retried: number
  buried: number
  requeued: number
  /** Leases that a crash ended. */
  recovered: number
  /** Leases that ran out. */
  expired: number
}

export interface Manifest {
  readonly jobId: string
  readonly kind: StoreKind
  readonly order: 'fifo' | 'lifo'
  readonly generation: number
  readonly epoch: number
  /** Priority buckets that were not empty, best first: for people and tools, recovery does not need it. */
  readonly startprios: readonly (number | string)[]
  /** Names of the buckets that have an info.json. */
  readonly buckets: readonly string[]
  readonly journal: {
    readonly first: number
    readonly last: number
    /** Frames must reach this sequence: a journal cut at a frame's edge is noticed. */
    readonly sequence: number
  }
  readonly nextId: number
  readonly nextSegmentId: number
  readonly counters: CounterValues
  readonly seen: {
    readonly size: number
    /** Opaque here: the seen-set describes its own files. */
    readonly runs: readonly object[]
  }
}

export function writeManifest(
  files: FileSystem,
  paths: JobPaths,
  manifest: Manifest,
  onRenamed?: () => void,
): Promise<void> {
  return writeJsonFile(files, paths.queue, ACTIVE_FILE, { format: FORMAT, ...manifest }, onRenamed)
}

const COUNTERS = ['added', 'duplicates', 'acked', 'retried', 'buried', 'requeued', 'recovered', 'expired'] as const

export function zeroCounters(): CounterValues {
  return { added: 0, duplicates: 0, acked: 0, retried: 0, buried: 0, requeued: 0, recovered: 0, expired: 0 }
}

/** undefined when there is none. The checksum has been checked; this checks the shape. */
export function readManifest(files: FileSystem, paths: JobPaths): Manifest | undefined {
  const fields = readJsonFile(files, paths.active)
  if (fields === undefined) return undefined
  const m = fields as unknown as Manifest
  const whole = (n: unknown): boolean => Number.isSafeInteger(n) && (n as number) >= 0
  const ok =
    /^[0-9a-f]{32}$/.test(m.jobId) &&
    (m.kind === 'queue' || m.kind === 'frontier') &&
    (m.order === 'fifo' || m.order === 'lifo') &&
    whole(m.generation) &&
    whole(m.epoch) &&
    Array.isArray(m.buckets) &&
    m.buckets.every(
      (name) =>
        typeof name === 'string' && (name === 'delayed' || name === 'dead' || parseBucketName(name) !== undefined),
    ) &&
    whole(m.journal?.first) &&
    whole(m.journal?.last) &&
    whole(m.journal?.sequence) &&
    whole(m.nextId) &&
    whole(m.nextSegmentId) &&
    COUNTERS.every((name) => whole(m.counters?.[name])) &&
    whole(m.seen?.size) &&
    Array.isArray(m.seen?.runs)
  if (!ok) throw corrupt(paths.active, 'a field is missing or of the wrong kind')
  return m
}
