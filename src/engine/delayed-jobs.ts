/**
 * Jobs that are not due. The near ones are in a heap in memory; a checkpoint puts far ones into segments whose lanes
 * are slices of time (a minute, an hour or a day), which are read when their time comes. So memory holds about the
 * current slice, however many wait.
 */
import { IndexedHeap } from '../queue/indexed-heap.js'
import type { JobEntry } from '../queue/job-entry.js'
import { CARRY_DELAYED } from '../store/format.js'
import type { Segment } from '../store/segment.js'
import type { SegmentSet } from '../store/segment-set.js'
import type { StoreState } from './store-state.js'

const MINUTE_MS = 60_000
const HOUR_MS = 60 * MINUTE_MS
const DAY_MS = 24 * HOUR_MS

/** Jobs of one slice that lie in one segment: the ordinals [first, end). */
interface Slice {
  readonly startMs: number
  readonly segment: Segment
  readonly first: number
  readonly end: number
  heapIndex: number
}

/** The lane name of a job due at `dueMs`: start of its slice, which is shorter the nearer it is. */
export function sliceName(dueMs: number, now: number): string {
  const ahead = dueMs - now
  const width = ahead < HOUR_MS ? MINUTE_MS : ahead < 2 * DAY_MS ? HOUR_MS : DAY_MS
  return String(Math.floor(dueMs / width) * width)
}

export class DelayedJobs {
  readonly store: SegmentSet
  private readonly state: StoreState
  private readonly heap = new IndexedHeap<JobEntry>(
    (a, b) => a.due < b.due || (a.due === b.due && a.id < b.id),
    (job) => job.heapIndex,
    (job, index) => {
      job.heapIndex = index
    },
  )
  private readonly slices = new IndexedHeap<Slice>(
    (a, b) => a.startMs < b.startMs,
    (slice) => slice.heapIndex,
    (slice, index) => {
      slice.heapIndex = index
    },
  )
  /** Jobs of slices that were not read yet. */
  private onDisk = 0

  constructor(state: StoreState, store: SegmentSet) {
    this.state = state
    this.store = store
  }

  get count(): number {
    return this.heap.size + this.onDisk
  }

  push(job: JobEntry): void {
    job.state = CARRY_DELAYED
    this.heap.push(job)
  }

  remove(job: JobEntry): void {
    this.heap.remove(job)
  }

  inMemory(): readonly JobEntry[] {
    return this.heap.values()
  }

  /** Jobs of a sealed segment that are not in memory. */
  addSegment(segment: Segment): void {
    for (const lane of segment.lanes()) {
      const end = lane.first + lane.count
      let live = 0
      for (let i = lane.first; i < end; i++) if (!segment.consumed.has(i)) live++
      if (live === 0) continue
      this.onDisk += live
      this.slices.push({ startMs: Number(lane.name), segment, first: lane.first, end, heapIndex: -1 })
    }
  }

  /** Wall ms at which there is something to do; Infinity when nothing waits. */
  get nextDue(): number {
    return Math.min(this.heap.peek()?.due ?? Infinity, this.slices.peek()?.startMs ?? Infinity)
  }

  /** Takes out every job that is due, in order. May throw when a slice cannot be read; it is tried again. */
  takeDue(now: number, into: (job: JobEntry) => void): void {
    for (;;) {
      const slice = this.slices.peek()
      if (slice === undefined || slice.startMs > now) break
      this.read(slice)
    }
    for (;;) {
      const job = this.heap.peek()
      if (job === undefined || job.due > now) return
      this.heap.remove(job)
      // A running checkpoint may have given it a place already: it is taken out there.
      const home = this.state.homeOf(job)
      if (home !== undefined) home.consume(job.ordinal)
      into(job)
    }
  }

  private read(slice: Slice): void {
    const jobs: JobEntry[] = []
    try {
      for (let ordinal = slice.first; ordinal < slice.end; ordinal++) {
        if (!slice.segment.consumed.has(ordinal)) jobs.push(this.state.load(slice.segment, ordinal))
      }
    } catch (error) {
      for (const job of jobs) this.state.drop(job)
      throw error
    }
    this.slices.remove(slice)
    this.onDisk -= jobs.length
    for (const job of jobs) {
      slice.segment.consume(job.ordinal)
      this.state.own(job)
      this.push(job)
    }
  }

  /** Everything that is live in the segment comes into memory, due or not. */
  loadSegment(segment: Segment): void {
    for (const slice of [...this.slices.values()]) if (slice.segment === segment) this.read(slice)
  }

  /** The checkpoint is committed: jobs it wrote leave memory, unless they became due meanwhile. */
  thaw(segments: readonly Segment[]): void {
    const moved = new Set(segments)
    for (const job of [...this.heap.values()]) {
      if (job.home === undefined || !moved.has(job.home) || job.home.consumed.has(job.ordinal)) continue
      this.heap.remove(job)
      this.state.drop(job)
    }
    for (const segment of segments) this.addSegment(segment)
  }
}
