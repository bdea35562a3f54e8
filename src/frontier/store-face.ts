/** What queue and frontier have in common: events, stats, state, dead letters, loops, the end. */
import { EventEmitter } from 'node:events'
import type { MemoryJob } from '../engine/adder.js'
import type { Engine } from '../engine/engine.js'
import { fromDead, setValues, value } from '../engine/small-commits.js'
import { errorCode } from '../errors.js'
import type { JobEntry } from '../queue/job-entry.js'
import type { LeaseEntry } from '../queue/lease-table.js'
import { emptyJobHeader, type JobHeader, readJobHeader } from '../store/job-record.js'
import { LeaseHandle } from './lease-handle.js'
import type {
  DeadLetter,
  Lease,
  Logger,
  LoopOptions,
  Recovery,
  Settlement,
  Stats,
  StoreEvents,
  TakeOptions,
} from './types.js'

export abstract class StoreFace<L extends LeaseHandle, P> extends EventEmitter<StoreEvents> {
  protected readonly engine: Engine
  protected readonly logger: Logger | undefined
  private readonly header = emptyJobHeader()

  protected constructor(engine: Engine, logger: Logger | undefined) {
    super()
    this.engine = engine
    this.logger = logger
    const forward = <K extends keyof StoreEvents>(name: K): void => {
      engine.on(name, ((...values: StoreEvents[K]) => {
        this.emit(name as string as 'idle', ...(values as []))
      }) as never)
    }
    for (const name of [
      'retry',
      'dead',
      'expired',
      'slot-paused',
      'idle',
      'finished',
      'checkpoint',
      'acked',
    ] as const) {
      // Attached only when somebody listens: an event nobody hears costs nothing on the hot path.
      this.on(
        'newListener' as never,
        ((added: string) => {
          if (added === name && engine.listenerCount(name) === 0) forward(name)
        }) as never,
      )
    }
    const tell = (warning: { code: string; message: string }): void => {
      logger?.warn({ code: warning.code }, warning.message)
      this.emit('warning', warning)
    }
    engine.on('warning', tell)
    // What opening had to say waits until whoever opened it can have begun to listen.
    if (engine.early.length > 0) void engine.options.env.clock.yield().then(() => engine.early.splice(0).forEach(tell))
  }

  /** What opening found. */
  get recovery(): Recovery {
    return this.engine.recovery
  }

  get closed(): boolean {
    return this.engine.closed
  }

  /** The face of a lease. Throws DecodeError or the codec's error when the payload cannot be decoded. */
  protected abstract face(entry: LeaseEntry, header: JobHeader | MemoryJob): L
  protected abstract decode(job: JobEntry, header: JobHeader | MemoryJob): P

  protected headerOf(job: JobEntry): JobHeader | MemoryJob {
    if (job.chunk === undefined) return job.value as MemoryJob
    return readJobHeader(job.chunk.buffer, job.start, job.end, this.header)
  }

  /**
   * Hands out what is eligible now, at most `max` (default 1); an empty array when nothing is. A job whose payload cannot
   * be decoded goes to the dead letters with the reason, and the next is handed out instead.
   */
  async take(options: TakeOptions = {}): Promise<L[]> {
    const { max = 1 } = options
    if (!Number.isInteger(max) || max < 1) throw new TypeError(`max is ${max}, expected an integer of 1 or more`)
    return this.takeNow(max)
  }

  protected takeNow(max: number): L[] {
    const taken: L[] = []
    for (;;) {
      let entries: LeaseEntry[]
      try {
        entries = this.engine.desk.take(max - taken.length)
      } catch (error) {
        // What was taken before stays handed out; the caller meets the error on the next call.
        if (taken.length > 0) return taken
        throw error
      }
      for (const entry of entries) {
        try {
          taken.push(this.face(entry, this.headerOf(entry.job)))
        } catch (error) {
          const reason = `undecodable: ${(error as Error).message}`
          this.engine.warn('undecodable', `job ${entry.job.id} went to the dead letters: ${reason}`)
          this.engine.desk
            .settle(entry, { verb: 'bury', reason })
            .catch((failure) => this.engine.warn('bury-failed', (failure as Error).message))
        }
      }
      if (entries.length === 0 || taken.length === max) return taken
    }
  }

  /** One after the other until nothing is left or `signal` aborts; waits while something is delayed or leased. */
  protected async *loop(options: LoopOptions = {}): AsyncGenerator<L, void, undefined> {
    const { signal } = options
    while (!signal?.aborted && !this.engine.closed) {
      const [lease] = this.takeOrNothing(1)
      if (lease !== undefined) {
        let resumed = false
        try {
          yield lease
          resumed = true
        } finally {
          // The loop was left in the middle of this one: the next process need not wait for the lease to run out.
          if (!resumed && lease.live) await lease.giveBack()
        }
      } else {
        if (this.engine.finished) return
        await this.changeOrAbort(signal)
      }
    }
  }

  /** @internal Like take, but a store that is closing has nothing to hand out. */
  takeOrNothing(max: number): L[] {
    try {
      return this.takeNow(max)
    } catch (error) {
      if (errorCode(error) === 'HOLDFAST_CLOSED') return []
      throw error
    }
  }

  /** @internal */
  async changeOrAbort(signal: AbortSignal | undefined): Promise<void> {
    await this.engine.change(signal)
  }

  /** @internal */
  get isFinished(): boolean {
    return this.engine.finished
  }

  /**
   * Ends many leases as done in one commit, with the key/values that belong to it: all of them or none. Rejects with
   * HOLDFAST_STALE_LEASE, nothing done, when one of them is over already. The quickest way to finish a batch.
   */
  async ackAll(leases: Iterable<Lease>, options: Settlement = {}): Promise<void> {
    // Once each: the same lease twice would be over the second time.
    const entries = new Set<LeaseEntry>()
    for (const lease of leases) {
      if (!(lease instanceof LeaseHandle && lease.isOf(this.engine))) {
        throw new TypeError('ackAll was given something else than leases of this store')
      }
      entries.add(lease.entry)
    }
    if (entries.size > 0 || options.state !== undefined) await this.engine.desk.ackAll([...entries], options.state)
  }

  async stats(): Promise<Stats> {
    const { state, journal } = this.engine
    const oldest = state.oldestReadyAt()
    return {
      ready: state.ready.count,
      delayed: state.delayed.count,
      leased: state.leases.size,
      dead: state.dead.count,
      memoryOnly: state.memoryOnly,
      seen: state.seen.size,
      slots: state.ready.slots.count,
      bytes: {
        memory: state.memoryBytes,
        journal: journal.bytes + journal.olderBytes,
        segments: state.segmentBytes(),
        seen: state.seen.diskBytes,
      },
      oldestReadyMs: oldest === null ? null : Math.max(0, Math.round(this.engine.now() - oldest)),
      counters: { ...state.counters },
    }
  }

  /** A durable key/value of the user; undefined when it is not set. */
  state(key: string): unknown {
    return value(this.engine.desk, key)
  }

  /** Sets durable key/values in one commit; `undefined` deletes. All together at most 1 MiB (HOLDFAST_TOO_LARGE). */
  async setState(entries: Record<string, unknown>): Promise<void> {
    return setValues(this.engine.desk, entries)
  }

  /** Every dead letter, oldest segments first. */
  async *dead(): AsyncGenerator<DeadLetter<P>, void, undefined> {
    for (const job of this.engine.state.dead.entries()) {
      const header = this.headerOf(job)
      let payload: P | undefined
      try {
        payload = this.decode(job, header)
      } catch {
        // Told by `payload` being undefined; the bytes are there.
      }
      yield {
        id: job.id,
        reason: job.reason,
        attempt: job.attempt,
        failures: job.failures,
        priority: job.bucket.priority,
        buriedAt: job.due,
        payload,
        raw:
          job.chunk === undefined || !('payloadAt' in header)
            ? new Uint8Array(0)
            : Buffer.from(job.chunk.buffer.subarray(header.payloadAt, job.end)),
      }
    }
  }

  /** Brings dead letters back to ready, all or those with these ids, with a fresh count of attempts. */
  requeue(ids?: Iterable<number>): Promise<number> {
    return fromDead(this.engine.desk, 'requeue', wantedIds(ids))
  }

  /** Throws dead letters away for ever, all or those with these ids. */
  dropDead(ids?: Iterable<number>): Promise<number> {
    return fromDead(this.engine.desk, 'drop', wantedIds(ids))
  }

  /** Moves the start of replay forward now. Not needed: it happens by itself. */
  async checkpoint(): Promise<void> {
    return this.engine.checkpoint()
  }

  /** Gives leases back, syncs and unlocks. Killing the process instead loses nothing. Idempotent. */
  close(): Promise<void> {
    return this.engine.close()
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }
}

function wantedIds(ids: Iterable<number> | undefined): (id: number) => boolean {
  if (ids === undefined) return () => true
  const wanted = new Set(ids)
  return (id) => wanted.has(id)
}
