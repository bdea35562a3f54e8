/**
 * The store while it is open: hands jobs out under leases, takes their ends back, keeps the journal in step, and starts
 * checkpoints. Everything here runs to completion between two turns of the event loop; only syncs and checkpoints
 * span turns. Queue and frontier are thin faces over it.
 */
import { EventEmitter } from 'node:events'
import type { ByteWriter } from '../bytes/byte-writer.js'
import type { DirectoryLock } from '../env/lock.js'
import { HoldfastError, ioError } from '../errors.js'
import { STATE_BYTES_MAX, TAKE_MARK_MS } from '../limits.js'
import type { Chunk, JobEntry } from '../queue/job-entry.js'
import type { LeaseEntry } from '../queue/lease-table.js'
import type { Slot } from '../queue/slot.js'
import { jobPaths } from '../store/file-names.js'
import * as F from '../store/format.js'
import type { JournalWriter } from '../store/journal-writer.js'
import { type Manifest, writeManifest } from '../store/manifest.js'
import { writeById } from '../store/records.js'
import { Adder, hex, type MemoryJob } from './adder.js'
import { type CheckpointContext, closingError, runCheckpoint } from './checkpoint.js'
import { decodeValue, encodeValue } from './codec.js'
import { Committer, type Operation } from './committer.js'
import type { EngineOptions } from './engine-options.js'
import type { Recovery, StoreEvents } from './events.js'
import { unserializableField } from './payload-check.js'
import { createJob, findManifest, loadState, repairTail } from './recovery.js'
import { Reserve } from './reserve.js'
import { StoreState } from './store-state.js'
import { nextThinSegment, takeForward } from './thin-segments.js'

const KEEP_ALIVE_MS = 2 ** 31 - 1

/** How a lease ends. */
export type Ending =
  | { readonly verb: 'ack' }
  | { readonly verb: 'retry'; readonly delayMs: number; readonly reason: string; readonly counted: boolean }
  | { readonly verb: 'bury'; readonly reason: string }
  | { readonly verb: 'release' }

export class Engine extends EventEmitter<StoreEvents> implements CheckpointContext {
  readonly state: StoreState
  readonly options: EngineOptions
  readonly journal: JournalWriter
  readonly recovery: Recovery
  manifest: Manifest
  private readonly committer: Committer
  private readonly reserve: Reserve
  private readonly lock: DirectoryLock
  private readonly wallOffset: number
  private readonly volatileSeen = new Set<string>()
  /** Leases whose hand-out is not on disk. */
  private unmarked: LeaseEntry[] = []
  private markScheduled = false
  private durableDuplicates: number
  private failure: HoldfastError | undefined
  private phase: 'open' | 'closing' | 'closed' = 'open'
  private closePromise: Promise<void> | undefined
  private checkpointRun: Promise<void> | undefined
  /** After a failed checkpoint: not tried again before the journal or the memory has grown by as much again. */
  private checkpointFloor = 0
  private waiters: (() => void)[] = []
  private keepAlive: (() => void) | undefined
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
      const state = await Engine.load(root, options)
      const engine = new Engine(options, lock, state)
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

  private static async load(root: string, options: EngineOptions) {
    const { env } = options
    const build = (lifo: boolean): StoreState =>
      new StoreState({
        env,
        paths: jobPaths(root),
        kind: options.kind,
        lifo,
        limitsOf: options.limitsOf,
        maxAttempts: options.maxAttempts,
      })
    const probe = build(options.order === 'lifo')
    const found = findManifest(probe)
    if (found !== undefined && options.order !== undefined && found.order !== options.order) {
      throw new HoldfastError(
        'HOLDFAST_MISMATCH',
        `${root} was made with order '${found.order}', this open asks for '${options.order}'`,
        { path: root },
      )
    }
    const manifest = found ?? (await createJob(probe))
    const state = build(manifest.order === 'lifo')
    try {
      const loaded = loadState(state, manifest)
      const journal = repairTail(state, loaded)
      return { state, journal, created: found === undefined, ...loaded }
    } catch (error) {
      state.handles.close()
      state.seen?.close()
      throw error
    }
  }

  private constructor(options: EngineOptions, lock: DirectoryLock, from: Awaited<ReturnType<typeof Engine.load>>) {
    super()
    const { state } = from
    this.options = options
    this.state = state
    this.lock = lock
    this.journal = from.journal
    this.manifest = from.manifest
    this.journal.olderBytes = from.scan.bytes - from.scan.position
    this.wallOffset = options.env.clock.now() - options.env.clock.monotonic()
    state.epoch++
    this.reserve = new Reserve(options.env.files, state.paths.reserve, options.tuning.reserveBytes)
    this.durableDuplicates = state.counters.duplicates
    this.committer = new Committer({
      journal: this.journal,
      power: options.power,
      clock: options.env.clock,
      reserve: this.reserve,
      epoch: state.epoch,
      hooks: {
        beforeWrite: () => this.assertMayWrite(),
        ride: (writer) => this.ride(writer),
        rideWritten: () => this.rideWritten(),
        applied: () => this.afterApply(),
        failed: (error) => this.fail(error),
        warn: (code, message) => this.warn(code, message),
        newChunk: (buffer) => ({ buffer, bytes: buffer.length, live: 0 }),
      },
    })
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
        if (job.attempt >= state.maxAttempts) this.makeDead(job, giveUp(job))
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
          this.writeBury(writer, job, giveUp(job))
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
      this.warn('disk-full', 'the disk is full: this opening could not be noted')
    }
    if (this.recovery.tornBytes > 0) {
      this.warn('torn-tail', `${this.recovery.tornBytes} bytes of an unfinished write were cut off the journal`)
    }
    this.armBackgroundSync()
    this.tidyQuietly()
    this.condition = this.currentCondition()
    this.arm()
  }

  // ---- time

  /** Wall time that neither jumps nor goes back while the store is open. */
  now(): number {
    return this.wallOffset + this.options.env.clock.monotonic()
  }

  private armBackgroundSync(): void {
    if (this.options.power || this.phase !== 'open') return
    this.cancelSync = this.options.env.clock.after(this.options.syncEveryMs, () => {
      if (this.phase !== 'open' || this.failure !== undefined) return
      this.committer.backgroundSync()
      this.armBackgroundSync()
    })
  }

  /** Wakes up when the next lease ends, delayed job is due, or slot may be served again. */
  private arm(): void {
    if (this.phase !== 'open' || this.failure !== undefined) return
    const { state } = this
    const monotonic = this.options.env.clock.monotonic()
    const wall = Math.min(state.delayed.nextDue, this.waiters.length > 0 ? state.ready.nextEligibleAt : Infinity)
    const at = Math.min(state.leases.nextDeadline, wall - this.wallOffset)
    if (at >= this.timerAt || at === Infinity) return
    this.cancelTimer?.()
    this.timerAt = at
    this.cancelTimer = this.options.env.clock.after(Math.max(0, Math.ceil(at - monotonic)), () => {
      this.timerAt = Infinity
      this.cancelTimer = undefined
      if (this.phase !== 'open' || this.failure !== undefined) return
      if (!this.tidyQuietly()) return
      this.notify()
      this.arm()
    })
  }

  /** False: a slice of delayed jobs cannot be read. The next take meets the same error and tells its caller. */
  private tidyQuietly(): boolean {
    try {
      this.housekeep()
      return true
    } catch (error) {
      this.warn('read-failed', (error as Error).message)
      return false
    }
  }

  /** Ends leases that ran out and brings due jobs to the ready ones. */
  private housekeep(): void {
    const { state } = this
    const monotonic = this.options.env.clock.monotonic()
    for (;;) {
      const lease = state.leases.due(monotonic)
      if (lease === undefined) break
      this.expire(lease)
    }
    const now = this.now()
    state.ready.tick(now)
    state.delayed.takeDue(now, (job) => state.enqueue(job, F.CARRY_READY))
  }

  // ---- adding

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
      adder = new Adder(this.state, writer, this.volatileSeen, this.now())
      encode(adder)
      return adder.records
    })
    return done.then(() => adder as Adder)
  }

  /** Waits while memory is far over its bound and a checkpoint is making room. */
  async room(): Promise<void> {
    while (this.checkpointRun !== undefined && this.state.memoryBytes > 2 * this.options.memoryBytes) {
      await this.checkpointRun
    }
  }

  // ---- leases

  /** Up to `max` jobs that may be worked on now. */
  take(max: number): LeaseEntry[] {
    this.assertOpen()
    this.housekeep()
    const { state } = this
    const now = this.now()
    const deadline = this.options.env.clock.monotonic() + this.options.leaseMs
    const leases: LeaseEntry[] = []
    while (leases.length < max) {
      let job: JobEntry | undefined
      try {
        job = state.ready.take(now, state.loadForLane)
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
      this.arm()
    }
    return leases
  }

  private scheduleMarks(): void {
    if (this.markScheduled || this.unmarked.length === 0) return
    this.markScheduled = true
    this.options.env.clock.after(TAKE_MARK_MS, () => {
      this.markScheduled = false
      if (this.phase !== 'open' || this.failure !== undefined) return
      if (this.unmarked.some((lease) => lease.state === 'live')) this.committer.flush(true)
      else this.unmarked = []
    })
  }

  private ride(writer: ByteWriter): number {
    let records = 0
    for (const lease of this.unmarked) {
      // An ending in this very batch says the attempt itself.
      if (lease.state !== 'live') continue
      this.writeById(writer, F.RECORD_TAKE, lease.job)
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

  private rideWritten(): void {
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
    this.assertOpen()
    this.assertLive(lease)
    const { state } = this
    const { job } = lease
    const ended = this.effective(job, ending)
    const due = ended.verb === 'retry' && ended.delayMs > 0 ? Math.ceil(this.now() + ended.delayMs) : 0
    let adder: Adder | undefined
    let setValues = (): void => {}
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
        if (lease.state === 'settling') lease.state = 'live'
        if (!lease.marked && !this.unmarked.includes(lease)) this.unmarked.push(lease)
      },
    }
    const done = this.committer.commit(operation, (writer) => {
      let records = this.writeEnding(writer, job, ended, due)
      if (values !== undefined) {
        const written = this.writeValues(writer, values)
        records += written.records
        setValues = written.apply
      }
      adder = new Adder(state, writer, this.volatileSeen, this.now())
      encode?.(adder)
      operation.dependsOnBatch = adder.duplicates > 0
      return records + adder.records
    })
    return done.then(() => adder as Adder)
  }

  /** Out of attempts: what would come back goes to the dead letters instead. */
  private effective(job: JobEntry, ending: Ending): Ending {
    if (ending.verb !== 'retry' || job.attempt < this.state.maxAttempts) return ending
    const why = ending.reason === '' ? '' : `: ${ending.reason}`
    return { verb: 'bury', reason: `gave up after ${job.attempt} attempts${why}` }
  }

  private writeEnding(writer: ByteWriter, job: JobEntry, ending: Ending, due: number): number {
    if (job.memoryOnly) {
      const { fingerprint, recordSeen } = job.value as MemoryJob
      if (ending.verb !== 'ack' || fingerprint === undefined || !recordSeen) return 0
      // Only now is it seen for ever: had the process died before, it would be found again.
      writer.u8(F.RECORD_SEEN)
      writer.bytes(fingerprint)
      return 1
    }
    if (ending.verb === 'ack') this.writeById(writer, F.RECORD_ACK, job)
    else if (ending.verb === 'bury') this.writeBury(writer, job, ending.reason)
    else if (ending.verb === 'release') this.writeRelease(writer, job, job.attempt - 1, false)
    else {
      this.writeById(writer, F.RECORD_RETRY, job)
      writer.varint(job.attempt)
      writer.varint(job.failures + (ending.counted ? 1 : 0))
      writer.varint(due)
      writer.string(ending.reason)
    }
    return 1
  }

  private applyEnding(lease: LeaseEntry, ending: Ending, due: number): void {
    const { state } = this
    const { job } = lease
    const { slot } = job.lane
    state.leases.end(lease)
    switch (ending.verb) {
      case 'ack':
        this.forgetJob(job)
        state.counters.acked++
        if (this.listenerCount('acked') > 0) this.emit('acked', job.id)
        break
      case 'retry':
        if (ending.counted) job.failures++
        job.reason = ending.reason
        this.comeBack(job, due)
        state.counters.retried++
        if (this.listenerCount('retry') > 0) this.emit('retry', job.id, ending.delayMs, ending.reason || undefined)
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

  private makeDead(job: JobEntry, reason: string): void {
    this.state.own(job)
    job.reason = reason
    job.due = Math.floor(this.now())
    this.state.enqueue(job, F.CARRY_DEAD)
    this.state.counters.buried++
    if (this.listenerCount('dead') > 0) this.emit('dead', job.id, reason)
  }

  private forgetJob(job: JobEntry): void {
    this.state.drop(job)
    if (!job.memoryOnly) return
    this.state.memoryOnly--
    const { fingerprint, recordSeen } = job.value as MemoryJob
    if (fingerprint === undefined || !recordSeen) return
    this.volatileSeen.delete(hex(fingerprint))
    this.state.seen.insertNew(fingerprint, 0)
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
        const { slot } = job.lane
        state.leases.end(lease)
        state.counters.expired++
        if (spent) this.makeDead(job, reason)
        else this.comeBack(job, 0)
        state.ready.leaseEnded(slot)
        if (this.listenerCount('expired') > 0) this.emit('expired', job.id)
      },
      undo: () => {
        lease.state = 'live'
        state.leases.extend(lease, this.options.env.clock.monotonic() + 1000)
      },
    }
    this.committer
      .commit(operation, (writer) => {
        if (job.memoryOnly) return 0
        this.writeRelease(writer, job, job.attempt, true)
        if (!spent) return 1
        this.writeBury(writer, job, reason)
        return 2
      })
      .catch((error) => this.warn('expiry-failed', (error as Error).message))
    lease.abort(staleError(lease, this.state.epoch, 'ran out'))
    this.committer.flush()
  }

  extend(lease: LeaseEntry, leaseMs: number): void {
    this.assertOpen()
    this.assertLive(lease)
    this.state.leases.extend(lease, this.options.env.clock.monotonic() + leaseMs)
    this.arm()
  }

  /** Wall ms at which the lease ends. */
  deadlineOf(lease: LeaseEntry): number {
    return this.wallOffset + lease.deadline
  }

  private assertLive(lease: LeaseEntry): void {
    if (lease.state === 'live' && lease.deadline <= this.options.env.clock.monotonic()) this.expire(lease)
    if (lease.state !== 'live') {
      throw staleError(lease, this.state.epoch, lease.state === 'settling' ? 'is being settled already' : 'is over')
    }
  }

  // ---- records

  private writeById(writer: ByteWriter, type: number, job: JobEntry): void {
    const home = this.state.homeOf(job)
    writeById(writer, type, job.id, home?.id ?? 0, job.ordinal)
  }

  private writeBury(writer: ByteWriter, job: JobEntry, reason: string): void {
    this.writeById(writer, F.RECORD_BURY, job)
    writer.varint(job.attempt)
    writer.varint(job.failures)
    writer.string(reason)
  }

  private writeRelease(writer: ByteWriter, job: JobEntry, attempt: number, expired: boolean): void {
    this.writeById(writer, F.RECORD_RELEASE, job)
    writer.varint(attempt)
    writer.u8(expired ? 1 : 0)
  }

  private writeValues(writer: ByteWriter, values: Record<string, unknown>): { records: number; apply: () => void } {
    const { state } = this
    const changes: [string, Buffer | undefined][] = []
    let bytes = state.valueBytes
    for (const [key, value] of Object.entries(values)) {
      const encoded = value === undefined ? undefined : this.encodeChecked(value, `state.${key}`)
      bytes += encoded === undefined ? 0 : key.length + encoded.length
      bytes -= state.values.has(key) ? key.length + (state.values.get(key) as Buffer).length : 0
      changes.push([key, encoded])
      writer.u8(encoded === undefined ? F.RECORD_UNSET : F.RECORD_SET)
      writer.string(key)
      if (encoded === undefined) continue
      writer.varint(encoded.length)
      writer.bytes(encoded)
    }
    if (bytes > STATE_BYTES_MAX) {
      throw new HoldfastError(
        'HOLDFAST_TOO_LARGE',
        `the state would be ${bytes} bytes, the limit is ${STATE_BYTES_MAX}`,
      )
    }
    return {
      records: changes.length,
      apply: () => {
        for (const [key, value] of changes) state.setValue(key, value)
      },
    }
  }

  private encodeChecked(value: unknown, path: string): Buffer {
    const field = unserializableField(value, path)
    if (field !== undefined) {
      throw new HoldfastError('HOLDFAST_UNSERIALIZABLE', `${field} cannot be written to disk`, { field })
    }
    return Buffer.from(encodeValue(value))
  }

  // ---- key/values, slots, dead letters, seen-set

  value(key: string): unknown {
    const encoded = this.state.values.get(key)
    return encoded === undefined ? undefined : decodeValue(encoded)
  }

  setValues(values: Record<string, unknown>): Promise<void> {
    this.assertOpen()
    let apply = (): void => {}
    return this.committer.commit({ finishing: true, apply: () => apply(), undo: () => {} }, (writer) => {
      const written = this.writeValues(writer, values)
      apply = written.apply
      return written.records
    })
  }

  pauseSlot(name: string, untilMs: number): Promise<void> {
    this.assertOpen()
    const apply = (): void => {
      const slot: Slot = this.state.ready.slot(name)
      this.state.ready.setClock(slot, untilMs)
      if (this.listenerCount('slot-paused') > 0) this.emit('slot-paused', name, untilMs)
    }
    return this.committer.commit({ finishing: true, apply, undo: () => {} }, (writer) => {
      writer.u8(F.RECORD_SLOT)
      writer.string(name)
      writer.varint(Math.max(0, Math.ceil(untilMs)))
      return 1
    })
  }

  /** Brings dead letters back (`requeue`) or ends them (`drop`). Resolves with how many. */
  async fromDead(verb: 'requeue' | 'drop', wanted: (id: number) => boolean): Promise<number> {
    this.assertOpen()
    const { state } = this
    const jobs = state.dead.take(wanted)
    if (jobs.length === 0) return 0
    const operation: Operation = {
      finishing: true,
      apply: () => {
        for (const job of jobs) {
          if (verb === 'drop') {
            this.forgetJob(job)
            continue
          }
          job.attempt = 0
          job.failures = 0
          job.reason = ''
          state.enqueue(job, F.CARRY_READY)
          state.counters.requeued++
        }
      },
      undo: () => {
        for (const job of jobs) state.dead.put(job)
      },
    }
    await this.committer.commit(operation, (writer) => {
      const type = verb === 'requeue' ? F.RECORD_REQUEUE : F.RECORD_DROP
      let records = 0
      for (const job of jobs) {
        if (job.memoryOnly) continue
        this.writeById(writer, type, job)
        records++
      }
      return records
    })
    return jobs.length
  }

  /** Takes a fingerprint out of the seen-set. False: it was not in it. */
  async forget(fingerprint: Uint8Array): Promise<boolean> {
    this.assertOpen()
    const { state } = this
    if (!state.seen.has(fingerprint, 0)) return false
    const key = Buffer.from(fingerprint.subarray(0, F.FINGERPRINT_BYTES))
    await this.committer.commit(
      { finishing: false, apply: () => void state.seen.forget(key, 0), undo: () => {} },
      (writer) => {
        writer.u8(F.RECORD_FORGET)
        writer.bytes(key)
        return 1
      },
    )
    return true
  }

  // ---- waiting

  /** Nothing ready, delayed or leased. */
  get finished(): boolean {
    const { state } = this
    return state.ready.count === 0 && state.leases.size === 0 && state.delayed.count === 0
  }

  /** Resolves when something may have changed for a taker: jobs came, a lease ended, a clock ran out, the store closed. */
  change(): Promise<void> {
    const promise = new Promise<void>((resolve) => this.waiters.push(resolve))
    // Whoever waits wants the process to live on, whatever else there is to do.
    this.keepAlive ??= this.options.env.clock.after(KEEP_ALIVE_MS, () => {}, true)
    this.arm()
    return promise
  }

  private notify(): void {
    const { waiters } = this
    this.waiters = []
    this.keepAlive?.()
    this.keepAlive = undefined
    for (const wake of waiters) wake()
  }

  private currentCondition(): 'busy' | 'idle' | 'finished' {
    return this.state.ready.count > 0 ? 'busy' : this.finished ? 'finished' : 'idle'
  }

  private afterApply(): void {
    if (this.waiters.length > 0) this.notify()
    const condition = this.currentCondition()
    if (condition !== this.condition) {
      this.condition = condition
      if (condition !== 'busy' && this.listenerCount(condition) > 0) this.emit(condition)
    }
    this.arm()
    this.maybeCheckpoint()
  }

  // ---- checkpoints

  private maybeCheckpoint(): void {
    const { options, state } = this
    if (this.checkpointRun !== undefined || this.phase !== 'open' || this.failure !== undefined) return
    const { tuning } = options
    const due =
      this.journal.bytes > tuning.journalBytes + this.checkpointFloor ||
      state.memoryBytes > options.memoryBytes + this.checkpointFloor ||
      state.seen.tableCount > tuning.seenTableKeys
    if (due) this.checkpoint().catch(() => {})
  }

  /** One checkpoint; joins one that is running. Rejects when it could not be done: nothing is lost then. */
  checkpoint(): Promise<void> {
    this.assertOpen()
    this.checkpointRun ??= this.checkpointOnce().finally(() => {
      this.checkpointRun = undefined
    })
    return this.checkpointRun
  }

  private async checkpointOnce(): Promise<void> {
    const begun = this.options.env.clock.monotonic()
    try {
      await this.moveThinForward()
      const segments = await runCheckpoint(this)
      this.checkpointFloor = 0
      this.reserve.hold()
      const durationMs = this.options.env.clock.monotonic() - begun
      if (this.listenerCount('checkpoint') > 0) {
        this.emit('checkpoint', { generation: this.state.generation, segments, durationMs })
      }
    } catch (error) {
      if (this.journal.failed !== undefined) this.fail(this.journal.failed)
      if (this.phase === 'open' && this.failure === undefined) {
        this.checkpointFloor += Math.min(this.options.tuning.journalBytes, this.options.memoryBytes)
        this.warn('checkpoint-failed', (error as Error).message)
      }
      throw error
    }
  }

  /** The last jobs of thin segments move into the journal, so that their files can go. */
  private async moveThinForward(): Promise<void> {
    for (;;) {
      this.checkpointGuard()
      const segment = nextThinSegment(this.state, this.options)
      if (segment === undefined) return
      while (segment.live > 0) {
        this.checkpointGuard()
        await takeForward(this.state, segment, (operation, encode) => this.committer.commit(operation, encode))
        await this.options.env.clock.yield()
      }
    }
  }

  checkpointGuard(): void {
    if (this.failure !== undefined) throw this.failure
    if (this.phase !== 'open') throw closingError()
  }

  flush(): void {
    this.committer.flush()
    if (this.failure !== undefined) throw this.failure
  }

  // ---- the end

  private assertOpen(): void {
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

  warn(code: string, message: string): void {
    if (this.listenerCount('warning') > 0) this.emit('warning', { code, message })
  }

  get failed(): HoldfastError | undefined {
    return this.failure
  }

  /** Not one more byte from this process. Everything that waits is told why. */
  fail(error: HoldfastError): void {
    if (this.failure !== undefined || this.phase === 'closed') return
    this.failure = error
    this.committer.abandon(error)
    this.stopTimers()
    for (const lease of this.state.leases.values()) lease.abort(error)
    this.journal.close()
    this.state.handles.close()
    this.notify()
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
    this.notify()
    this.stopTimers()
    try {
      await this.checkpointRun?.catch(() => {})
      if (this.failure !== undefined) throw this.failure
      await this.committer.settled()
      await this.journal.sync()
      // A frame behind the sync says that all before it was synced, and active.json how far that is.
      await this.committer.commit({ finishing: true, apply: () => {}, undo: () => {} }, (writer) => {
        writer.u8(F.RECORD_CLOSE)
        return 1
      })
      await this.journal.sync()
      await this.noteClose()
    } finally {
      this.phase = 'closed'
      if (state.memoryOnly > 0) {
        this.warn('memory-only-lost', `${state.memoryOnly} jobs that cannot be written to disk end with this process`)
      }
      this.letGo()
      await this.lock.release()
      this.notify()
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
      this.settle(lease, { verb: 'release' }).catch(() => {})
      lease.abort(error)
    }
  }
}

function staleError(lease: LeaseEntry, epoch: number, why: string): HoldfastError {
  return new HoldfastError('HOLDFAST_STALE_LEASE', `lease ${epoch}.${lease.number} of job ${lease.job.id} ${why}`)
}
