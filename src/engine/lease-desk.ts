/**
 * Hands jobs out under leases and takes their ends back, in step with the journal. Invariant: a lease that is over is out of
 * the table, its job is somewhere else, and its slot counts one less; a call that rejects for want of room leaves the
 * lease as it was.
 */
import type { ByteWriter } from '../bytes/byte-writer.js'
import { TAKE_MARK_MS } from '../limits.js'
import type { Chunk, JobEntry } from '../queue/job-entry.js'
import type { LeaseEntry } from '../queue/lease-table.js'
import * as F from '../store/format.js'
import { Adder, hex, type MemoryJob } from './adder.js'
import type { Committer, Operation } from './committer.js'
import { type Ending, staleError, writeBury, writeEnding, writeJob, writeRelease } from './ending.js'
import type { EngineOptions } from './engine-options.js'
import type { StoreEvents } from './events.js'
import type { StoreState } from './store-state.js'
import { writeValues } from './value-records.js'

/** What the desk needs of the store around it. */
export interface DeskContext {
  readonly state: StoreState
  readonly options: EngineOptions
  /** Anchored wall time. */
  now(): number
  assertOpen(): void
  /** False once the store closes or failed: timers then do nothing. */
  readonly running: boolean
  /** Sees to it that the store wakes up for the next deadline. */
  arm(): void
  warn(code: string, message: string): void
  listenerCount(name: keyof StoreEvents): number
  emit<K extends keyof StoreEvents>(name: K, ...values: StoreEvents[K]): boolean
}

const ACK: Ending = { verb: 'ack' }

export class LeaseDesk {
  readonly context: DeskContext
  readonly state: StoreState
  committer!: Committer
  private readonly options: EngineOptions
  /** Fingerprints of memory-only jobs that are not done, in hex. */
  readonly volatileSeen = new Set<string>()
  /** Leases whose hand-out is not on disk. */
  private unmarked: LeaseEntry[] = []
  private markScheduled = false
  private durableDuplicates: number

  constructor(context: DeskContext) {
    this.context = context
    this.state = context.state
    this.options = context.options
    this.durableDuplicates = context.state.counters.duplicates
  }

  /** Ends leases that ran out and brings due jobs to the ready ones. */
  housekeep(): void {
    const { state } = this
    const monotonic = this.options.env.clock.monotonic()
    for (;;) {
      const lease = state.leases.due(monotonic)
      if (lease === undefined) break
      this.expire(lease)
    }
    const now = this.context.now()
    state.ready.tick(now)
    state.delayed.takeDue(now, (job) => state.enqueue(job, F.CARRY_READY))
  }

  /** Up to `max` jobs that may be worked on now. */
  take(max: number): LeaseEntry[] {
    this.context.assertOpen()
    this.housekeep()
    const { state } = this
    const now = this.context.now()
    const deadline = this.options.env.clock.monotonic() + this.options.leaseMs
    const leases: LeaseEntry[] = []
    while (leases.length < max) {
      let job: JobEntry | undefined
      try {
        job = state.ready.take(now, state)
      } catch (error) {
        // What was taken before stays handed out; the caller meets the error on the next call.
        if (leases.length > 0) break
        throw error
      }
      if (job === undefined) break
      job.state = F.CARRY_LEASED
      job.attempt++
      const lease = state.leases.grant(job, deadline)
      if (job.memoryOnly) lease.marked = true
      else this.unmarked.push(lease)
      leases.push(lease)
    }
    if (leases.length > 0) {
      this.scheduleMarks()
      this.context.arm()
    }
    return leases
  }

  private scheduleMarks(): void {
    if (this.markScheduled || this.unmarked.length === 0) return
    this.markScheduled = true
    this.options.env.clock.after(TAKE_MARK_MS, () => {
      this.markScheduled = false
      if (!this.context.running) return
      if (this.unmarked.some((lease) => lease.state === 'live')) this.committer.flush(true)
      else this.unmarked = []
    })
  }

  ride(writer: ByteWriter): number {
    let records = 0
    for (const lease of this.unmarked) {
      // An ending in this very batch says the attempt itself.
      if (lease.state !== 'live') continue
      writeJob(this.state, writer, F.RECORD_TAKE, lease.job)
      writer.varint(lease.job.attempt)
      records++
    }
    const duplicates = this.state.counters.duplicates - this.durableDuplicates
    if (duplicates > 0) {
      writer.u8(F.RECORD_DUPLICATES)
      writer.varint(duplicates)
      records++
    }
    return records
  }

  rideWritten(): void {
    for (const lease of this.unmarked) lease.marked = true
    this.unmarked = []
    this.durableDuplicates = this.state.counters.duplicates
  }

  /**
   * Ends a lease in one commit, with the jobs and the key/values that belong to it. Rejects with HOLDFAST_STALE_LEASE when
   * it is over already; a call that rejects for want of room leaves the lease as it was.
   */
  settle(
    lease: LeaseEntry,
    ending: Ending,
    values?: Record<string, unknown>,
    encode?: (adder: Adder) => void,
  ): Promise<Adder> {
    this.context.assertOpen()
    this.assertLive(lease)
    const { state } = this
    const { job } = lease
    const ended = this.effective(job, ending)
    const due = ended.verb === 'retry' && ended.delayMs > 0 ? Math.ceil(this.context.now() + ended.delayMs) : 0
    let adder: Adder | undefined
    let setValues = (): void => {}
    let unsetValues = (): void => {}
    lease.state = 'settling'
    const operation = {
      finishing: true,
      dependsOnBatch: false,
      apply: (chunk: Chunk, base: number) => {
        setValues()
        adder?.apply(chunk, base)
        this.applyEnding(lease, ended, due)
      },
      undo: () => {
        adder?.undo()
        unsetValues()
        this.unsettle(lease)
      },
    }
    const done = this.committer.commit(operation, (writer) => {
      let records = writeEnding(state, writer, job, ended, due)
      if (values !== undefined) {
        const written = writeValues(state, writer, values)
        records += written.records
        setValues = written.apply
        unsetValues = written.undo
      }
      adder = new Adder(state, writer, this.volatileSeen, this.context.now())
      encode?.(adder)
      operation.dependsOnBatch = adder.duplicates > 0
      return records + adder.records
    })
    return done.then(() => adder as Adder)
  }

  /** Ends all of these as done, in one commit: all of them or, when one is over already or the write fails, none. */
  ackAll(leases: readonly LeaseEntry[], values?: Record<string, unknown>): Promise<void> {
    this.context.assertOpen()
    for (const lease of leases) this.assertLive(lease)
    const { state } = this
    let setValues = (): void => {}
    let unsetValues = (): void => {}
    for (const lease of leases) lease.state = 'settling'
    const operation: Operation = {
      finishing: true,
      apply: () => {
        setValues()
        for (const lease of leases) this.applyEnding(lease, ACK, 0)
      },
      undo: () => {
        unsetValues()
        for (const lease of leases) this.unsettle(lease)
      },
    }
    return this.committer.commit(operation, (writer) => {
      let records = 0
      for (const lease of leases) records += writeEnding(state, writer, lease.job, ACK, 0)
      if (values === undefined) return records
      const written = writeValues(state, writer, values)
      setValues = written.apply
      unsetValues = written.undo
      return records + written.records
    })
  }

  private unsettle(lease: LeaseEntry): void {
    if (lease.state === 'settling') lease.state = 'live'
    if (!lease.marked && !this.unmarked.includes(lease)) this.unmarked.push(lease)
  }

  /** Out of attempts: what would come back goes to the dead letters instead. */
  private effective(job: JobEntry, ending: Ending): Ending {
    if (ending.verb !== 'retry' || job.attempt < this.state.maxAttempts) return ending
    const why = ending.reason === '' ? '' : `: ${ending.reason}`
    return { verb: 'bury', reason: `gave up after ${job.attempt} attempts${why}` }
  }

  private applyEnding(lease: LeaseEntry, ending: Ending, due: number): void {
    const { state } = this
    const { job } = lease
    const slot = state.ready.lanes.slotOf(job.lane)
    state.leases.end(lease)
    switch (ending.verb) {
      case 'ack':
        this.forgetJob(job)
        state.counters.acked++
        if (this.context.listenerCount('acked') > 0) this.context.emit('acked', job.id)
        break
      case 'retry':
        if (ending.counted) job.failures++
        job.reason = ending.reason
        this.comeBack(job, due)
        state.counters.retried++
        if (this.context.listenerCount('retry') > 0)
          this.context.emit('retry', job.id, ending.delayMs, ending.reason || undefined)
        break
      case 'bury':
        this.makeDead(job, ending.reason)
        break
      case 'release':
        job.attempt--
        this.comeBack(job, 0)
    }
    state.ready.leaseEnded(slot)
  }

  private comeBack(job: JobEntry, due: number): void {
    this.state.own(job)
    job.due = due
    this.state.enqueue(job, due > 0 ? F.CARRY_DELAYED : F.CARRY_READY)
  }

  makeDead(job: JobEntry, reason: string): void {
    this.state.own(job)
    job.reason = reason
    job.due = Math.floor(this.context.now())
    if (job.memoryOnly) this.state.memoryOnly--
    this.state.enqueue(job, F.CARRY_DEAD)
    this.state.counters.buried++
    if (this.context.listenerCount('dead') > 0) this.context.emit('dead', job.id, reason)
  }

  forgetJob(job: JobEntry): void {
    this.state.drop(job)
    if (!job.memoryOnly) return
    this.state.memoryOnly--
    const { fingerprint, recordSeen } = job.value as MemoryJob
    if (fingerprint === undefined || !recordSeen) return
    this.volatileSeen.delete(hex(fingerprint))
    // It may have been seen before: with `dontFilter` it was added all the same.
    this.state.seen.add(fingerprint, 0)
  }

  /** A dead letter that ends unread. One that was only in memory was never seen for good, and is not now. */
  throwAway(job: JobEntry): void {
    this.state.drop(job)
    if (!job.memoryOnly) return
    const { fingerprint } = job.value as MemoryJob
    if (fingerprint !== undefined) this.volatileSeen.delete(hex(fingerprint))
  }

  private expire(lease: LeaseEntry): void {
    const { state } = this
    const { job } = lease
    if (lease.state === 'settling') {
      // Its end is on its way: only a failed write would bring it back, and then it is looked at again.
      state.leases.extend(lease, this.options.env.clock.monotonic() + 1000)
      return
    }
    const spent = job.attempt >= state.maxAttempts
    const reason = `gave up after ${job.attempt} attempts; the last lease ran out`
    lease.state = 'settling'
    const operation: Operation = {
      finishing: true,
      apply: () => {
        const slot = state.ready.lanes.slotOf(job.lane)
        state.leases.end(lease)
        state.counters.expired++
        if (spent) this.makeDead(job, reason)
        else this.comeBack(job, 0)
        state.ready.leaseEnded(slot)
        if (this.context.listenerCount('expired') > 0) this.context.emit('expired', job.id)
      },
      undo: () => {
        lease.state = 'live'
        state.leases.extend(lease, this.options.env.clock.monotonic() + 1000)
      },
    }
    this.committer
      .commit(operation, (writer) => {
        if (job.memoryOnly) return 0
        writeRelease(this.state, writer, job, job.attempt, true)
        if (!spent) return 1
        writeBury(this.state, writer, job, reason)
        return 2
      })
      .catch((error) => this.context.warn('expiry-failed', (error as Error).message))
    lease.abort(staleError(lease, this.state.epoch, 'ran out'))
    this.committer.flush()
  }

  extend(lease: LeaseEntry, leaseMs: number): void {
    this.context.assertOpen()
    this.assertLive(lease)
    this.state.leases.extend(lease, this.options.env.clock.monotonic() + leaseMs)
    this.context.arm()
  }

  private assertLive(lease: LeaseEntry): void {
    if (lease.state === 'live' && lease.deadline <= this.options.env.clock.monotonic()) this.expire(lease)
    if (lease.state !== 'live') {
      throw staleError(lease, this.state.epoch, lease.state === 'settling' ? 'is being settled already' : 'is over')
    }
  }
}
