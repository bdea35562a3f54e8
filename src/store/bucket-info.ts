/**
 * `info.json`: the sealed segments of one bucket and which of their records are used up. It holds two generations, so
 * that it can be published before active.json commits the checkpoint: a reader takes the newer one that is committed.
 */
import { ByteReader } from '../bytes/byte-reader.js'
import { ByteWriter } from '../bytes/byte-writer.js'
import type { FileSystem } from '../env/file-system.js'
import { FORMAT } from '../limits.js'
import { INFO_FILE, join, parseSegmentName } from './file-names.js'
import { corrupt } from './format.js'
import { readJsonFile, writeJsonFile } from './json-file.js'

export interface SegmentInfo {
  readonly file: string
  /** Unique in the job. */
  readonly id: number
  readonly records: number
  readonly bytes: number
  /** Checksum field of the footer frame: tells this file from an older copy of it. */
  readonly footerCrc: number
  readonly live: number
  readonly consumed: string
}

export interface BucketGeneration {
  readonly generation: number
  readonly nextFile: number
  readonly segments: readonly SegmentInfo[]
}

export const EMPTY_GENERATION: BucketGeneration = { generation: 0, nextFile: 0, segments: [] }

export function writeBucketInfo(
  files: FileSystem,
  directory: string,
  bucket: string,
  current: BucketGeneration,
  previous: BucketGeneration,
): Promise<void> {
  const { generation, nextFile, segments } = previous
  return writeJsonFile(files, directory, INFO_FILE, {
    format: FORMAT,
    bucket,
    ...current,
    previous: { generation, nextFile, segments },
  })
}

/** The newest state of the bucket that is committed, and the highest generation seen (which must not be used again). */
export function readBucketInfo(
  files: FileSystem,
  directory: string,
  bucket: string,
  committed: number,
): { state: BucketGeneration; highest: number } {
  const path = join(directory, INFO_FILE)
  const fields = readJsonFile(files, path)
  if (fields === undefined) throw corrupt(path, 'missing, although active.json names this bucket')
  if (fields['bucket'] !== bucket) throw corrupt(path, `belongs to bucket ${JSON.stringify(fields['bucket'])}`)
  const current = readGeneration(fields, path)
  if (current.generation <= committed) return { state: current, highest: current.generation }
  const previous = readGeneration(fields['previous'], path)
  if (previous.generation > committed) {
    throw corrupt(path, `generation ${previous.generation} is newer than active.json's ${committed}`)
  }
  return { state: previous, highest: current.generation }
}

function readGeneration(value: unknown, path: string): BucketGeneration {
  const g = value as BucketGeneration
  const whole = (n: unknown): boolean => Number.isSafeInteger(n) && (n as number) >= 0
  const ok =
    typeof g === 'object' &&
    g !== null &&
    whole(g.generation) &&
    whole(g.nextFile) &&
    Array.isArray(g.segments) &&
    g.segments.every(
      (s) =>
        typeof s?.file === 'string' &&
        parseSegmentName(s.file) !== undefined &&
        whole(s.id) &&
        whole(s.records) &&
        whole(s.bytes) &&
        whole(s.footerCrc) &&
        whole(s.live) &&
        typeof s.consumed === 'string',
    )
  if (!ok) throw corrupt(path, 'a field is missing or of the wrong kind')
  return { generation: g.generation, nextFile: g.nextFile, segments: g.segments }
}

/** Which ordinals of a segment are used up: one bit each, with the count of those that are not. */
export class ConsumedSet {
  readonly records: number
  private readonly bits: Uint8Array
  live: number

  constructor(records: number, bits?: Uint8Array, live?: number) {
    this.records = records
    this.bits = bits ?? new Uint8Array((records + 7) >>> 3)
    this.live = live ?? records
  }

  has(ordinal: number): boolean {
    return (this.bits[ordinal >>> 3] & (1 << (ordinal & 7))) !== 0
  }

  /** Idempotent: replay may meet a job that was already marked. */
  add(ordinal: number): void {
    if (this.has(ordinal)) return
    this.bits[ordinal >>> 3] |= 1 << (ordinal & 7)
    this.live--
  }

  delete(ordinal: number): void {
    if (!this.has(ordinal)) return
    this.bits[ordinal >>> 3] &= ~(1 << (ordinal & 7))
    this.live++
  }

  copy(): ConsumedSet {
    return new ConsumedSet(this.records, this.bits.slice(), this.live)
  }

  /** Lengths of alternating runs of live and consumed, live first, the live tail left out. */
  encode(): string {
    const writer = new ByteWriter(256)
    let consumed = false
    let from = 0
    for (let i = 0; i < this.records; i++) {
      if (this.has(i) === consumed) continue
      writer.varint(i - from)
      consumed = !consumed
      from = i
    }
    if (consumed) writer.varint(this.records - from)
    return writer.buffer.toString('base64', writer.start, writer.position)
  }

  static decode(text: string, records: number, live: number, path: string): ConsumedSet {
    const set = new ConsumedSet(records)
    const reader = new ByteReader(Buffer.from(text, 'base64'))
    let at = 0
    let consumed = false
    while (reader.left > 0) {
      const next = at + readLength(reader, path)
      if (next > records) throw corrupt(path, `consumed marks reach ${next} of ${records} records`)
      if (consumed) for (let i = at; i < next; i++) set.add(i)
      at = next
      consumed = !consumed
    }
    if (set.live !== live) throw corrupt(path, `${set.live} records are live, info.json says ${live}`)
    return set
  }
}

function readLength(reader: ByteReader, path: string): number {
  try {
    return reader.varint()
  } catch (error) {
    throw corrupt(path, `consumed marks: ${(error as Error).message}`, undefined, error)
  }
}
