/**
 * Encodes new jobs into a batch and remembers what to do in memory once the batch is written, or to take back when it is
 * not. Fingerprints go into the seen-set at once, so that two adds of one turn meet each other.
 */
import type { ByteWriter } from '../bytes/byte-writer.js'
import { HoldfastError } from '../errors.js'
import { JOB_PAYLOAD_BYTES_MAX } from '../limits.js'
import { KIND_MEMORY, KIND_ORDINARY, KIND_START } from '../queue/bucket.js'
import { type Chunk, JobEntry } from '../queue/job-entry.js'
import { NO_JOB } from '../queue/job-table.js'
import { FINGERPRINT_BYTES, JOB_SEEN, JOB_START } from '../store/format.js'
import type { JobIdentity } from '../store/job-record.js'
import { writeAddHeader, writeAddLength } from '../store/records.js'
import type { StoreState } from './store-state.js'

/** What is the same for every kind of job. Its fingerprint is copied. */
export interface JobFields extends JobIdentity {
  priority: number
  start: boolean
  slotText: string
  slotStart: number
  slotEnd: number
  /** Wall ms; 0 or past: at once. */
  due: number
  fingerprint: Uint8Array | undefined
  /** Refuse it when it was seen. */
  checkSeen: boolean
  /** Record it as seen. */
  recordSeen: boolean
}

/** Value of a memory-only entry. */
export interface MemoryJob {
  readonly payload: unknown
  readonly fingerprint: Buffer | undefined
  readonly recordSeen: boolean
  readonly addedAt: number
}

const NO_KEYS = Buffer.alloc(0)

export class Adder {
  added = 0
  duplicates = 0
  memoryOnly = 0
  records = 0
  private readonly state: StoreState
  readonly writer: ByteWriter
  private readonly now: number
  private readonly addedAt: number
  /** Fingerprints of memory-only jobs that are not done, in hex. */
  private readonly volatileSeen: Set<string>
  /** Jobs to wait, in the order of their ids: nodes linked to each other, their lanes held until they are placed. */
  private firstNode = NO_JOB
  private lastNode = NO_JOB
  private nodeCount = 0
  /** Jobs with a due time. Offsets, here and in the nodes, are relative to the region until it is written. */
  private delayed: JobEntry[] | undefined
  private memoryJobs: JobEntry[] | undefined
  private newKeys = NO_KEYS
  private newKeyCount = 0
  private recordBegin = 0
  private recordStart = 0
  private beganNew = false
  private id = 0
  private lane = 0
  private due = 0

  constructor(state: StoreState, writer: ByteWriter, volatileSeen: Set<string>, now: number) {
    this.state = state
    this.writer = writer
    this.volatileSeen = volatileSeen
    this.now = now
    this.addedAt = Math.floor(now)
  }

  /** One that whoever adds knows to be a duplicate. */
  skipDuplicate(): void {
    this.duplicates++
  }

  /**
   * Begins a job. False: it is a duplicate, and that was all. True: the payload goes into the writer, then `end`.
   */
  begin(job: JobFields): boolean {
    const { state, writer } = this
    let flags = job.start ? JOB_START : 0
    if (job.fingerprint !== undefined) {
      const isNew = job.recordSeen ? this.see(job.fingerprint) : undefined
      if (job.checkSeen && (isNew === false || (isNew === undefined && this.isSeen(job.fingerprint)))) {
        this.duplicates++
        return false
      }
      if (job.checkSeen && this.volatileSeen.size > 0 && this.volatileSeen.has(hex(job.fingerprint))) {
        if (isNew === true) this.unseeLast(job.fingerprint)
        this.duplicates++
        return false
      }
      if (isNew === true) flags |= JOB_SEEN
    }
    this.beganNew = (flags & JOB_SEEN) !== 0
    this.recordBegin = writer.length
    this.due = job.due > this.now ? Math.ceil(job.due) : 0
    const id = state.nextId++
    this.id = id
    const bucket = state.bucket(job.priority, job.start ? KIND_START : KIND_ORDINARY)
    this.lane = state.ready.laneOf(bucket, state.ready.slots.of(job.slotText, job.slotStart, job.slotEnd))
    this.recordStart = writeAddHeader(writer, this.due, flags, id, this.addedAt, job)
    return true
  }

  /** Takes `begin` back: the payload cannot be written. */
  cancel(): void {
    const { writer, state } = this
    writer.rewind(this.recordBegin)
    if (this.beganNew) {
      this.newKeyCount--
      state.seenRemovals++
      state.seen.undoAdd(this.newKeys, this.newKeyCount * FINGERPRINT_BYTES)
    }
  }

  end(): void {
    const { writer } = this
    const length = writer.length - this.recordStart
    if (length > JOB_PAYLOAD_BYTES_MAX) {
      throw new HoldfastError(
        'HOLDFAST_TOO_LARGE',
        `a job of ${length} bytes is over the limit of ${JOB_PAYLOAD_BYTES_MAX}`,
      )
    }
    writeAddLength(writer, this.recordStart, length)
    this.state.ready.lanes.hold(this.lane)
    if (this.due === 0) this.addNode(writer.length)
    else this.addDelayed(writer.length)
    this.added++
    this.records++
  }

  private addNode(end: number): void {
    const { jobs } = this.state
    const node = jobs.add(this.id, this.lane, this.recordStart, end)
    if (this.nodeCount === 0) this.firstNode = node
    else jobs.setNext(this.lastNode, node)
    this.lastNode = node
    this.nodeCount++
  }

  private addDelayed(end: number): void {
    const bucket = this.state.ready.lanes.bucket(this.lane)
    const entry = new JobEntry(this.id, bucket, this.lane, undefined, this.recordStart, end)
    entry.due = this.due
    this.delayed ??= []
    this.delayed.push(entry)
  }

  /** A job that cannot be written: served from memory, its fingerprint made durable only when it is done. */
  addInMemory(job: JobFields, payload: unknown): void {
    const { state } = this
    const fingerprint = job.fingerprint === undefined ? undefined : Buffer.from(job.fingerprint)
    if (fingerprint !== undefined && job.checkSeen) {
      if (this.isSeen(fingerprint) || this.volatileSeen.has(hex(fingerprint))) {
        this.duplicates++
        return
      }
    }
    const bucket = state.bucket(job.priority, KIND_MEMORY)
    const lane = state.ready.laneOf(bucket, state.ready.slots.of(job.slotText, job.slotStart, job.slotEnd))
    const entry = new JobEntry(state.nextId++, bucket, lane, undefined, 0, 0)
    state.ready.lanes.hold(lane)
    entry.due = job.due > this.now ? Math.ceil(job.due) : 0
    const value: MemoryJob = { payload, fingerprint, recordSeen: job.recordSeen, addedAt: this.addedAt }
    entry.value = value
    if (fingerprint !== undefined && job.recordSeen) this.volatileSeen.add(hex(fingerprint))
    this.memoryJobs ??= []
    this.memoryJobs.push(entry)
    this.added++
    this.memoryOnly++
  }

  private isSeen(fingerprint: Uint8Array): boolean {
    return this.state.seen.has(fingerprint, 0)
  }

  /** True when the fingerprint was new; it is then remembered for `undo`. */
  private see(fingerprint: Uint8Array): boolean {
    if (!this.state.seen.add(fingerprint, 0)) return false
    const at = this.newKeyCount * FINGERPRINT_BYTES
    if (at === this.newKeys.length) {
      const next = Buffer.allocUnsafe(Math.max(FINGERPRINT_BYTES, at * 4))
      this.newKeys.copy(next)
      this.newKeys = next
    }
    this.newKeys.set(fingerprint.subarray(0, FINGERPRINT_BYTES), at)
    this.newKeyCount++
    return true
  }

  private unseeLast(fingerprint: Uint8Array): void {
    this.state.seenRemovals++
    this.state.seen.undoAdd(fingerprint, 0)
    this.newKeyCount--
  }

  apply(chunk: Chunk, base: number): void {
    const { state, nodeCount } = this
    const { jobs, ready } = state
    if (this.added > 0 && state.oldestInMemory === Infinity) state.oldestInMemory = this.now
    let node = this.firstNode
    for (let i = 0; i < nodeCount; i++) {
      const next = jobs.next(node)
      const lane = jobs.laneOfNew(node)
      jobs.setNext(node, NO_JOB)
      jobs.settle(node, chunk, base)
      ready.push(lane, node)
      ready.lanes.letGo(lane)
      node = next
    }
    if (this.delayed !== undefined) {
      for (const entry of this.delayed) {
        entry.chunk = chunk
        entry.start += base
        entry.end += base
        this.place(entry)
      }
    }
    if (this.memoryJobs !== undefined) {
      for (const entry of this.memoryJobs) {
        state.memoryOnly++
        this.place(entry)
      }
    }
    state.counters.added += this.added
    state.counters.duplicates += this.duplicates
  }

  private place(entry: JobEntry): void {
    const { state } = this
    state.retain(entry)
    state.ready.lanes.letGo(entry.lane)
    if (entry.due > 0) state.delayed.push(entry)
    else state.ready.giveBack(entry)
  }

  undo(): void {
    const { state } = this
    const { lanes } = state.ready
    state.seenRemovals++
    for (let i = this.newKeyCount - 1; i >= 0; i--) state.seen.undoAdd(this.newKeys, i * FINGERPRINT_BYTES)
    this.newKeyCount = 0
    for (let i = 0, node = this.firstNode; i < this.nodeCount; i++) {
      const next = state.jobs.next(node)
      lanes.letGo(state.jobs.laneOfNew(node))
      state.jobs.forget(node)
      node = next
    }
    this.nodeCount = 0
    for (const entry of this.delayed ?? []) lanes.letGo(entry.lane)
    for (const entry of this.memoryJobs ?? []) {
      lanes.letGo(entry.lane)
      const { fingerprint } = entry.value as MemoryJob
      if (fingerprint !== undefined) this.volatileSeen.delete(hex(fingerprint))
    }
    this.delayed = undefined
    this.memoryJobs = undefined
  }
}

export function hex(fingerprint: Uint8Array): string {
  return Buffer.from(fingerprint.buffer, fingerprint.byteOffset, FINGERPRINT_BYTES).toString('hex')
}
