/**
 * What a checkpoint does with every job in memory: carry it into the new journal, or give it a place in a new segment.
 * Made in one step without yielding (C2); nothing is changed until `freeze`, so a plan that cannot be carried out is
 * simply forgotten.
 */
import type { ByteWriter } from '../bytes/byte-writer.js'
import { FrozenLanes } from '../queue/frozen-lanes.js'
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

/** A lane of ready jobs, or jobs by rising id under a name of their own (a slice of time). */
type Source = { readonly lane: number } | { readonly name: string; readonly jobs: readonly JobEntry[] }

/** The jobs [from, to) of a source by rising id, which get the ordinals from `base` on. */
export interface Piece {
  readonly source: Source
  readonly from: number
  readonly to: number
  readonly base: number
}

export interface PlannedSegment {
  readonly set: SegmentSet
  readonly segment: Segment
  readonly salt: number
  readonly pieces: readonly Piece[]
}

interface SizedSource {
  readonly source: Source
  readonly count: number
  readonly bytes: number
}

const FRESH = { segment: 0, ordinal: 0, attempt: 0, failures: 0, due: 0, reason: '' }

export class CheckpointPlan {
  readonly segments: PlannedSegment[] = []
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
    const byBucket = new Map<number, { lanes: number[]; bytes: number }>()
    for (let lane = 0; lane < lanes.end; lane++) {
      if (!lanes.has(lane) || lanes.inMemory(lane) === 0) continue
      const bucket = lanes.bucketOf(lane)
      let group = byBucket.get(bucket)
      if (group === undefined) {
        group = { lanes: [], bytes: 0 }
        byBucket.set(bucket, group)
      }
      group.lanes.push(lane)
      group.bytes += lanes.bytes(lane)
    }
    for (const [bucket, group] of byBucket) {
      const { store } = lanes.buckets[bucket] as NonNullable<(typeof lanes.buckets)[number]>
      if (store === undefined) continue
      if (this.isSmall(group.bytes)) for (const lane of group.lanes) this.carryLane(lane)
      else {
        this.planSegments(
          store,
          group.lanes.map((lane) => ({ source: { lane }, count: lanes.inMemory(lane), bytes: lanes.bytes(lane) })),
        )
      }
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
    this.planSegments(this.state.delayed.store, byId(slices))
  }

  private planDead(): void {
    const jobs = [...this.state.dead.inMemory()].filter((job) => !job.memoryOnly)
    let bytes = 0
    for (const job of jobs) bytes += job.length
    if (this.isSmall(bytes)) for (const job of jobs) this.carry(job, CARRY_DEAD)
    else this.planSegments(this.state.dead.store, byId(new Map([['', jobs]])))
  }

  /** Cuts the sources into segments of about `segmentBytes`; a long one may end in one and go on in the next. */
  private planSegments(set: SegmentSet, sources: readonly SizedSource[]): void {
    const { segmentBytes } = this.options.tuning
    let pieces: Piece[] = []
    let bytes = 0
    let ordinal = 0
    const cut = (): void => {
      this.segments.push({ set, ...this.newSegment(set, ordinal), pieces })
      pieces = []
      bytes = 0
      ordinal = 0
    }
    for (const { source, count, bytes: sourceBytes } of sources) {
      let from = 0
      while (from < count) {
        // By the average of the source: looking at each job would make the pause longer for no gain.
        const average = sourceBytes / count
        const room = Math.max(1, Math.ceil((segmentBytes - bytes) / average))
        const to = Math.min(count, from + room)
        bytes += (to - from) * average
        pieces.push({ source, from, to, base: ordinal })
        ordinal += to - from
        from = to
        if (bytes >= segmentBytes) cut()
      }
    }
    if (pieces.length > 0) cut()
  }

  private newSegment(set: SegmentSet, records: number): { segment: Segment; salt: number } {
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
    for (const { segment, pieces } of this.segments) {
      for (const { source, from, to, base } of pieces) {
        if ('lane' in source) {
          if (from === 0) lanes.freeze(source.lane)
          frozen.addPart(to, segment, base)
        } else {
          for (let i = from; i < to; i++) {
            source.jobs[i].home = segment
            source.jobs[i].ordinal = base + i - from
          }
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
      const lane = frozen.lanes[i]
      lanes.thaw(lane)
      frozen.forEachPart(i, (segment, first, end) => lanes.thawRun(lane, segment, first, end, frozen.bounds[i]))
      const paused = pause(this.forgetNodes(i))
      if (paused !== undefined) await paused
    }
    lanes.frozen = undefined
    for (const { set, segment } of this.segments) {
      if (set !== state.delayed.store && set !== state.dead.store) segment.dropLanes()
    }
  }

  /** Returns how many there were. */
  private forgetNodes(i: number): number {
    const { state, frozen } = this
    const { jobs } = state
    let isTaken = true
    let count = 0
    for (let node = frozen.heads[i]; node !== NO_JOB; count++) {
      const next = jobs.next(node)
      if (node === frozen.cursors[i]) isTaken = false
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
    for (const lane of frozen.lanes) lanes.unfreeze(lane)
    lanes.frozen = undefined
    state.oldestInMemory = Math.min(state.oldestInMemory, this.oldestBefore)
    state.oldestFrozen = Infinity
  }
}

function byId(groups: ReadonlyMap<string, JobEntry[]>): SizedSource[] {
  return [...groups].map(([name, jobs]) => {
    const bytes = jobs.reduce((sum, job) => sum + job.length, 0)
    return { source: { name, jobs: jobs.sort((a, b) => a.id - b.id) }, count: jobs.length, bytes }
  })
}
