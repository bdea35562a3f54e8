/**
 * Everything that is known of one job directory while it is open. Recovery fills it, the engine changes it in step with
 * the journal, a checkpoint moves it to segments. Invariant: a job entry in memory that has a home is marked consumed
 * there, except while the running checkpoint is giving it that home.
 */
import type { Env } from '../env/env.js'
import {
  MAX_ATTEMPTS_DEFAULT,
  OPEN_FILES_MAX,
  READ_AHEAD_BYTES,
  READ_AHEAD_TOTAL_BYTES,
  SEEN_MEMORY_BYTES_DEFAULT,
} from '../limits.js'
import { ReadyQueue } from '../priority/ready-queue.js'
import { Bucket, KIND_MEMORY, KIND_ORDINARY, KIND_START } from '../queue/bucket.js'
import { type Chunk, JobEntry, newChunk } from '../queue/job-entry.js'
import { JobTable } from '../queue/job-table.js'
import type { LaneReader } from '../queue/lane-table.js'
import { LeaseTable } from '../queue/lease-table.js'
import type { SlotLimits } from '../queue/slot-table.js'
import type { SeenSet } from '../seen/seen-set.js'
import { FileCache } from '../store/file-cache.js'
import { bucketDirectory, bucketName, DEAD_BUCKET, DELAYED_BUCKET, type JobPaths } from '../store/file-names.js'
import { CARRY_DEAD, CARRY_DELAYED, CARRY_READY, corrupt, JOB_START } from '../store/format.js'
import { emptyJobHeader, type JobHeader, readAddedAt, readJobHeader } from '../store/job-record.js'
import { type CounterValues, type StoreKind, zeroCounters } from '../store/manifest.js'
import { BlockCache, type RecordSpan, type Segment, type SegmentRecord } from '../store/segment.js'
import { SegmentSet } from '../store/segment-set.js'
import { DeadLetters } from './dead-letters.js'
import { DelayedJobs } from './delayed-jobs.js'

export interface StateOptions {
  readonly env: Env
  readonly paths: JobPaths
  readonly kind: StoreKind
  readonly lifo: boolean
  readonly limitsOf: (slot: string) => SlotLimits
  readonly maxAttempts?: number
  readonly seenMemoryBytes?: number
}

export class StoreState implements LaneReader {
  readonly env: Env
  readonly paths: JobPaths
  readonly kind: StoreKind
  readonly lifo: boolean
  readonly maxAttempts: number
  readonly seenMemoryBytes: number
  jobId: Buffer = Buffer.alloc(16)
  readonly handles: FileCache
  readonly blocks = new BlockCache()
  readonly buckets = new Map<string, Bucket>()
  /** The same by kind and priority: no name is made to find one. */
  private readonly byPriority = [KIND_MEMORY, KIND_ORDINARY, KIND_START].map(() => new Map<number, Bucket>())
  readonly jobs = new JobTable()
  readonly ready: ReadyQueue
  readonly leases = new LeaseTable()
  readonly delayed: DelayedJobs
  readonly dead: DeadLetters
  seen!: SeenSet
  /** Fingerprints that left the seen-set since it was opened: who remembers what was seen forgets it then. */
  seenRemovals = 0
  private readonly untold: [code: string, message: string][] = []
  warn = (code: string, message: string): void => void this.untold.push([code, message])
  /** The user's key/values, encoded. */
  readonly values = new Map<string, Buffer>()
  valueBytes = 0
  pendingValueBytes = 0
  counters: CounterValues = zeroCounters()
  nextId = 1
  nextSegmentId = 1
  generation = 0
  /** Highest generation any file names: never used again, committed or not. */
  highestGeneration = 0
  epoch = 0
  memoryOnly = 0
  /** Added-at of the oldest job that may still be in memory. */
  oldestInMemory = Infinity
  /** The same for what a running checkpoint has frozen. */
  oldestFrozen = Infinity
  /** Runs that read ahead, the one that did longest ago first. */
  private readonly ahead = new Map<number, RecordSpan>()
  private aheadBytes = 0
  private readonly header = emptyJobHeader()

  constructor(options: StateOptions) {
    this.env = options.env
    this.paths = options.paths
    this.kind = options.kind
    this.lifo = options.lifo
    this.maxAttempts = options.maxAttempts ?? MAX_ATTEMPTS_DEFAULT
    this.seenMemoryBytes = options.seenMemoryBytes ?? SEEN_MEMORY_BYTES_DEFAULT
    this.handles = new FileCache(options.env.files, OPEN_FILES_MAX)
    this.ready = new ReadyQueue(this.jobs, options.lifo, options.limitsOf, options.env.random.uint32())
    this.delayed = new DelayedJobs(this, this.segmentSet(DELAYED_BUCKET))
    this.dead = new DeadLetters(this, this.segmentSet(DEAD_BUCKET))
  }

  /** Where warnings go from here on; those there were while opening go now. */
  warnTo(warn: (code: string, message: string) => void): void {
    this.warn = warn
    for (const [code, message] of this.untold.splice(0)) warn(code, message)
  }

  segmentSet(name: string): SegmentSet {
    return new SegmentSet(name, bucketDirectory(this.paths, name), this.env.files, this.handles)
  }

  bucket(priority: number, kind: number): Bucket {
    const known = this.byPriority[kind]
    let bucket = known.get(priority)
    if (bucket === undefined) {
      const name = kind === KIND_MEMORY ? `memory ${priority}` : bucketName(priority, kind === KIND_START)
      bucket = new Bucket(name, priority, kind, kind === KIND_MEMORY ? undefined : this.segmentSet(name))
      this.ready.lanes.addBucket(bucket)
      this.buckets.set(name, bucket)
      known.set(priority, bucket)
    }
    return bucket
  }

  /** A bucket without lanes and files goes: priorities may be as many as there are moments. */
  pruneBuckets(): void {
    for (const [name, bucket] of this.buckets) {
      if (bucket.laneCount > 0 || bucket.store?.isEmpty === false) continue
      this.buckets.delete(name)
      this.byPriority[bucket.kind].delete(bucket.priority)
      this.ready.lanes.removeBucket(bucket)
    }
  }

  /** Jobs in memory and their bytes. */
  get memoryBytes(): number {
    return this.jobs.memoryBytes
  }

  /** Every set of segments: buckets, delayed, dead. */
  *segmentSets(): Generator<SegmentSet> {
    for (const bucket of this.buckets.values()) if (bucket.store !== undefined) yield bucket.store
    yield this.delayed.store
    yield this.dead.store
  }

  findSegment(id: number): Segment | undefined {
    for (const set of this.segmentSets()) {
      for (const segment of set.segments) if (segment.id === id) return segment
    }
    return undefined
  }

  /** An entry for the job record in `chunk.buffer[start, end)`, held; its lane follows from the record. */
  entryFrom(chunk: Chunk, start: number, end: number): JobEntry {
    return this.entryOf(chunk, start, end, this.laneOf(this.readHeaderOf(chunk, start, end), chunk.buffer))
  }

  /** The header of the job record in `chunk.buffer[start, end)`. Of use until the next is read. */
  readHeaderOf(chunk: Chunk, start: number, end: number): JobHeader {
    return readJobHeader(chunk.buffer, start, end, this.header)
  }

  /** Of a header that was read from `buffer`. */
  laneOf(header: JobHeader, buffer: Buffer): number {
    const bucket = this.bucket(header.priority, header.flags & JOB_START ? KIND_START : KIND_ORDINARY)
    return this.ready.laneOf(bucket, this.ready.slots.ofBytes(buffer, header.slotAt, header.slotEnd))
  }

  private entryOf(chunk: Chunk, start: number, end: number, lane: number): JobEntry {
    const { header } = this
    if (header.addedAt < this.oldestInMemory) this.oldestInMemory = header.addedAt
    const entry = new JobEntry(header.id, this.ready.lanes.bucket(lane), lane, chunk, start, end)
    this.retain(entry)
    return entry
  }

  /** Brings a job of a segment into memory. Marks nothing: the caller does. */
  load(segment: Segment, ordinal: number): JobEntry {
    const record = segment.read(ordinal)
    const header = this.readHeader(segment, ordinal, record)
    return this.entryOfRecord(segment, ordinal, record, this.laneOf(header, record.buffer))
  }

  /** `header` is that of the record. */
  private entryOfRecord(segment: Segment, ordinal: number, record: SegmentRecord, lane: number): JobEntry {
    const { buffer, start, end } = record
    const entry = this.entryOf(newChunk(buffer, end - start), start, end, lane)
    entry.attempt = record.attempt
    entry.failures = record.failures
    entry.due = record.due
    entry.reason = record.reason
    entry.home = segment
    entry.ordinal = ordinal
    return entry
  }

  /** Reads ahead where the lanes of a segment are served in turn; one that is read in order has its block at hand. */
  private record(run: number, segment: Segment, ordinal: number): SegmentRecord {
    const known = segment.fromSpan(this.ahead.get(run), ordinal) ?? segment.fromLastBlock(ordinal)
    if (known !== undefined) return known
    const { runs } = this.ready.lanes
    const span = segment.readAhead(ordinal, runs.first(run), runs.end(run), this.lifo, READ_AHEAD_BYTES)
    this.keepAhead(run, span)
    return segment.fromSpan(span, ordinal) as SegmentRecord
  }

  private keepAhead(run: number, span: RecordSpan): void {
    this.runEnded(run)
    this.ahead.set(run, span)
    this.aheadBytes += span.buffer.length
    for (const oldest of this.ahead.keys()) {
      if (this.aheadBytes <= READ_AHEAD_TOTAL_BYTES) return
      this.runEnded(oldest)
    }
  }

  /** LaneReader: what was read ahead for the run is of no use any more. */
  runEnded(run: number): void {
    const span = this.ahead.get(run)
    if (span === undefined) return
    this.aheadBytes -= span.buffer.length
    this.ahead.delete(run)
  }

  /** LaneReader. */
  recordId(run: number, ordinal: number): number {
    const segment = this.ready.lanes.runs.segment(run)
    const record = this.record(run, segment, ordinal)
    return this.readHeader(segment, ordinal, record).id
  }

  private readHeader(segment: Segment, ordinal: number, record: SegmentRecord): JobHeader {
    try {
      return readJobHeader(record.buffer, record.start, record.end, this.header)
    } catch (error) {
      throw corrupt(segment.path, `record ${ordinal}: ${(error as Error).message}`, undefined, error)
    }
  }

  /** LaneReader. */
  recordEntry(run: number, ordinal: number, lane: number): JobEntry {
    const segment = this.ready.lanes.runs.segment(run)
    return this.entryForLane(segment, ordinal, this.record(run, segment, ordinal), lane)
  }

  loadForLane(lane: number, segment: Segment, ordinal: number): JobEntry {
    return this.entryForLane(segment, ordinal, segment.read(ordinal), lane)
  }

  private entryForLane(segment: Segment, ordinal: number, record: SegmentRecord, lane: number): JobEntry {
    const header = this.readHeader(segment, ordinal, record)
    const { lanes, slots } = this.ready
    const bucket = lanes.bucket(lane)
    const isOfLane =
      header.priority === bucket.priority &&
      ((header.flags & JOB_START) !== 0) === (bucket.kind === KIND_START) &&
      slots.isNamed(lanes.slotOf(lane), record.buffer, header.slotAt, header.slotEnd)
    if (!isOfLane) throw corrupt(segment.path, `record ${ordinal} is of another lane than the footer says`)
    const entry = this.entryOfRecord(segment, ordinal, record, lane)
    entry.due = 0
    return entry
  }

  retain(entry: JobEntry): void {
    this.jobs.hold(entry.chunk)
    this.ready.lanes.hold(entry.lane)
  }

  /** The entry leaves memory. Its bytes stay readable for whoever still holds it. */
  drop(entry: JobEntry): void {
    this.jobs.letGo(entry.chunk)
    this.ready.lanes.letGo(entry.lane)
  }

  /** Gives the entry other bytes (the same content in another chunk). */
  move(entry: JobEntry, chunk: Chunk, start: number, end: number): void {
    this.jobs.letGo(entry.chunk)
    entry.chunk = chunk
    entry.start = start
    entry.end = end
    this.jobs.hold(chunk)
  }

  /** A job that stays in memory must not pin a whole block of a segment. */
  own(entry: JobEntry): void {
    const { chunk, start, end } = entry
    if (chunk === undefined || chunk.bytes !== end - start || chunk.buffer.length === chunk.bytes) return
    this.move(entry, newChunk(Buffer.from(chunk.buffer.subarray(start, end))), 0, end - start)
  }

  /** The home that counts: one in a segment whose checkpoint failed does not. */
  homeOf(entry: JobEntry): Segment | undefined {
    if (entry.home?.abandoned) entry.home = undefined
    return entry.home
  }

  /** undefined removes the key. */
  setValue(key: string, value: Buffer | undefined): void {
    const before = this.values.get(key)
    if (before !== undefined) this.valueBytes -= key.length + before.length
    if (value === undefined) this.values.delete(key)
    else {
      this.values.set(key, value)
      this.valueBytes += key.length + value.length
    }
  }

  /** Puts an entry that is in no queue where its state says. */
  enqueue(entry: JobEntry, state: number): void {
    entry.state = state
    if (state === CARRY_READY) {
      entry.due = 0
      const addedAt = addedAtOf(entry)
      if (addedAt < this.oldestInMemory) this.oldestInMemory = addedAt
      this.ready.giveBack(entry)
    } else if (state === CARRY_DELAYED) this.delayed.push(entry)
    else if (state === CARRY_DEAD) this.dead.put(entry)
  }

  /** Wall ms of the oldest ready job that can be told cheaply: an upper bound of its age. */
  oldestReadyAt(): number | null {
    if (this.ready.count === 0) return null
    let oldest = Math.min(this.oldestInMemory, this.oldestFrozen)
    for (const bucket of this.buckets.values()) {
      for (const segment of bucket.store?.segments ?? []) {
        if (segment.live > 0 && segment.index.oldestAddedAt < oldest) oldest = segment.index.oldestAddedAt
      }
    }
    return Number.isFinite(oldest) ? oldest : null
  }

  segmentBytes(): number {
    let sum = 0
    for (const set of this.segmentSets()) sum += set.bytes
    return sum
  }
}

function addedAtOf({ chunk, start, end, value }: JobEntry): number {
  return chunk === undefined ? (value as { addedAt: number }).addedAt : readAddedAt(chunk.buffer, start, end)
}
