/**
 * Group commit. Calls are encoded into one batch as they come; the batch is written at the end of the current turn, so
 * everything that many callers asked for in one turn is one write, and in `power` one sync. Steps J1–J4 of
 * docs/durability.md. Invariant: what is applied in memory is in the journal; a call that failed left no trace.
 */
import { ByteWriter } from '../bytes/byte-writer.js'
import type { Clock } from '../env/clock.js'
import { HoldfastError } from '../errors.js'
import { BATCH_FLUSH_BYTES, CHUNK_BYTES, FRAME_PAYLOAD_BYTES_MAX, TURN_MS_MAX } from '../limits.js'
import type { Chunk } from '../queue/job-entry.js'
import type { JournalWriter } from '../store/journal-writer.js'
import { beginBatch } from '../store/records.js'
import type { EngineOptions } from './engine-options.js'
import type { Reserve } from './reserve.js'

/** One call's part of a batch. */
export interface Operation {
  /** Ends work: may use the reserve when the disk is full. */
  readonly finishing: boolean
  /** Told someone "duplicate", perhaps of a request in this very batch: must not be written without its neighbours. */
  dependsOnBatch?: boolean
  /** The batch was written: `base` is what to add to offsets taken in `encode`. */
  apply(chunk: Chunk, base: number): void
  /** It was not: take back what `encode` did in memory. */
  undo(): void
}

interface Pending {
  readonly operation: Operation
  /** Offsets in the region. */
  readonly start: number
  readonly end: number
  readonly records: number
  readonly resolve: () => void
  readonly reject: (error: unknown) => void
}

export interface CommitterHooks {
  /** Throws when nothing may be written (lock lost, closed). */
  beforeWrite(): void
  /** Adds records that ride along (hand-out marks); returns how many. Not called when nothing else is written, unless `wantsRide`. */
  ride(writer: ByteWriter): number
  rideWritten(): void
  /** After a batch was applied. */
  applied(): void
  /** The journal is unusable: the store must close itself. */
  failed(error: HoldfastError): void
  warn(code: string, message: string): void
  newChunk(buffer: Buffer): Chunk
}

export class Committer {
  private readonly journal: JournalWriter
  private readonly power: boolean
  private readonly clock: Clock
  private readonly syncOnThreadMs: number
  private readonly reserve: Reserve
  private readonly epoch: number
  private readonly hooks: CommitterHooks
  private readonly writer = new ByteWriter(CHUNK_BYTES)
  private chunk: Chunk
  private pending: Pending[] = []
  private scheduled = false
  /** Written, waiting for a sync that begins after the write. */
  private unsynced: Pending[] = []
  private syncing = false
  /** How long the last sync took. */
  private syncMs = Infinity
  private applying = false
  /** When this turn of the event loop began, and what ends it; undefined: nothing was committed in it yet. */
  private turn: { readonly began: number; readonly end: Promise<void> } | undefined

  constructor(fields: {
    journal: JournalWriter
    options: EngineOptions
    reserve: Reserve
    epoch: number
    hooks: CommitterHooks
  }) {
    this.journal = fields.journal
    const { power, env, tuning } = fields.options
    this.power = power
    this.clock = env.clock
    this.syncOnThreadMs = power ? tuning.syncOnThreadMs : 0
    this.reserve = fields.reserve
    this.epoch = fields.epoch
    this.hooks = fields.hooks
    this.chunk = this.hooks.newChunk(this.writer.buffer)
    this.begin()
  }

  private begin(): void {
    beginBatch(this.writer)
  }

  /**
   * Encodes at once and commits with the current batch. `encode` returns the number of records it wrote (0 is fine: the
   * promise then resolves when everything before it is durable). What it throws is thrown on, without a trace.
   */
  commit(operation: Operation, encode: (writer: ByteWriter) => number): Promise<void> {
    const { writer } = this
    const start = writer.length
    let records: number
    try {
      records = encode(writer)
    } catch (error) {
      writer.rewind(start)
      operation.undo()
      throw error
    }
    if (writer.length > FRAME_PAYLOAD_BYTES_MAX) {
      const bytes = writer.length - start
      writer.rewind(start)
      operation.undo()
      throw new HoldfastError(
        'HOLDFAST_TOO_LARGE',
        `${bytes} bytes in one commit are over the limit of ${FRAME_PAYLOAD_BYTES_MAX}`,
      )
    }
    const promise = new Promise<void>((resolve, reject) => {
      this.pending.push({ operation, start, end: writer.length, records, resolve, reject })
    })
    if (writer.length >= BATCH_FLUSH_BYTES) this.flush()
    else this.schedule()
    return promise
  }

  private schedule(): void {
    if (this.scheduled) return
    this.scheduled = true
    queueMicrotask(() => {
      this.scheduled = false
      // While a sync runs the batch grows: it could not be acknowledged before the next sync anyhow.
      if (!(this.power && this.syncing)) this.flush()
    })
  }

  /** Writes what there is, now. Never throws: failures reach the calls they belong to. */
  flush(rideAlone = false): void {
    // A listener that commits while a batch is applied: ids must rise, so its batch is the next one.
    if (this.applying) return this.schedule()
    const batch = this.pending
    if (batch.length === 0 && !rideAlone) return
    this.pending = []
    let records = 0
    for (const one of batch) records += one.records
    try {
      this.hooks.beforeWrite()
    } catch (error) {
      this.writer.rewind(0)
      this.begin()
      this.rejectAll(batch, error)
      return
    }
    const rides = records > 0 || rideAlone
    const ridden = rides ? this.hooks.ride(this.writer) : 0
    if (records + ridden > 0) {
      try {
        const region = { buffer: this.writer.buffer, start: this.writer.start, end: this.writer.position }
        this.journal.append(region, records + ridden, this.clock.now(), this.epoch)
      } catch (error) {
        this.writeFailed(batch, error as HoldfastError)
        return
      }
      if (rides) this.hooks.rideWritten()
    }
    const region = this.writer.finish()
    this.begin()
    this.applyAll(batch, region)
  }

  private applyAll(batch: readonly Pending[], region: { buffer: Buffer; start: number }): void {
    if (this.chunk.buffer !== region.buffer) this.chunk = this.hooks.newChunk(region.buffer)
    this.applying = true
    try {
      for (const one of batch) one.operation.apply(this.chunk, region.start)
    } finally {
      this.applying = false
    }
    // Hand-out marks alone are not worth a sync: the next one covers them.
    if (this.power && batch.length > 0 && this.journal.dirty) {
      this.unsynced.push(...batch)
      this.startSync()
    } else this.resolveAll(batch)
    this.hooks.applied()
  }

  /**
   * A caller that awaits one commit after the other never leaves its turn by itself: timers, syncs and checkpoints would
   * not come to run. So a turn that has lasted long enough ends before its commits are answered.
   */
  private resolveAll(batch: readonly Pending[]): void {
    const now = this.clock.monotonic()
    if (this.turn === undefined) {
      const end = this.clock.yield()
      this.turn = { began: now, end }
      void end.then(() => {
        this.turn = undefined
      })
    }
    if (now - this.turn.began < TURN_MS_MAX) for (const one of batch) one.resolve()
    else {
      void this.turn.end.then(() => {
        for (const one of batch) one.resolve()
      })
    }
  }

  /** J2 failed and the file is as it was. */
  private writeFailed(batch: readonly Pending[], error: HoldfastError): void {
    const { writer } = this
    const broken = this.journal.failed
    const whole = batch.every((one) => one.operation.finishing)
    const finishing = batch.filter((one) => one.operation.finishing && (whole || one.operation.dependsOnBatch !== true))
    if (broken === undefined && error.code === 'HOLDFAST_DISK_FULL' && finishing.length > 0) {
      if (this.reserve.giveUp())
        this.hooks.warn('disk-full', 'the disk is full; the reserve was given up to finish work')
      if (this.appendOnly(finishing)) {
        this.rejectAll(
          batch.filter((one) => !finishing.includes(one)),
          error,
        )
        return
      }
    }
    writer.rewind(0)
    this.begin()
    this.rejectAll(batch, error)
    if (this.journal.failed !== undefined) this.hooks.failed(this.journal.failed)
  }

  /** Writes a batch of some of the calls. False when that fails as well. */
  private appendOnly(some: readonly Pending[]): boolean {
    const { writer } = this
    const old = Buffer.from(writer.buffer.subarray(writer.start, writer.position))
    writer.rewind(0)
    this.begin()
    const moved: Pending[] = []
    let records = 0
    for (const one of some) {
      const start = writer.length
      writer.copy(old, one.start, one.end)
      records += one.records
      const shift = start - one.start
      const { operation } = one
      moved.push({
        ...one,
        operation: {
          finishing: true,
          dependsOnBatch: false,
          apply: (chunk, base) => operation.apply(chunk, base + shift),
          undo: () => operation.undo(),
        },
      })
    }
    try {
      const region = { buffer: writer.buffer, start: writer.start, end: writer.position }
      this.journal.append(region, records, this.clock.now(), this.epoch)
    } catch {
      return false
    }
    const region = writer.finish()
    this.begin()
    this.applyAll(moved, region)
    return true
  }

  private rejectAll(batch: readonly Pending[], error: unknown): void {
    for (let i = batch.length - 1; i >= 0; i--) batch[i].operation.undo()
    for (const one of batch) one.reject(error)
  }

  private startSync(): void {
    if (this.syncing) return
    this.syncing = true
    const waiting = this.unsynced
    this.unsynced = []
    // A quick device answers before the thread pool would have begun; a slow one must not hold up the event loop.
    const onThread = this.syncMs < this.syncOnThreadMs
    const begun = this.clock.monotonic()
    this.journal.sync(onThread).then(
      () => {
        this.syncing = false
        this.syncMs = this.clock.monotonic() - begun
        for (const one of waiting) one.resolve()
        if (this.unsynced.length > 0) this.startSync()
        if (this.pending.length > 0) this.schedule()
      },
      (error: HoldfastError) => {
        this.syncing = false
        // Applied in memory and perhaps not on disk: only a re-open can tell, so nobody is told "done".
        for (const one of [...waiting, ...this.unsynced]) one.reject(error)
        this.unsynced = []
        this.hooks.failed(error)
      },
    )
  }

  /** For `process`: bounds what power loss can take. */
  backgroundSync(): void {
    if (this.journal.dirty) this.startSync()
  }

  /** Everything asked for so far is durable, as far as the option says. */
  settled(): Promise<void> {
    return this.commit({ finishing: true, apply: () => {}, undo: () => {} }, () => 0)
  }

  /** The store failed: whatever waits learns why. */
  abandon(error: unknown): void {
    const batch = this.pending
    this.pending = []
    this.writer.rewind(0)
    this.begin()
    this.rejectAll(batch, error)
    for (const one of this.unsynced) one.reject(error)
    this.unsynced = []
  }
}
