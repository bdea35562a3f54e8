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
import { HoldfastError } from '../errors.js'
import { SEEN_MEMORY_BYTES_DEFAULT } from '../limits.js'
import { join } from '../store/file-names.js'
import { corrupt } from '../store/format.js'
import { KeyBatch } from './seen-batch.js'
import { MergeBeside } from './seen-beside.js'
import { mergeReserveBytes, type SeenTuning, tuningOf } from './seen-budget.js'
import { checkRunPages } from './seen-check.js'
import { listRuns, removeUnnamed, sortRuns } from './seen-directory.js'
import { type FlushContext, flushTable, tellDamage, type Warn } from './seen-flush.js'
import { parseRunName, type SeenRunInfo } from './seen-format.js'
import type { Frozen } from './seen-frozen.js'
import { ABSENT, KEY, KEY_BYTES, newProbe, type Probe, probeBytes, TOMBSTONE } from './seen-key.js'
import { openRun } from './seen-run-open.js'
import type { SeenRunReader } from './seen-run-reader.js'
import { SeenRuns } from './seen-runs.js'
import { allKeys, countKeys } from './seen-scan.js'
import { SeenTable, tableBytes } from './seen-table.js'
import { SeenTasks, type TaskCare } from './seen-tasks.js'

export type { SeenTuning } from './seen-budget.js'
export type { SeenRunInfo } from './seen-format.js'

export interface SeenSetOptions {
  readonly env: Env
  readonly directory: string
  /** 16 bytes; a run of another job is refused. */
  readonly jobId: Uint8Array
  /** As the manifest has them. */
  readonly runs: readonly SeenRunInfo[]
  readonly size: number
  /** Bounds all that the set takes, as long as checkpoints come when they are due and fences leave room. */
  readonly memoryBytes?: number
  readonly warn?: Warn
  readonly tuning?: Partial<SeenTuning>
}

export class SeenSet {
  private readonly env: Env
  private readonly directory: string
  private readonly jobId: Uint8Array
  private readonly tuning: SeenTuning
  private readonly warn: Warn
  private readonly runList: SeenRuns
  private readonly tasks: SeenTasks
  private readonly beside = new MergeBeside()
  private readonly batch = new KeyBatch()
  private readonly probe: Probe = newProbe()
  private live: SeenTable
  /** The table of the last checkpoint, emptied: the next live one. Tables are large, and garbage is collected late. */
  private spare: SeenTable | undefined
  private frozen: Frozen | undefined
  private keyCount: number
  private nextNumber = 1
  private closed = false
  /** What the tables may take before filters have to give way to them. */
  private tablesFitted = 0

  private constructor(options: SeenSetOptions) {
    const { env, directory, memoryBytes = SEEN_MEMORY_BYTES_DEFAULT } = options
    this.env = env
    this.directory = directory
    this.jobId = Uint8Array.from(options.jobId)
    this.tuning = tuningOf(memoryBytes, options.tuning ?? {})
    this.warn = options.warn ?? (() => {})
    this.runList = new SeenRuns({ ...this.tuning, memoryBytes })
    this.tasks = new SeenTasks({ ...this.tuning, env, directory })
    this.live = new SeenTable(this.tuning.tableSlotsMin)
    this.keyCount = options.size
  }

  /**
   * Reads headers, footers, fences and filters, never all keys. A run that is missing, short, foreign or damaged is
   * HOLDFAST_CORRUPT, a newer one HOLDFAST_UNSUPPORTED_FORMAT. Filters that are damaged are only warned of.
   */
  static open(options: SeenSetOptions): SeenSet {
    assert(options.jobId.length === 16, 'a job id is 16 bytes')
    const set = new SeenSet(options)
    const infos = sortRuns(options.runs, options.directory)
    for (const name of listRuns(set.env.files, set.directory))
      set.nextNumber = Math.max(set.nextNumber, (parseRunName(name) ?? 0) + 1)
    const readers: SeenRunReader[] = []
    set.runList.readers = readers
    try {
      for (const info of infos) {
        const path = join(set.directory, info.file)
        readers.push(openRun(set.env.files, path, info, set.jobId, set.runList.pages, tellDamage(set.warn, path)))
        set.nextNumber = Math.max(set.nextNumber, readers[readers.length - 1].number + 1)
      }
      set.runList.readers = readers
      set.fit()
      set.runList.loadFilters()
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
      for (const run of set.runList.readers) checkRunPages(run)
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

  /** A merge is done, and waits for a checkpoint whose manifest names what it made. */
  get isMerged(): boolean {
    return this.beside.isReady
  }

  get memoryBytes(): number {
    const other = this.frozen?.table ?? this.spare
    return this.live.memoryBytes + (other?.memoryBytes ?? 0) + this.runList.memoryBytes + this.tasks.memoryBytes
  }

  get diskBytes(): number {
    return this.runList.diskBytes
  }

  /** The runs of the last checkpoint, newest first. */
  get runs(): readonly SeenRunInfo[] {
    return this.runList.infos
  }

  has(key: Uint8Array, offset: number): boolean {
    return this.isSeen(this.probeOf(key, offset))
  }

  /** False if it was seen already. An error while reading leaves everything as it was. */
  add(key: Uint8Array, offset: number): boolean {
    const probe = this.probeOf(key, offset)
    if (this.isSeen(probe)) return false
    this.insert(probe)
    return true
  }

  /**
   * As `add` for each of `count` keys that lie one behind the other, in their order: of the same key twice the first is new.
   * `isNew` gets a 1 or a 0 for each; returns how many are new. Keys that are to be looked for in runs are looked for in
   * the order of their pages. An error while reading leaves everything as it was. Taken back by `undoAdd` key by key.
   */
  addBatch(keys: Uint8Array, count: number, isNew: Uint8Array): number {
    this.resolveBatch(keys, count, isNew)
    const { probe } = this
    let added = 0
    for (let i = 0; i < count; i++) {
      isNew[i] ^= 1
      if (isNew[i] === 0) continue
      probeBytes(probe, keys, i * KEY_BYTES)
      if (this.live.get(probe) === KEY) {
        isNew[i] = 0
        continue
      }
      this.insert(probe)
      added++
    }
    return added
  }

  /** As `has` for each of `count` keys that lie one behind the other: 1 or 0 in `isSeen`. Returns how many are seen. */
  hasBatch(keys: Uint8Array, count: number, isSeen: Uint8Array): number {
    return this.resolveBatch(keys, count, isSeen)
  }

  /** For replay and for keys known to be new: does not look at runs. Nothing happens if the table holds it. */
  insertNew(key: Uint8Array, offset: number): void {
    const probe = this.probeOf(key, offset)
    if (this.inTables(probe) === KEY) return
    this.insert(probe)
  }

  /** True if it was seen; it is not any more. */
  forget(key: Uint8Array, offset: number): boolean {
    const probe = this.probeOf(key, offset)
    if (!this.isSeen(probe)) return false
    if (this.live.get(probe) === KEY) this.takeFromLive(probe)
    else this.live.set(probe, TOMBSTONE)
    this.runList.dropHit(probe)
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
      if (this.runList.mayHold(probe)) frozen.table.set(probe, TOMBSTONE)
      else frozen.table.delete(probe)
      frozen.size--
      frozen.version++
    } else {
      if (!this.isSeen(probe)) return
      this.live.set(probe, TOMBSTONE)
    }
    this.runList.dropHit(probe)
    this.keyCount--
  }

  /** Sets the table aside for `writeFrozen`. Look-ups see both; from here on adds go to a new table. */
  freeze(): void {
    this.assertOpen()
    assert(this.frozen === undefined, 'one checkpoint at a time')
    const { live: table, keyCount: size } = this
    this.frozen = { table, size, version: 0, number: 0, writing: false, cancelled: false, written: undefined }
    this.live = this.spare ?? new SeenTable(this.tuning.tableSlotsMin)
    this.spare = undefined
    this.fit()
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
      if (this.runList.readers.length >= this.tuning.runsMax) await this.beside.ended()
      for (;;) {
        assertWanted()
        const { version } = frozen
        const number = this.nextNumber++
        frozen.number = number
        const withBeside = this.beside.isReady
        const { runs, free } = this.beside.view(this.runList.readers)
        const care = { isAwaited: true, assertWanted }
        const isWhole = free === runs.length
        const context = this.flushContext()
        const flushed = await flushTable(context, frozen.table, runs.slice(0, free), isWhole, number, care)
        // The set may have been closed or the checkpoint given up in the very turn in which the write ended.
        if (this.closed || frozen.cancelled) this.discard(flushed.run)
        assertWanted()
        // An add was taken back while its key may have been written already: once more, without it.
        if (frozen.version !== version) {
          this.discard(flushed.run)
          continue
        }
        const kept = runs.slice(flushed.merged)
        const readers = flushed.run === undefined ? kept : [flushed.run, ...kept]
        frozen.written = { size: frozen.size, readers, run: flushed.run, withBeside }
        return { runs: readers.map((reader) => reader.info), size: frozen.size }
      }
    } finally {
      frozen.writing = false
    }
  }

  /** The manifest that names the new runs is durable: from here on they are the set, and the replaced ones go. */
  commitFrozen(): void {
    const written = this.frozen?.written
    assert(written !== undefined, 'only what was written can be committed')
    const before = new Set(this.runList.readers)
    if (written.withBeside) {
      const made = this.beside.published()
      if (made !== undefined) before.add(made)
    }
    this.runList.readers = written.readers
    const { table } = this.frozen as Frozen
    // One that had to grow beyond its due is not kept.
    if (table.memoryBytes <= tableBytes(2 * this.tuning.tableKeysMax)) this.spare = table.clear()
    this.frozen = undefined
    for (const reader of written.readers) before.delete(reader)
    for (const reader of before) this.discard(reader)
    this.fit()
    if (this.closed) return
    const care: TaskCare = { isAwaited: false, assertWanted: () => this.assertOpen() }
    this.beside.maybeStart(this.flushContext(), written.readers, () => this.nextNumber++, care)
  }

  /** The checkpoint failed: the new run goes, and the frozen table is again part of the live one. */
  abortFrozen(): void {
    const { frozen } = this
    if (frozen === undefined) return
    // If it is still being written, that ends at its next pause and removes its file.
    frozen.cancelled = true
    this.tasks.cancel(frozen.number)
    this.discard(frozen.written?.run)
    this.frozen = undefined
    // The live table is the newer one, and the smaller: it has had less time.
    this.live.copyOver(frozen.table)
    this.live = frozen.table
    this.fit()
  }

  /** Resolves when no merge runs beside: for who wants to see the set at rest. */
  settled = (): Promise<void> => this.beside.ended()

  /** At open: deletes run files no manifest names, and unfinished ones. Other files are not ours to delete. */
  removeUnnamed(): string[] {
    return removeUnnamed(this.env.files, this.directory, new Set(this.runs.map((run) => run.file)))
  }

  /** Reads everything: each run in itself, and `size` against the keys there are. Throws HOLDFAST_CORRUPT. */
  check(): void {
    this.assertOpen()
    for (const reader of this.runList.readers) checkRunPages(reader)
    const count = countKeys(this.tables(), this.runList.readers)
    if (count === this.keyCount) return
    throw corrupt(this.directory, `${count} keys are seen, ${this.keyCount} are counted`)
  }

  /** Every key seen, ascending, for tools. The set must not be checkpointed meanwhile; table changes are not noticed. */
  keys(): Generator<Uint8Array, void, void> {
    this.assertOpen()
    return allKeys(this.tables(), this.runList.readers)
  }

  /**
   * Lets the files go, and ends the thread. A checkpoint being written ends at its next pause; its file, and that of a merge
   * beside, stay for the next open to remove.
   */
  close(): void {
    this.closed = true
    this.stop()
    this.runList.close()
    this.frozen?.written?.run?.close()
    this.beside.close()
  }

  /** Nothing is written any more, by no thread: the directory may be someone else's. Look-ups go on. */
  stop(): void {
    this.tasks.close()
  }

  private isSeen(probe: Probe): boolean {
    const state = this.inTables(probe)
    if (state !== ABSENT) return state === KEY
    return this.runList.wasHit(probe) || this.runList.find(probe)
  }

  /** The frozen table first: the live one then remembers where it ended, for `insert`. */
  private inTables(probe: Probe): number {
    const { frozen } = this
    const older = frozen === undefined ? ABSENT : frozen.table.get(probe)
    return this.live.get(probe) || older
  }

  /** The key that the last `live.get` was asked for, and did not find. */
  private insert(probe: Probe): void {
    this.live.insertFound(probe)
    this.keyCount++
    if (this.live.memoryBytes > this.tablesFitted) this.fit()
  }

  /** Divides memory anew, whenever runs or tables are others than before. */
  private fit(): void {
    const { tuning, live } = this
    const other = (this.frozen?.table ?? this.spare)?.memoryBytes ?? 0
    // So that filters need not go and come with every checkpoint, tables have as much as two of them get.
    const tablesBytes = Math.max(live.memoryBytes + other, 2 * tableBytes(2 * tuning.tableKeysMax))
    this.tablesFitted = tablesBytes - other
    this.runList.fit(tablesBytes + mergeReserveBytes(tuning, this.runList.infos))
  }

  private resolveBatch(keys: Uint8Array, count: number, isSeen: Uint8Array): number {
    this.assertOpen()
    assert(count * KEY_BYTES <= keys.length && count <= isSeen.length, 'a batch has room for its keys and answers')
    const { probe, batch, runList } = this
    batch.begin(count)
    let seen = 0
    for (let i = 0; i < count; i++) {
      probeBytes(probe, keys, i * KEY_BYTES)
      const state = this.inTables(probe)
      isSeen[i] = state === KEY || (state === ABSENT && runList.wasHit(probe)) ? 1 : 0
      seen += isSeen[i]
      if (state === ABSENT && isSeen[i] === 0) batch.push(i, probe[0])
    }
    for (const i of batch.sorted()) {
      probeBytes(probe, keys, i * KEY_BYTES)
      // The same key may have come before in this batch.
      if (!runList.wasHit(probe) && !runList.find(probe)) continue
      isSeen[i] = 1
      seen++
    }
    return seen
  }

  /** Removes a key from the live table, leaving a tombstone if something older may still call it seen. */
  private takeFromLive(probe: Probe): void {
    const older = this.frozen?.table.get(probe) ?? ABSENT
    if (older === KEY || (older === ABSENT && this.runList.mayHold(probe))) this.live.set(probe, TOMBSTONE)
    else this.live.delete(probe)
  }

  private flushContext(): FlushContext {
    const { env, directory, jobId, tasks, warn } = this
    return { ...this.tuning, env, directory, jobId, tasks, warn, pages: this.runList.pages }
  }

  /** Closes and unlinks. Errors do not matter: open removes what no manifest names. */
  private discard(reader: SeenRunReader | undefined): void {
    if (reader === undefined) return
    try {
      reader.close()
    } catch {
      // See above.
    }
    this.tasks.remove(reader.path, reader.info.bytes)
  }

  private tables = (): SeenTable[] => (this.frozen === undefined ? [this.live] : [this.live, this.frozen.table])

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
}
