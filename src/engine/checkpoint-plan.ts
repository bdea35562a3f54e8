/**
 * What a checkpoint does with every job in memory: carry it into the new journal, or give it a place in a new segment.
 * Made in one step without yielding (C2); nothing is changed until `freeze`, so a plan that cannot be carried out is
 * simply forgotten.
 */
import type { ByteWriter } from '../bytes/byte-writer.js'
import { FrozenLanes } from '../queue/frozen-lanes.js'
import { IntColumn } from '../queue/int-column.js'
import { type Chunk, type JobEntry, newChunk } from '../queue/job-entry.js'
import { NO_JOB } from '../queue/job-table.js'
import { ConsumedSet } from '../store/bucket-info.js'
import { join } from '../store/file-names.js'
import { CARRY_DEAD, CARRY_DELAYED, CARRY_LEASED, CARRY_READY } from '../store/format.js'
import { type CarryFields, writeCarry } from '../store/records.js'
import { Segment } from '../store/segment.js'
import type { SegmentSet } from '../store/segment-set.js'
import { sliceName } from './delayed-jobs.js'
import type { EngineOptions } from './engine-options.js'
import { newSalt } from './recovery.js'
import type { StoreState } from './store-state.js'

/** Jobs by rising id that are in no lane: a slice of time, or the dead letters. */
export interface Slice {
  readonly name: string
  readonly jobs: readonly JobEntry[]
}

/**
 * The jobs [from, to) of a source by rising id, which get the ordinals from `base` on: piece by piece, in columns. A source
 * is a lane, or ~i for the slice number i.
 */
class Pieces {
  readonly sources = new IntColumn()
  readonly froms = new IntColumn()
  readonly tos = new IntColumn()
  readonly bases = new IntColumn()

  get count(): number {
    return this.sources.length
  }

  push(source: number, from: number, to: number, base: number): void {
    this.sources.push(source)
    this.froms.push(from)
    this.tos.push(to)
    this.bases.push(base)
  }
}

export interface PlannedSegment {
  readonly set: SegmentSet
  readonly segment: Segment
  readonly salt: number
  /** Its pieces, by number. */
  readonly firstPiece: number
  readonly endPiece: number
}

const FRESH = { segment: 0, ordinal: 0, attempt: 0, failures: 0, due: 0, reason: '' }

export class CheckpointPlan {
  readonly segments: PlannedSegment[] = []
  readonly pieces = new Pieces()
  readonly slices: Slice[] = []
  readonly frozen = new FrozenLanes()
  private readonly carried: { readonly job: JobEntry; readonly state: number }[] = []
  private readonly carriedNodes: number[] = []
  private carriedBytes = 0
  private carriedReady = false
  /** Ends of the carried records in the writer's region, in the order they were written. */
  private readonly ends: number[] = []
  private readonly state: StoreState
  private readonly options: EngineOptions
  private oldestBefore = Infinity

  constructor(state: StoreState, options: EngineOptions, now: number) {
    this.state = state
    this.options = options
    for (const lease of state.leases.values()) {
      if (!lease.job.memoryOnly) this.carry(lease.job, CARRY_LEASED)
    }
    this.planReady()
    this.planDelayed(now)
    this.planDead()
  }

  private carry(job: JobEntry, state: number): void {
    this.carried.push({ job, state })
    this.carriedBytes += job.length
  }

  /** Few bytes are carried rather than made into a tiny segment, as long as carrying stays quick. */
  private isSmall(bytes: number): boolean {
    const { carryBucketBytes, carryTotalBytes } = this.options.tuning
    return bytes <= carryBucketBytes && this.carriedBytes + bytes <= carryTotalBytes
  }

  private planReady(): void {
    const { lanes } = this.state.ready
    const byBucket = new Map<number, { lanes: IntColumn; bytes: number }>()
    for (let lane = 0; lane < lanes.end; lane++) {
      if (!lanes.has(lane) || lanes.inMemory(lane) === 0) continue
      const bucket = lanes.bucketOf(lane)
      let group = byBucket.get(bucket)
      if (group === undefined) {
        group = { lanes: new IntColumn(), bytes: 0 }
        byBucket.set(bucket, group)
      }
      group.lanes.push(lane)
      group.bytes += lanes.bytes(lane)
    }
    for (const [bucket, group] of byBucket) {
      const { store } = lanes.buckets[bucket] as NonNullable<(typeof lanes.buckets)[number]>
      if (store === undefined) continue
      const isSmall = this.isSmall(group.bytes)
      const cutter = new SegmentCutter(this, store)
      for (let i = 0; i < group.lanes.length; i++) {
        const lane = group.lanes.at(i)
        if (isSmall) this.carryLane(lane)
        else cutter.add(lane, lanes.inMemory(lane), lanes.bytes(lane))
      }
      cutter.end()
    }
  }

  private carryLane(lane: number): void {
    const { jobs, ready } = this.state
    this.carriedReady = true
    this.carriedBytes += ready.lanes.bytes(lane)
    for (let node = ready.lanes.head(lane); node !== NO_JOB; node = jobs.next(node)) this.carriedNodes.push(node)
    for (const job of ready.lanes.returnedJobs(lane)) this.carried.push({ job, state: CARRY_READY })
  }

  private planDelayed(now: number): void {
    const jobs = this.state.delayed.inMemory().filter((job) => !job.memoryOnly)
    let bytes = 0
    for (const job of jobs) bytes += job.length
    if (this.isSmall(bytes)) {
      for (const job of jobs) this.carry(job, CARRY_DELAYED)
      return
    }
    const slices = new Map<string, JobEntry[]>()
    for (const job of jobs) {
      const name = sliceName(job.due, now)
      const slice = slices.get(name)
      if (slice === undefined) slices.set(name, [job])
      else slice.push(job)
    }
    this.planSlices(this.state.delayed.store, slices)
  }

  private planDead(): void {
    const jobs = [...this.state.dead.inMemory()].filter((job) => !job.memoryOnly)
    let bytes = 0
    for (const job of jobs) bytes += job.length
    if (this.isSmall(bytes)) for (const job of jobs) this.carry(job, CARRY_DEAD)
    else this.planSlices(this.state.dead.store, new Map([['', jobs]]))
  }

  private planSlices(set: SegmentSet, groups: ReadonlyMap<string, JobEntry[]>): void {
    const cutter = new SegmentCutter(this, set)
    for (const [name, jobs] of groups) {
      const bytes = jobs.reduce((sum, job) => sum + job.length, 0)
      const slice = this.slices.push({ name, jobs: jobs.sort((a, b) => a.id - b.id) }) - 1
      cutter.add(~slice, jobs.length, bytes)
    }
    cutter.end()
  }

  get segmentBytes(): number {
    return this.options.tuning.segmentBytes
  }

  newSegment(set: SegmentSet, records: number): { segment: Segment; salt: number } {
    const { state } = this
    const file = set.nextFileName()
    const salt = newSalt(state)
    const segment = new Segment({
      path: join(set.directory, file),
      file,
      id: state.nextSegmentId++,
      consumed: new ConsumedSet(records),
      salt,
      handles: state.handles,
      cache: state.blocks,
    })
    return { segment, salt }
  }

  /** Writes the carried jobs into the open batch; returns how many. */
  writeCarried(writer: ByteWriter): number {
    const { jobs } = this.state
    for (const { job, state: as } of this.carried) {
      const { attempt, failures, due, reason } = job
      const home = this.state.homeOf(job)
      const fields = { state: as, segment: home?.id ?? 0, ordinal: job.ordinal, attempt, failures, due, reason }
      this.writeOne(writer, fields, job.chunk as Chunk, job.start, job.end)
    }
    for (const node of this.carriedNodes) {
      this.writeOne(writer, { ...FRESH, state: CARRY_READY }, jobs.chunk(node), jobs.start(node), jobs.end(node))
    }
    return this.ends.length
  }

  private writeOne(writer: ByteWriter, fields: CarryFields, chunk: Chunk, start: number, end: number): void {
    writeCarry(writer, fields, chunk.buffer, start, end)
    this.ends.push(writer.length)
  }

  /** The new journal holds them: their bytes are there now. `start` is where the region of `writeCarried` began. */
  moveCarried(buffer: Buffer, start: number): void {
    const { jobs } = this.state
    const chunk = newChunk(buffer)
    let at = 0
    for (const { job } of this.carried) {
      const end = start + this.ends[at++]
      this.state.move(job, chunk, end - job.length, end)
      job.home = undefined
    }
    for (const node of this.carriedNodes) {
      const end = start + this.ends[at++]
      jobs.move(node, chunk, end - jobs.length(node), end)
    }
  }

  /** Jobs get their places. From here on a job that is taken out is marked in the segment that is being written. */
  freeze(): void {
    const { state, frozen } = this
    const { lanes } = state.ready
    this.oldestBefore = state.oldestInMemory
    state.oldestFrozen = state.oldestInMemory
    if (!this.carriedReady) state.oldestInMemory = Infinity
    lanes.frozen = frozen
    const { sources, froms, tos, bases } = this.pieces
    for (const { segment, firstPiece, endPiece } of this.segments) {
      for (let piece = firstPiece; piece < endPiece; piece++) {
        const source = sources.at(piece)
        const from = froms.at(piece)
        if (source >= 0) {
          if (from === 0) lanes.freeze(source)
          frozen.addPart(tos.at(piece), segment, bases.at(piece))
          continue
        }
        const { jobs } = this.slices[~source]
        for (let i = from; i < tos.at(piece); i++) {
          jobs[i].home = segment
          jobs[i].ordinal = bases.at(piece) + i - from
        }
      }
    }
  }

  /** C8 is done: what was frozen is served from its segments. Goes on beside the work, since there may be very much. */
  async thaw(pause: (count: number) => Promise<void> | undefined): Promise<void> {
    const { state, frozen } = this
    const { lanes } = state.ready
    const of = (set: SegmentSet): Segment[] => this.segments.filter((one) => one.set === set).map((one) => one.segment)
    state.delayed.thaw(of(state.delayed.store))
    state.dead.thaw(of(state.dead.store))
    state.dead.forgetEmpty()
    state.oldestFrozen = Infinity
    for (let i = 0; i < frozen.count; i++) {
      const lane = frozen.lanes.at(i)
      const bound = state.jobs.id(frozen.heads.at(i))
      lanes.thaw(lane)
      frozen.forEachPart(i, (segment, first, end) => lanes.thawRun(lane, segment, first, end, bound))
      const paused = pause(this.forgetNodes(i))
      if (paused !== undefined) await paused
    }
    lanes.frozen = undefined
  }

  /** Returns how many there were. */
  private forgetNodes(i: number): number {
    const { state, frozen } = this
    const { jobs } = state
    let isTaken = true
    let count = 0
    for (let node = frozen.heads.at(i); node !== NO_JOB; count++) {
      const next = jobs.next(node)
      if (node === frozen.cursors.at(i)) isTaken = false
      const entry = jobs.entry(node)
      jobs.remove(node)
      if (entry !== undefined && !isTaken) state.drop(entry)
      node = next
    }
    return count
  }

  /** The checkpoint failed: everything stays in memory; homes in its segments count for nothing. */
  unfreeze(): void {
    const { state, frozen } = this
    const { lanes } = state.ready
    for (const { segment } of this.segments) segment.abandoned = true
    for (let i = 0; i < frozen.count; i++) lanes.unfreeze(frozen.lanes.at(i))
    lanes.frozen = undefined
    state.oldestInMemory = Math.min(state.oldestInMemory, this.oldestBefore)
    state.oldestFrozen = Infinity
  }
}

/** Cuts sources into segments of about `segmentBytes`; a long one may end in one and go on in the next. */
class SegmentCutter {
  private readonly plan: CheckpointPlan
  private readonly set: SegmentSet
  private firstPiece: number
  private bytes = 0
  private ordinal = 0

  constructor(plan: CheckpointPlan, set: SegmentSet) {
    this.plan = plan
    this.set = set
    this.firstPiece = plan.pieces.count
  }

  add(source: number, count: number, sourceBytes: number): void {
    const { segmentBytes, pieces } = this.plan
    // By the average of the source: looking at each job would make the pause longer for no gain.
    const average = sourceBytes / count
    for (let from = 0; from < count; ) {
      const room = Math.max(1, Math.ceil((segmentBytes - this.bytes) / average))
      const to = Math.min(count, from + room)
      this.bytes += (to - from) * average
      pieces.push(source, from, to, this.ordinal)
      this.ordinal += to - from
      from = to
      if (this.bytes >= segmentBytes) this.end()
    }
  }

  end(): void {
    const { plan, set, firstPiece } = this
    const endPiece = plan.pieces.count
    if (endPiece === firstPiece) return
    plan.segments.push({ set, ...plan.newSegment(set, this.ordinal), firstPiece, endPiece })
    this.firstPiece = endPiece
    this.bytes = 0
    this.ordinal = 0
  }
}
