/**
 * What a checkpoint does with every job in memory: carry it into the new journal, or give it a place in a new segment.
 * Made in one step without yielding (C2); nothing is changed until `freeze`, so a plan that cannot be carried out is
 * simply forgotten.
 */
import { assert } from '../assert.js'
import { JobDeque } from '../queue/job-deque.js'
import type { JobEntry } from '../queue/job-entry.js'
import { type Lane, Run } from '../queue/lane.js'
import { ConsumedSet } from '../store/bucket-info.js'
import { join } from '../store/file-names.js'
import { CARRY_DEAD, CARRY_DELAYED, CARRY_LEASED, CARRY_READY } from '../store/format.js'
import { Segment } from '../store/segment.js'
import type { SegmentSet } from '../store/segment-set.js'
import { sliceName } from './delayed-jobs.js'
import type { EngineOptions } from './engine-options.js'
import { newSalt } from './recovery.js'
import type { StoreState } from './store-state.js'

export interface PlannedSegment {
  readonly set: SegmentSet
  readonly segment: Segment
  readonly salt: number
  readonly lanes: readonly { readonly name: string; readonly jobs: readonly JobEntry[] }[]
}

interface Part {
  /** Index in the frozen order of the lane. */
  readonly from: number
  readonly to: number
  readonly segment: Segment
  readonly base: number
}

interface FrozenLane {
  readonly lane: Lane
  readonly jobs: readonly JobEntry[]
  readonly parts: readonly Part[]
}

export interface Carried {
  readonly job: JobEntry
  readonly state: number
}

/** A bucket's jobs by lane, on their way into segments. */
interface LaneJobs {
  readonly name: string
  readonly jobs: JobEntry[]
  readonly bytes: number
  readonly lane: Lane | undefined
}

export class CheckpointPlan {
  readonly carried: Carried[] = []
  readonly segments: PlannedSegment[] = []
  private readonly frozen: FrozenLane[] = []
  /** Delayed and dead jobs that get a place, and which. */
  private readonly placed: { job: JobEntry; segment: Segment; ordinal: number }[] = []
  private carriedBytes = 0
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
    for (const bucket of this.state.buckets.values()) {
      if (bucket.store === undefined) continue
      const lanes: LaneJobs[] = []
      let bytes = 0
      for (const lane of bucket.lanes.values()) {
        if (lane.jobs.length + lane.returned.length === 0) continue
        const jobs = lane.jobs.toArray()
        let laneBytes = lane.jobs.bytes
        for (const job of lane.returned) laneBytes += job.length
        if (lane.returned.length > 0) jobs.push(...lane.returned)
        if (lane.returned.length > 0) jobs.sort((a, b) => a.id - b.id)
        bytes += laneBytes
        lanes.push({ name: lane.slot.name, jobs, bytes: laneBytes, lane })
      }
      if (lanes.length === 0) continue
      if (this.isSmall(bytes)) for (const { jobs } of lanes) for (const job of jobs) this.carry(job, CARRY_READY)
      else this.planSegments(bucket.store, lanes)
    }
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

  /** Cuts the lanes into segments of about `segmentBytes`; a long lane may end in one and go on in the next. */
  private planSegments(set: SegmentSet, lanes: readonly LaneJobs[]): void {
    const { segmentBytes } = this.options.tuning
    let current: { name: string; jobs: JobEntry[] }[] = []
    const pieces: { lane: LaneJobs; from: number; to: number; index: number; base: number }[] = []
    let index = 0
    let bytes = 0
    let ordinal = 0
    const sizes: number[] = []
    const contents: { name: string; jobs: JobEntry[] }[][] = []
    const cut = (): void => {
      sizes.push(ordinal)
      contents.push(current)
      current = []
      index++
      bytes = 0
      ordinal = 0
    }
    for (const lane of lanes) {
      let from = 0
      while (from < lane.jobs.length) {
        // By the average of the lane: looking at each job would make the pause longer for no gain.
        const average = lane.bytes / lane.jobs.length
        const room = Math.max(1, Math.ceil((segmentBytes - bytes) / average))
        const to = Math.min(lane.jobs.length, from + room)
        bytes += (to - from) * average
        pieces.push({ lane, from, to, index, base: ordinal })
        current.push({ name: lane.name, jobs: lane.jobs.slice(from, to) })
        ordinal += to - from
        from = to
        if (bytes >= segmentBytes) cut()
      }
    }
    if (current.length > 0) cut()
    const segments = sizes.map((records) => this.newSegment(set, records))
    for (const [i, { segment, salt }] of segments.entries()) {
      this.segments.push({ set, segment, salt, lanes: contents[i] })
    }
    this.placePieces(lanes, pieces, segments)
  }

  private placePieces(
    lanes: readonly LaneJobs[],
    pieces: readonly { lane: LaneJobs; from: number; to: number; index: number; base: number }[],
    segments: readonly { segment: Segment }[],
  ): void {
    const parts = new Map<LaneJobs, Part[]>(lanes.map((lane) => [lane, []]))
    for (const { lane, from, to, index, base } of pieces) {
      parts.get(lane)?.push({ from, to, segment: segments[index].segment, base })
    }
    for (const [lane, laneParts] of parts) {
      if (lane.lane !== undefined) this.frozen.push({ lane: lane.lane, jobs: lane.jobs, parts: laneParts })
      else {
        for (const { from, to, segment, base } of laneParts) {
          for (let i = from; i < to; i++) this.placed.push({ job: lane.jobs[i], segment, ordinal: base + i - from })
        }
      }
    }
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

  /** Jobs get their places. From here on a job that is taken out is marked in the segment that is being written. */
  freeze(): void {
    const { state } = this
    this.oldestBefore = state.oldestInMemory
    state.oldestFrozen = state.oldestInMemory
    if (!this.carried.some((one) => one.state === CARRY_READY)) state.oldestInMemory = Infinity
    for (const { lane, jobs, parts } of this.frozen) {
      // Jobs that came back may have had a home, which is marked consumed; the others have none.
      for (const job of lane.returned) job.home = undefined
      lane.jobs = new JobDeque()
      lane.returned = []
      lane.frozen = { jobs, from: 0, to: jobs.length, place: (i) => placeOf(parts, i) }
    }
    for (const { job, segment, ordinal } of this.placed) {
      job.home = segment
      job.ordinal = ordinal
    }
  }

  /** C8 is done: frozen jobs are served from their segments. Returns those that are in memory no more. */
  thaw(): JobEntry[][] {
    const { state } = this
    const left: JobEntry[][] = []
    for (const { lane, parts } of this.frozen) {
      if (lane.frozen !== undefined) left.push(lane.frozen.jobs.slice(lane.frozen.from, lane.frozen.to))
      lane.thaw(parts.map((part) => new Run(part.segment, part.base, part.base + part.to - part.from)))
    }
    const of = (set: SegmentSet): Segment[] => this.segments.filter((one) => one.set === set).map((one) => one.segment)
    state.delayed.thaw(of(state.delayed.store))
    state.dead.thaw(of(state.dead.store))
    state.dead.forgetEmpty()
    state.oldestFrozen = Infinity
    return left
  }

  /** The checkpoint failed: everything stays in memory; homes in its segments count for nothing. */
  unfreeze(): void {
    const { state } = this
    for (const { segment } of this.segments) segment.abandoned = true
    for (const { lane } of this.frozen) lane.unfreeze()
    state.oldestInMemory = Math.min(state.oldestInMemory, this.oldestBefore)
    state.oldestFrozen = Infinity
  }
}

function placeOf(parts: readonly Part[], i: number): { segment: Segment; ordinal: number } {
  for (const part of parts) if (i < part.to) return { segment: part.segment, ordinal: part.base + i - part.from }
  assert(false, 'a frozen job has a place')
}

function byId(groups: ReadonlyMap<string, JobEntry[]>): LaneJobs[] {
  return [...groups].map(([name, jobs]) => {
    const bytes = jobs.reduce((sum, job) => sum + job.length, 0)
    return { name, jobs: jobs.sort((a, b) => a.id - b.id), bytes, lane: undefined }
  })
}
