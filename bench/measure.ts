/**
 * How the benchmarks look at what happens: counts of the calls that reach the disk, percentiles, a load that comes at its
 * own pace, and the table. Invariant: the counting wraps node:fs for contender and floor alike, so both pay for it.
 */
import fs from 'node:fs'
import { syncBuiltinESMExports } from 'node:module'
import { cpus, loadavg, release, totalmem } from 'node:os'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'

export interface DiskCounts {
  writes: number
  bytes: number
  /** fdatasync and fsync of files. Those of directories are not in it. */
  syncs: number
}

type Patched = Pick<typeof fs, 'openSync' | 'closeSync' | 'writeSync' | 'fdatasync' | 'fdatasyncSync' | 'fsyncSync'>

const none = (): DiskCounts => ({ writes: 0, bytes: 0, syncs: 0 })

/** Everything written through descriptors since the last `reset`; the journal also by itself. */
class Disk {
  total = none()
  journal = none()
  private readonly journalDescriptors = new Set<number>()

  reset(): void {
    this.total = none()
    this.journal = none()
  }

  /** Done once, before anything is opened. ESM importers see the wrappers because their bindings are live. */
  watch(): void {
    const target = fs as unknown as { -readonly [K in keyof Patched]: Patched[K] }
    const { openSync, closeSync, writeSync, fdatasync, fdatasyncSync, fsyncSync } = target
    const synced = (descriptor: number): void => {
      this.total.syncs++
      if (this.journalDescriptors.has(descriptor)) this.journal.syncs++
    }
    target.openSync = (path, flags, mode) => {
      const descriptor = openSync(path, flags, mode)
      if (/[\\/]journal[\\/]/.test(String(path))) this.journalDescriptors.add(descriptor)
      return descriptor
    }
    target.closeSync = (descriptor) => {
      this.journalDescriptors.delete(descriptor)
      closeSync(descriptor)
    }
    const write = writeSync as (descriptor: number, ...rest: unknown[]) => number
    target.writeSync = ((descriptor: number, ...rest: unknown[]) => {
      const bytes = write(descriptor, ...rest)
      this.total.writes++
      this.total.bytes += bytes
      if (this.journalDescriptors.has(descriptor)) {
        this.journal.writes++
        this.journal.bytes += bytes
      }
      return bytes
    }) as Patched['writeSync']
    target.fdatasync = Object.assign(
      (descriptor: number, callback: fs.NoParamCallback) => {
        synced(descriptor)
        fdatasync(descriptor, callback)
      },
      { __promisify__: fdatasync.__promisify__ },
    )
    target.fdatasyncSync = (descriptor) => {
      synced(descriptor)
      fdatasyncSync(descriptor)
    }
    target.fsyncSync = (descriptor) => {
      synced(descriptor)
      fsyncSync(descriptor)
    }
    syncBuiltinESMExports()
  }
}

export const disk = new Disk()

/** One turn of the event loop: what a program that also does other things gives the store to work beside it. */
export function turn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve))
}

let nextTurn: Promise<void> | undefined

/** As `turn`, but all who wait for the same turn go on together, in one run of microtasks. */
export function sharedTurn(): Promise<void> {
  nextTurn ??= turn().then(() => {
    nextTurn = undefined
  })
  return nextTurn
}

setFlagsFromString('--expose-gc')
const gc = runInNewContext('gc') as () => void

/** Before the clock starts: the garbage of preparation is not collected at the expense of what is measured. */
export function collectGarbage(): void {
  gc()
}

/** Wall and processor time from now until the call of what it returns. */
export function startClock(): () => { ms: number; cpuMs: number } {
  const cpu = process.cpuUsage()
  const begun = performance.now()
  return () => {
    const ms = performance.now() - begun
    const { user, system } = process.cpuUsage(cpu)
    return { ms, cpuMs: (user + system) / 1000 }
  }
}

export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b)
  const middle = sorted.length >> 1
  return sorted.length % 2 === 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2
}

export interface Latency {
  samples: number
  p50: number
  p99: number
  max: number
}

/** Nearest rank: the value that at least that share of the samples does not exceed. */
export function latencyOf(ms: readonly number[]): Latency {
  const sorted = Float64Array.from(ms).sort()
  const at = (share: number): number => sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)] ?? Number.NaN
  return { samples: sorted.length, p50: at(0.5), p99: at(0.99), max: at(1) }
}

/** Medians over the runs, figure by figure. */
export function medianLatency(runs: readonly Latency[]): Latency {
  const of = (key: keyof Latency): number => median(runs.map((run) => run[key]))
  return { samples: of('samples'), p50: of('p50'), p99: of('p99'), max: of('max') }
}

export interface Sample {
  /** When the operation was due, on the clock of performance.now. */
  readonly dueAt: number
  readonly ms: number
}

export interface Stream {
  readonly perSecond: number
  readonly run: () => Promise<unknown>
}

/**
 * Runs streams of operations that come at a fixed pace, whether the store keeps up or not, and measures each from when it
 * was due. A stall is thus felt by everything that came during it; measuring from the call would hide all but one.
 */
export async function openLoop(streams: readonly Stream[], durationMs: number): Promise<Sample[][]> {
  const samples = streams.map((): Sample[] => [])
  const running: Promise<void>[] = []
  const begun = performance.now()
  const end = begun + durationMs
  const nextDue = streams.map(({ perSecond }, index) => begun + ((index + 1) * 1000) / perSecond / streams.length)
  while (nextDue.some((due) => due < end)) {
    const now = performance.now()
    for (const [index, { perSecond, run }] of streams.entries()) {
      while (nextDue[index] <= now && nextDue[index] < end) {
        const dueAt = nextDue[index]
        nextDue[index] += 1000 / perSecond
        const done = run().then(() => {
          samples[index].push({ dueAt, ms: performance.now() - dueAt })
        })
        running.push(done)
      }
    }
    await turn()
  }
  await Promise.all(running)
  return samples
}

/** What a figure depends on and cannot say by itself. */
export function machine() {
  return {
    cpu: cpus()[0]?.model.trim() ?? 'unknown',
    cores: cpus().length,
    memoryGiB: Math.round(totalmem() / 2 ** 30),
    platform: `${process.platform} ${process.arch} ${release()}`,
    node: process.version,
    /** Runnable processes before the run: above the cores, others share what is measured. */
    load: loadavg()[0],
  }
}

/** Columns as wide as their widest cell; the first is flush left, figures are flush right. */
export function table(rows: readonly (readonly string[])[]): string {
  const widths = rows[0].map((_, column) => Math.max(...rows.map((row) => row[column].length)))
  return rows
    .map((row) =>
      row
        .map((cell, column) => (column === 0 ? cell.padEnd(widths[column]) : cell.padStart(widths[column])))
        .join('  ')
        .trimEnd(),
    )
    .join('\n')
}

export const count = (value: number): string => Math.round(value).toLocaleString('en-US')
export const ms = (value: number): string => (value >= 100 ? count(value) : value.toFixed(2))
export const percent = (share: number): string => `${(share * 100).toFixed(0)} %`
