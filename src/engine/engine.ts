/**
 * The store while it is open: hands jobs out under leases, takes their ends back, keeps the journal in step, and starts
 * checkpoints. Everything here runs to completion between two turns of the event loop; only syncs and checkpoints
 * span turns. Queue and frontier are thin faces over it.
 */
import { EventEmitter } from 'node:events'
import { guardedFiles } from '../env/guarded-files.js'
import type { DirectoryLock } from '../env/lock.js'
import { HoldfastError, ioError } from '../errors.js'
import { type JobEntry, newChunk } from '../queue/job-entry.js'
import type { LeaseEntry } from '../queue/lease-table.js'
import * as F from '../store/format.js'
import type { JournalWriter } from '../store/journal-writer.js'
import { type Manifest, writeManifest } from '../store/manifest.js'
import { Adder } from './adder.js'
import { closingError, writeSlotClocks } from './checkpoint.js'
import { CheckpointRunner, type RunnerContext } from './checkpoint-runner.js'
import { Committer, type Operation } from './committer.js'
import { writeBury } from './ending.js'
import type { EngineOptions } from './engine-options.js'
import type { Recovery, StoreEvents } from './events.js'
import { LeaseDesk } from './lease-desk.js'
import { openJob } from './opening.js'
import { Reserve } from './reserve.js'
import type { StoreState } from './store-state.js'
import { Waiters } from './waiters.js'

export class Engine extends EventEmitter<StoreEvents> implements RunnerContext {
  readonly state: StoreState
  readonly options: EngineOptions
  readonly journal: JournalWriter
  readonly recovery: Recovery
  manifest: Manifest
  /** Of the tokens of this opening. */
  tokenPrefix: string
  /** What was to be told before anybody could listen. */
  readonly early: { code: string; message: string }[] = []
  readonly committer: Committer
  private readonly reserve: Reserve
  private readonly lock: DirectoryLock
  /** Closed with the reason when the store fails: then nothing of it, whatever is under way, writes on. */
  private readonly gate: { error?: HoldfastError }
  private readonly wallOffset: number
  readonly desk: LeaseDesk
  private failure: HoldfastError | undefined
  private phase: 'open' | 'closing' | 'closed' = 'open'
  private closePromise: Promise<void> | undefined
  private readonly checkpoints: CheckpointRunner
  private readonly waiters: Waiters
  private condition: 'busy' | 'idle' | 'finished' = 'busy'
  private timerAt = Infinity
  private cancelTimer: (() => void) | undefined
  private cancelSync: (() => void) | undefined

  static async open(directory: string, options: EngineOptions): Promise<Engine> {
    const { env } = options
    if (typeof directory !== 'string' || directory === '') throw new TypeError('the directory is an empty string')
    const root = directory.length > 1 ? directory.replace(/\/+$/, '') : directory
    const lost: { tell?: (reason: string) => void } = {}
    try {
      if (!env.files.exists(root)) env.files.makeDirectory(root)
    } catch (error) {
      throw ioError('creating', root, error)
    }
    const lock = await env.locks.acquire(root, (reason) => lost.tell?.(reason))
    try {
      const gate: { error?: HoldfastError } = {}
      const refuse = (): void => {
        if (gate.error !== undefined) throw gate.error
      }
      const guarded = { ...options, env: { ...env, files: guardedFiles(env.files, refuse) } }
      const state = await openJob(root, guarded)
      const engine = new Engine(guarded, lock, gate, state)
      lost.tell = (reason) => engine.lockLost(reason)
      try {
        await engine.begin(state.leased)
      } catch (error) {
        engine.letGo()
        throw error
      }
      return engine
    } catch (error) {
      await lock.release()
      throw error instanceof TypeError || error instanceof HoldfastError ? error : ioError('opening', root, error)
    }
  }

  private constructor(
    options: EngineOptions,
    lock: DirectoryLock,
    gate: { error?: HoldfastError },
    from: Awaited<ReturnType<typeof openJob>>,
  ) {
    super()
    this.gate = gate
    const { state } = from
    this.options = options
    this.state = state
    this.lock = lock
    this.journal = from.journal
    this.manifest = from.manifest
    this.journal.aheadBytes = options.power ? options.tuning.journalAheadBytes : 0
    this.wallOffset = options.env.clock.now() - options.env.clock.monotonic()
    state.epoch++
    this.tokenPrefix = String(state.epoch)
    this.reserve = new Reserve(options.env.files, state.paths.reserve, options.tuning.reserveBytes)
    this.waiters = new Waiters(options.env.clock)
    this.desk = new LeaseDesk(this)
    this.checkpoints = new CheckpointRunner(this, this.reserve)
    this.committer = new Committer({
      journal: this.journal,
      options,
      reserve: this.reserve,
      epoch: state.epoch,
      hooks: {
        beforeWrite: () => this.assertMayWrite(),
        ride: (writer) => this.desk.ride(writer),
        rideWritten: () => this.desk.rideWritten(),
        applied: () => this.afterApply(),
        failed: (error) => this.fail(error),
        warn: (code, message) => this.warn(code, message),
        newChunk: (buffer) => newChunk(buffer),
      },
    })
    this.desk.committer = this.committer
    const spent = from.leased.filter((job) => job.attempt >= state.maxAttempts)
    this.recovery = {
      created: from.created,
      leases: from.leased.length,
      tornBytes: from.scan.tornBytes,
      frames: from.scan.frames,
      buried: spent.length,
    }
  }

  /** R9, R10: the first batch of this epoch. */
  private async begin(leased: readonly JobEntry[]): Promise<void> {
    const { state } = this
    this.reserve.hold()
    const giveUp = (job: JobEntry): string =>
      `gave up after ${job.attempt} attempts; the process ended while it was leased`
    const apply = (): void => {
      state.counters.recovered += leased.length
      for (const job of leased) {
        if (job.attempt >= state.maxAttempts) this.desk.makeDead(job, giveUp(job))
        else state.enqueue(job, F.CARRY_READY)
      }
    }
    const opened = this.committer.commit(
      {
        finishing: true,
        undo: () => {},
        apply,
      },
      (writer) => {
        writer.u8(F.RECORD_OPEN)
        writer.varint(leased.length)
        let records = 1
        for (const job of leased) {
          if (job.attempt < state.maxAttempts) continue
          writeBury(state, writer, job, giveUp(job))
          records++
        }
        return records
      },
    )
    this.committer.flush()
    try {
      await opened
    } catch (error) {
      if ((error as HoldfastError).code !== 'HOLDFAST_DISK_FULL' || this.failure !== undefined) throw error
      // A full disk must not keep what is there from being read and finished: the next open says it again.
      apply()
      // The epoch was not noted and may be used again: tokens must differ all the same.
      this.tokenPrefix += `-${this.options.env.random.uint32().toString(36)}`
      this.warn('disk-full', 'the disk is full: this opening could not be noted')
    }
    if (this.recovery.tornBytes > 0) {
      this.warn('torn-tail', `${this.recovery.tornBytes} bytes of an unfinished write were cut off the journal`)
    }
    state.warnTo((code, message) => this.warn(code, message))
    this.armBackgroundSync()
    this.tidyQuietly()
    this.condition = this.currentCondition()
    this.arm()
  }

  /** Wall time that neither jumps nor goes back while the store is open. */
  now(): number {
    return this.wallOffset + this.options.env.clock.monotonic()
  }

  private armBackgroundSync(): void {
    if (this.options.power || this.phase !== 'open') return
    this.cancelSync = this.options.env.clock.after(this.options.syncEveryMs, () => {
      if (!this.running) return
      this.committer.backgroundSync()
      this.armBackgroundSync()
    })
  }

  /** Wakes up when the next lease ends, delayed job is due, or slot may be served again. */
  arm(): void {
    if (!this.running) return
    const { state } = this
    const monotonic = this.options.env.clock.monotonic()
    const wall = Math.min(state.delayed.nextDue, this.waiters.count > 0 ? state.ready.nextEligibleAt : Infinity)
    const at = Math.min(state.leases.nextDeadline, wall - this.wallOffset)
    if (at >= this.timerAt || at === Infinity) return
    this.cancelTimer?.()
    this.timerAt = at
    this.cancelTimer = this.options.env.clock.after(Math.max(0, Math.ceil(at - monotonic)), () => {
      this.timerAt = Infinity
      this.cancelTimer = undefined
      if (!this.running) return
      if (!this.tidyQuietly()) return
      this.waiters.wake()
      this.arm()
    })
  }

  /** False: a slice of delayed jobs cannot be read. The next take meets the same error and tells its caller. */
  private tidyQuietly(): boolean {
    try {
      this.desk.housekeep()
      return true
    } catch (error) {
      this.warn('read-failed', (error as Error).message)
      return false
    }
  }

  /** Encodes jobs through `encode` and commits them as one. */
  add(encode: (adder: Adder) => void): Promise<Adder> {
    this.assertOpen()
    let adder: Adder | undefined
    const operation: Operation = {
      finishing: false,
      apply: (chunk, base) => adder?.apply(chunk, base),
      undo: () => adder?.undo(),
    }
    const done = this.committer.commit(operation, (writer) => {
      adder = new Adder(this.state, writer, this.desk.volatileSeen, this.now())
      encode(adder)
      return adder.records
    })
    return done.then(() => adder as Adder)
  }

  /** Wall ms at which the lease ends. */
  deadlineOf(lease: LeaseEntry): number {
    return this.wallOffset + lease.deadline
  }

  /** Nothing ready, delayed or leased. */
  get finished(): boolean {
    const { state } = this
    return state.ready.count === 0 && state.leases.size === 0 && state.delayed.count === 0
  }

  /** Resolves when something may have changed for a taker: jobs came, a lease ended, a clock ran out, the store closed. */
  change(signal?: AbortSignal): Promise<void> {
    const change = this.waiters.wait(signal)
    this.arm()
    return change
  }

  private currentCondition(): 'busy' | 'idle' | 'finished' {
    return this.state.ready.count > 0 ? 'busy' : this.finished ? 'finished' : 'idle'
  }

  private afterApply(): void {
    this.waiters.wake()
    const condition = this.currentCondition()
    if (condition !== this.condition) {
      this.condition = condition
      if (condition !== 'busy' && this.listenerCount(condition) > 0) this.emit(condition)
    }
    this.arm()
    if (this.running) this.checkpoints.maybe()
  }

  /** One checkpoint; joins one that is running. Rejects when it could not be done: nothing is lost then. */
  checkpoint(): Promise<void> {
    this.assertOpen()
    return this.checkpoints.run()
  }

  /** Waits while memory is far over its bound and a checkpoint is making room. */
  get crowded(): boolean {
    return this.checkpoints.crowded
  }

  room(): Promise<void> {
    return this.checkpoints.room()
  }

  checkpointGuard(): void {
    this.assertMayWrite()
    if (this.phase !== 'open') throw closingError()
  }

  flush(): void {
    this.committer.flush()
    if (this.failure !== undefined) throw this.failure
  }

  assertOpen(): void {
    if (this.failure !== undefined) throw this.failure
    if (this.phase !== 'open') throw new HoldfastError('HOLDFAST_CLOSED', `${this.state.paths.root} is closed`)
  }

  private assertMayWrite(): void {
    if (this.failure !== undefined) throw this.failure
    try {
      this.lock.assertOwned()
    } catch (error) {
      this.fail(error as HoldfastError)
      throw error
    }
  }

  private lockLost(reason: string): void {
    const { root } = this.state.paths
    this.fail(new HoldfastError('HOLDFAST_LOCK_LOST', `the lock on ${root} was lost: ${reason}`, { path: root }))
  }

  /** A listener that throws must not stop a batch half way: its error surfaces as an uncaught one of its own. */
  override emit<K extends keyof StoreEvents>(name: K, ...values: StoreEvents[K]): boolean {
    try {
      return super.emit(name as string as 'idle', ...(values as []))
    } catch (error) {
      queueMicrotask(() => {
        throw error
      })
      return true
    }
  }

  warn(code: string, message: string): void {
    if (this.listenerCount('warning') > 0) this.emit('warning', { code, message })
    else this.early.push({ code, message })
  }

  get running(): boolean {
    return this.phase === 'open' && this.failure === undefined
  }

  get failed(): HoldfastError | undefined {
    return this.failure
  }

  /** Not one more byte from this process. Everything that waits is told why. */
  fail(error: HoldfastError): void {
    if (this.failure !== undefined || this.phase === 'closed') return
    this.failure = error
    this.gate.error = error
    this.committer.abandon(error)
    this.stopTimers()
    for (const lease of this.state.leases.values()) lease.abort(error)
    this.journal.close()
    this.state.handles.close()
    this.state.seen.stop()
    this.waiters.wake()
    this.warn('failed', error.message)
    // Released here, so that a re-open need not wait for someone to call close.
    this.lock.release().catch(() => {})
  }

  /** Descriptors and timers of a store that will not be used again. */
  private letGo(): void {
    this.phase = 'closed'
    this.stopTimers()
    this.journal.close()
    this.state.handles.close()
    this.state.seen.close()
  }

  private stopTimers(): void {
    this.cancelTimer?.()
    this.cancelSync?.()
    this.timerAt = Infinity
  }

  get closed(): boolean {
    return this.phase === 'closed' || this.failure !== undefined
  }

  /** Gives leases back, syncs, and lets the lock go. Rejects when the last sync failed. Idempotent. */
  close(): Promise<void> {
    this.closePromise ??= this.closeOnce()
    return this.closePromise
  }

  private async closeOnce(): Promise<void> {
    const { state } = this
    if (this.failure !== undefined) {
      this.phase = 'closed'
      state.seen.close()
      return
    }
    this.releaseAll()
    this.phase = 'closing'
    this.waiters.wake()
    this.stopTimers()
    try {
      await this.checkpoints.ended()
      if (this.failure !== undefined) throw this.failure
      await this.committer.settled()
      await this.journal.sync()
      // A frame behind the sync says that all before it was synced, and active.json how far that is.
      await this.committer.commit({ finishing: true, apply: () => {}, undo: () => {} }, (writer) => {
        const clocks = writeSlotClocks(writer, state, this.now())
        writer.u8(F.RECORD_CLOSE)
        return clocks + 1
      })
      this.journal.trim()
      await this.journal.sync()
      await this.noteClose()
    } finally {
      this.phase = 'closed'
      if (state.memoryOnly > 0) {
        this.warn('memory-only-lost', `${state.memoryOnly} jobs that cannot be written to disk end with this process`)
      }
      this.letGo()
      await this.lock.release()
      this.waiters.wake()
    }
  }

  private async noteClose(): Promise<void> {
    this.lock.assertOwned()
    const journal = { ...this.manifest.journal, last: this.journal.number, sequence: this.journal.sequence }
    try {
      await writeManifest(this.options.env.files, this.state.paths, { ...this.manifest, journal })
    } catch {
      // Only helps to notice a journal that was cut at a frame's edge later; nothing depends on it.
    }
  }

  private releaseAll(): void {
    const { state } = this
    const error = new HoldfastError('HOLDFAST_CLOSED', `${state.paths.root} is closing`)
    for (const lease of [...state.leases.values()]) {
      if (lease.state !== 'live') continue
      this.desk.settle(lease, { verb: 'release' }).catch(() => {})
      lease.abort(error)
    }
  }
}
