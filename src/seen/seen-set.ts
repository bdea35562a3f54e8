/**
 * The exact, durable set of keys ever seen: a table of recent ones over immutable sorted runs on disk.
 *
 * The journal is its log: who adds or forgets a key writes that to the journal, and at open replays what came after the
 * last checkpoint into the table. A checkpoint goes `freeze` (the table is set aside, a new one starts), `writeFrozen` (the
 * frozen table becomes a run, merged where a level is full; nothing existing is touched), then `commitFrozen` once the
 * manifest names the new runs durably, or `abortFrozen`.
 *
 * Invariants: the newest word on a key counts: live table, frozen table, then runs from the newest; `size` is the number
 * of keys whose newest word is "seen"; a run on disk is removed only after a durable manifest stopped naming it.
 */
import { assert } from '../assert.js'
import type { Env } from '../env/env.js'
import { errorCode, HoldfastError, ioError } from '../errors.js'
import { join, TEMPORARY_SUFFIX } from '../store/file-names.js'
import { corrupt } from '../store/format.js'
import { HitCache, PageCache } from './seen-cache.js'
import { checkRunPages } from './seen-check.js'
import { type FlushContext, type Flushed, flushTable } from './seen-flush.js'
import { FILTER_KEYS_MAX, PAGE_BYTES, parseRunName, type SeenRunInfo } from './seen-format.js'
import {
  ABSENT,
  KEY,
  KEY_BYTES,
  KEY_WORDS,
  newProbe,
  type Probe,
  probeBytes,
  TOMBSTONE,
  writeWord,
} from './seen-key.js'
import { type LevelShape, Merger, type MergeSource, runSources, TableSource } from './seen-merge.js'
import { openRun } from './seen-run-open.js'
import type { SeenRunReader } from './seen-run-reader.js'
import { runAtOnce } from './seen-slices.js'
import { sortTable } from './seen-sort.js'
import { SeenTable, TABLE_SLOTS_MIN } from './seen-table.js'

export type { SeenRunInfo } from './seen-format.js'

/** For tests and benchmarks; the defaults suit everyone else. */
export interface SeenTuning extends LevelShape {
  /** Keys of one filter, at most. Memory while it is built: about 40 bytes a key. */
  readonly filterKeysMax: number
  /** Keys found in runs lately that are answered without the disk: 16 bytes each. */
  readonly hitCacheKeys: number
  readonly pageCacheCount: number
  /** Slots of a new shard of the table, a power of two. */
  readonly tableSlotsMin: number
  /** Background work lets others in after this long. */
  readonly sliceMs: number
}

const DEFAULT_TUNING: SeenTuning = {
  levelGrowth: 8,
  levelBaseKeys: 64 * 1024,
  filterKeysMax: FILTER_KEYS_MAX,
  hitCacheKeys: 50_000,
  pageCacheCount: 64,
  tableSlotsMin: TABLE_SLOTS_MIN,
  sliceMs: 2,
}

export interface SeenSetOptions {
  readonly env: Env
  readonly directory: string
  /** 16 bytes; a run of another job is refused. */
  readonly jobId: Uint8Array
  /** As the manifest has them. */
  readonly runs: readonly SeenRunInfo[]
  readonly size: number
  readonly tuning?: Partial<SeenTuning>
}

interface Frozen {
  readonly table: SeenTable
  /** Keys seen as of the freeze, less those whose add was taken back since. */
  size: number
  /** Rises when the table is changed by `undoAdd`: what was being written from it is then of no use. */
  version: number
  writing: boolean
  cancelled: boolean
  written: Flushed | undefined
}

export class SeenSet {
  private readonly env: Env
  private readonly directory: string
  private readonly jobId: Uint8Array
  private readonly tuning: SeenTuning
  private readonly pages: PageCache
  /** Made at the first hit: many a set never has a run. */
  private hits: HitCache | undefined
  private readonly probe: Probe = newProbe()
  private live: SeenTable
  private frozen: Frozen | undefined
  /** Newest first. */
  private readers: readonly SeenRunReader[] = []
  private keyCount: number
  private nextNumber = 1
  private closed = false

  private constructor(options: SeenSetOptions) {
    this.env = options.env
    this.directory = options.directory
    this.jobId = Uint8Array.from(options.jobId)
    this.tuning = { ...DEFAULT_TUNING, ...options.tuning }
    this.pages = new PageCache(this.tuning.pageCacheCount, PAGE_BYTES)
    this.live = new SeenTable(this.tuning.tableSlotsMin)
    this.keyCount = options.size
  }

  /**
   * Reads headers, footers, fences and filters, never all keys. A run that is missing, short, foreign or damaged is
   * HOLDFAST_CORRUPT, a newer one HOLDFAST_UNSUPPORTED_FORMAT.
   */
  static open(options: SeenSetOptions): SeenSet {
    assert(options.jobId.length === 16, 'a job id is 16 bytes')
    const set = new SeenSet(options)
    const infos = sortRuns(options.runs, options.directory)
    for (const name of set.listDirectory()) set.nextNumber = Math.max(set.nextNumber, (parseRunName(name) ?? 0) + 1)
    const readers: SeenRunReader[] = []
    set.readers = readers
    try {
      for (const info of infos) {
        readers.push(openRun(set.env.files, join(set.directory, info.file), info, set.jobId, set.pages))
        set.nextNumber = Math.max(set.nextNumber, readers[readers.length - 1].number + 1)
      }
    } catch (error) {
      set.close()
      throw error
    }
    return set
  }

  /** The full check of one run, for tools that look at files one by one. */
  static checkRun(options: Pick<SeenSetOptions, 'env' | 'directory' | 'jobId'>, info: SeenRunInfo): void {
    const set = SeenSet.open({ ...options, runs: [info], size: 0 })
    try {
      for (const run of set.readers) checkRunPages(run)
    } finally {
      set.close()
    }
  }

  /** Keys seen, exactly. */
  get size(): number {
    return this.keyCount
  }

  /** Entries of the live table, keys and tombstones: above a limit it is time for a checkpoint. */
  get tableCount(): number {
    return this.live.count
  }

  get memoryBytes(): number {
    let bytes = this.live.memoryBytes + (this.frozen?.table.memoryBytes ?? 0)
    bytes += this.pages.memoryBytes + (this.hits?.memoryBytes ?? 0) + (this.frozen?.written?.run?.memoryBytes ?? 0)
    for (const reader of this.readers) bytes += reader.memoryBytes
    return bytes
  }

  get diskBytes(): number {
    return this.readers.reduce((sum, reader) => sum + reader.info.bytes, 0)
  }

  /** The runs of the last checkpoint, newest first. */
  get runs(): readonly SeenRunInfo[] {
    return this.readers.map((reader) => reader.info)
  }

  has(key: Uint8Array, offset: number): boolean {
    return this.isSeen(this.probeOf(key, offset))
  }

  /** False if it was seen already. An error while reading leaves everything as it was. */
  add(key: Uint8Array, offset: number): boolean {
    const probe = this.probeOf(key, offset)
    if (this.isSeen(probe)) return false
    this.live.set(probe, KEY)
    this.keyCount++
    return true
  }

  /** For replay and for keys known to be new: does not look at runs. Nothing happens if the table holds it. */
  insertNew(key: Uint8Array, offset: number): void {
    const probe = this.probeOf(key, offset)
    if (this.inTables(probe) === KEY) return
    this.live.set(probe, KEY)
    this.keyCount++
  }

  /** True if it was seen; it is not any more. */
  forget(key: Uint8Array, offset: number): boolean {
    const probe = this.probeOf(key, offset)
    if (!this.isSeen(probe)) return false
    if (this.live.get(probe) === KEY) this.takeFromLive(probe)
    else this.live.set(probe, TOMBSTONE)
    this.hits?.drop(probe)
    this.keyCount--
    return true
  }

  /** Takes back an `add` whose commit failed. Never reads the disk if the add was made since the last checkpoint. */
  undoAdd(key: Uint8Array, offset: number): void {
    const probe = this.probeOf(key, offset)
    const { frozen } = this
    if (this.live.get(probe) === KEY) {
      this.takeFromLive(probe)
    } else if (this.live.get(probe) === ABSENT && frozen?.table.get(probe) === KEY && frozen.written === undefined) {
      // It must not reach the disk: the journal does not know it.
      if (this.runsMayHold(probe)) frozen.table.set(probe, TOMBSTONE)
      else frozen.table.delete(probe)
      frozen.size--
      frozen.version++
    } else {
      if (!this.isSeen(probe)) return
      this.live.set(probe, TOMBSTONE)
    }
    this.hits?.drop(probe)
    this.keyCount--
  }

  /** Sets the table aside for `writeFrozen`. Look-ups see both; from here on adds go to a new table. */
  freeze(): void {
    this.assertOpen()
    assert(this.frozen === undefined, 'one checkpoint at a time')
    const { live: table, keyCount: size } = this
    this.frozen = { table, size, version: 0, writing: false, cancelled: false, written: undefined }
    this.live = new SeenTable(this.tuning.tableSlotsMin)
  }

  /**
   * Makes the frozen table durable as a run, merging where a level is full; runs and size are as of the freeze. Does not
   * commit: the runs in use stay, readable and on disk. Rejects with nothing changed and its file removed.
   */
  async writeFrozen(): Promise<{ runs: SeenRunInfo[]; size: number }> {
    const { frozen } = this
    assert(frozen !== undefined && !frozen.writing && frozen.written === undefined, 'one write for each freeze')
    const assertWanted = (): void => {
      this.assertOpen()
      if (frozen.cancelled) throw new HoldfastError('HOLDFAST_CLOSED', `checkpoint of ${this.directory} was given up`)
    }
    frozen.writing = true
    try {
      for (;;) {
        const { version } = frozen
        const context = this.flushContext()
        const flushed = await flushTable(context, frozen.table, this.readers, this.nextNumber++, assertWanted)
        // The set may have been closed or the checkpoint given up in the very turn in which the write ended.
        if (this.closed || frozen.cancelled) this.discard(flushed.run)
        assertWanted()
        // An add was taken back while its key may have been written already: once more, without it.
        if (frozen.version !== version) {
          this.discard(flushed.run)
          continue
        }
        frozen.written = flushed
        return { runs: this.readersAfter(flushed).map((reader) => reader.info), size: frozen.size }
      }
    } finally {
      frozen.writing = false
    }
  }

  /** The manifest that names the new runs is durable: from here on they are the set, and the replaced ones go. */
  commitFrozen(): void {
    const written = this.frozen?.written
    assert(written !== undefined, 'only what was written can be committed')
    const replaced = this.readers.slice(0, written.merged)
    this.readers = this.readersAfter(written)
    this.frozen = undefined
    for (const reader of replaced) this.discard(reader)
  }

  /** The checkpoint failed: the new run goes, and the frozen table is again part of the live one. */
  abortFrozen(): void {
    const { frozen } = this
    if (frozen === undefined) return
    // If it is still being written, that ends at its next pause and removes its file.
    frozen.cancelled = true
    this.discard(frozen.written?.run)
    this.frozen = undefined
    // The live table is the newer one, and the smaller: it has had less time.
    this.live.copyOver(frozen.table)
    this.live = frozen.table
  }

  /** At open: deletes run files no manifest names, and unfinished ones. Other files are not ours to delete. */
  removeUnnamed(): string[] {
    const named = new Set(this.readers.map((reader) => reader.info.file))
    const removed: string[] = []
    for (const name of this.listDirectory()) {
      if (named.has(name) || !(parseRunName(name) !== undefined || name.endsWith(TEMPORARY_SUFFIX))) continue
      try {
        this.env.files.unlink(join(this.directory, name))
        removed.push(name)
      } catch {
        // It does no harm; the next open tries again.
      }
    }
    return removed
  }

  /** Reads everything: each run in itself, and `size` against the keys there are. Throws HOLDFAST_CORRUPT. */
  check(): void {
    this.assertOpen()
    for (const reader of this.readers) checkRunPages(reader)
    let count = 0
    for (const merger = this.merge(); merger.advance(); ) if (merger.state === KEY) count++
    if (count !== this.keyCount) {
      throw corrupt(this.directory, `${count} keys are seen, ${this.keyCount} are counted`)
    }
  }

  /** Every key seen, ascending, for tools. The set must not be checkpointed meanwhile; table changes are not noticed. */
  *keys(): Generator<Uint8Array, void, void> {
    for (const merger = this.merge(); merger.advance(); ) {
      if (merger.state !== KEY) continue
      const key = new Uint8Array(KEY_BYTES)
      for (let i = 0; i < KEY_WORDS; i++) writeWord(key, i * 4, merger.words[i])
      yield key
    }
  }

  /** Lets the files go. A checkpoint being written ends at its next pause; its file stays for the next open to remove. */
  close(): void {
    this.closed = true
    for (const reader of this.readers) reader.close()
    this.frozen?.written?.run?.close()
  }

  private isSeen(probe: Probe): boolean {
    const state = this.inTables(probe)
    if (state !== ABSENT) return state === KEY
    return this.hits?.has(probe) === true || this.inRuns(probe)
  }

  private inTables(probe: Probe): number {
    return this.live.get(probe) || (this.frozen?.table.get(probe) ?? ABSENT)
  }

  private inRuns(probe: Probe): boolean {
    for (const reader of this.readers) {
      const state = reader.get(probe)
      if (state === ABSENT) continue
      if (state === TOMBSTONE) return false
      this.hits ??= new HitCache(this.tuning.hitCacheKeys)
      this.hits.put(probe)
      return true
    }
    return false
  }

  private runsMayHold(probe: Probe): boolean {
    return this.readers.some((reader) => reader.mayHold(probe))
  }

  /** Removes a key from the live table, leaving a tombstone if something older may still call it seen. */
  private takeFromLive(probe: Probe): void {
    const older = this.frozen?.table.get(probe) ?? ABSENT
    if (older === KEY || (older === ABSENT && this.runsMayHold(probe))) this.live.set(probe, TOMBSTONE)
    else this.live.delete(probe)
  }

  private flushContext(): FlushContext {
    const { env, directory, jobId, pages } = this
    return { ...this.tuning, env, directory, jobId, pages, mayRemove: () => !this.closed }
  }

  private readersAfter(flushed: Flushed): readonly SeenRunReader[] {
    const kept = this.readers.slice(flushed.merged)
    return flushed.run === undefined ? kept : [flushed.run, ...kept]
  }

  /** Closes and unlinks. Errors do not matter: open removes what no manifest names. */
  private discard(reader: SeenRunReader | undefined): void {
    if (reader === undefined) return
    try {
      reader.close()
      if (!this.closed) this.env.files.unlink(reader.path)
    } catch {
      // See above.
    }
  }

  private merge(): Merger {
    this.assertOpen()
    const sources: MergeSource[] = [new TableSource(runAtOnce(sortTable(this.live)))]
    if (this.frozen !== undefined) sources.push(new TableSource(runAtOnce(sortTable(this.frozen.table))))
    return new Merger([...sources, ...runSources(this.readers)])
  }

  private probeOf(key: Uint8Array, offset: number): Probe {
    this.assertOpen()
    assert(offset >= 0 && offset + KEY_BYTES <= key.length, 'a key is 16 bytes')
    probeBytes(this.probe, key, offset)
    return this.probe
  }

  private assertOpen(): void {
    if (this.closed)
      throw new HoldfastError('HOLDFAST_CLOSED', `${this.directory} was closed`, { path: this.directory })
  }

  private listDirectory(): string[] {
    try {
      return this.env.files.readDirectory(this.directory)
    } catch (error) {
      if (errorCode(error) === 'ENOENT') return []
      throw ioError('reading', this.directory, error)
    }
  }
}

/** Newest first. The manifest was under a checksum; a run it describes wrongly is damage all the same. */
function sortRuns(runs: readonly SeenRunInfo[], directory: string): SeenRunInfo[] {
  const numbers = new Set<number>()
  for (const run of runs) {
    const number = parseRunName(run.file)
    const counts = [run.keys, run.tombstones, run.bytes, run.level, run.crc]
    if (number === undefined || numbers.has(number) || !counts.every((n) => Number.isSafeInteger(n) && n >= 0)) {
      throw corrupt(directory, `the manifest has a run ${JSON.stringify(run)}`)
    }
    numbers.add(number)
  }
  return [...runs].sort((a, b) => (parseRunName(b.file) as number) - (parseRunName(a.file) as number))
}
