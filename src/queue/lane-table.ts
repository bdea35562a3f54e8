/**
 * The lanes: the ready jobs of one slot in one bucket, wherever they lie: in memory, frozen by a running checkpoint, in
 * segments, or back from a lease. Ids give the order: fifo serves the lowest, lifo the highest, so a job that comes back
 * returns to its old place whatever happened to its neighbours. Twelve words a lane, and no object.
 *
 * Invariants: the list in memory is in the order of service, and its jobs come after (lifo: before) those of every run; a
 * lane that is held (an entry of it in memory, a commit under way) or has jobs is never freed.
 */
import { assert } from '../assert.js'
import type { Segment } from '../store/segment.js'
import type { Bucket } from './bucket.js'
import type { FrozenLanes } from './frozen-lanes.js'
import { JobEntry } from './job-entry.js'
import { type JobList, meltedList, mergedList } from './job-list.js'
import { type JobTable, NO_JOB } from './job-table.js'
import { PAGE_BITS, PAGE_MASK, RecordPages } from './record-pages.js'
import { ReturnedJobs } from './returned-jobs.js'
import { RunTable } from './run-table.js'

const WORDS = 12
const BUCKET = 0
const SLOT = 1
export const NEXT_OF_SLOT = 2
const HEAD = 3
const TAIL = 4
/** Jobs in the list in memory, and their bytes (unsigned). */
export const LISTED = 5
const BYTES = 6
/** Number among the frozen lanes, or -1. */
const FROZEN = 7
/** First run, or -1. */
const RUNS = 8
/** Ready jobs, wherever they lie. */
export const COUNT = 9
const HOLDS = 10
/** Place in the heap of a slot that has very many lanes. */
export const POSITION = 11
const NONE = -1
const NO_JOBS: readonly JobEntry[] = []

/** How a lane gets at what lies in segments. */
export interface LaneReader {
  /** Id of a record of the run, most often one that was read ahead. */
  recordId(run: number, ordinal: number): number
  /** Its entry in memory, held. */
  recordEntry(run: number, ordinal: number, lane: number): JobEntry
  /** The run is over. */
  runEnded(run: number): void
}

export class LaneTable {
  readonly runs = new RunTable()
  readonly buckets: (Bucket | undefined)[] = []
  /** Of the running checkpoint, if there is one. */
  frozen: FrozenLanes | undefined = undefined
  private readonly records = new RecordPages(WORDS)
  private readonly pages = this.records.pages
  private readonly returned = new Map<number, ReturnedJobs>()
  private readonly freeBuckets: number[] = []
  private readonly jobs: JobTable
  private readonly lifo: boolean

  constructor(jobs: JobTable, lifo: boolean) {
    this.jobs = jobs
    this.lifo = lifo
  }

  get(lane: number, field: number): number {
    return this.pages[lane >>> PAGE_BITS][(lane & PAGE_MASK) * WORDS + field]
  }

  set(lane: number, field: number, value: number): void {
    this.pages[lane >>> PAGE_BITS][(lane & PAGE_MASK) * WORDS + field] = value
  }

  addBucket(bucket: Bucket): void {
    bucket.number = this.freeBuckets.pop() ?? this.buckets.length
    this.buckets[bucket.number] = bucket
  }

  removeBucket(bucket: Bucket): void {
    assert(bucket.laneCount === 0)
    this.buckets[bucket.number] = undefined
    this.freeBuckets.push(bucket.number)
  }

  make(bucket: Bucket, slot: number): number {
    const lane = this.records.allocate()
    const page = this.pages[lane >>> PAGE_BITS]
    const at = (lane & PAGE_MASK) * WORDS
    page.fill(0, at, at + WORDS)
    page[at + BUCKET] = bucket.number
    page[at + SLOT] = slot
    for (const field of [NEXT_OF_SLOT, HEAD, TAIL, FROZEN, RUNS, POSITION]) page[at + field] = NONE
    bucket.laneCount++
    return lane
  }

  /** Nothing is in it and nobody holds it. */
  isIdle(lane: number): boolean {
    return this.get(lane, COUNT) === 0 && this.get(lane, HOLDS) === 0 && this.get(lane, FROZEN) === NONE
  }

  free(lane: number): void {
    this.bucket(lane).laneCount--
    // Told apart from lanes in use by whoever walks through all of them.
    this.set(lane, SLOT, NONE)
    this.records.free(lane)
  }

  bucketOf(lane: number): number {
    return this.get(lane, BUCKET)
  }

  bucket(lane: number): Bucket {
    return this.buckets[this.get(lane, BUCKET)] as Bucket
  }

  slotOf(lane: number): number {
    return this.get(lane, SLOT)
  }

  /** One above the highest number a lane has; `has` tells which are in use. */
  get end(): number {
    return this.records.end
  }

  has(lane: number): boolean {
    return this.get(lane, SLOT) !== NONE
  }

  hold(lane: number): void {
    this.pages[lane >>> PAGE_BITS][(lane & PAGE_MASK) * WORDS + HOLDS]++
  }

  letGo(lane: number): void {
    this.pages[lane >>> PAGE_BITS][(lane & PAGE_MASK) * WORDS + HOLDS]--
  }

  /** Bytes of the jobs in memory that wait in the lane. */
  bytes(lane: number): number {
    let bytes = this.get(lane, BYTES) >>> 0
    for (const job of this.returnedJobs(lane)) bytes += job.length
    return bytes
  }

  /** A new job: it comes after all others. Returns how many are ready in the lane now. */
  push(lane: number, node: number): number {
    const { jobs } = this
    const page = this.pages[lane >>> PAGE_BITS]
    const at = (lane & PAGE_MASK) * WORDS
    if (page[at + LISTED]++ === 0) {
      page[at + HEAD] = node
      page[at + TAIL] = node
    } else if (this.lifo) {
      jobs.setNext(node, page[at + HEAD])
      page[at + HEAD] = node
    } else {
      jobs.setNext(page[at + TAIL], node)
      page[at + TAIL] = node
    }
    page[at + BYTES] += jobs.length(node)
    return ++page[at + COUNT]
  }

  /** A job that was out: into its old place. */
  giveBack(job: JobEntry): number {
    let returned = this.returned.get(job.lane)
    if (returned === undefined) {
      returned = new ReturnedJobs(this.lifo)
      this.returned.set(job.lane, returned)
    }
    returned.push(job)
    return this.countMore(job.lane, 1)
  }

  private countMore(lane: number, more: number): number {
    const page = this.pages[lane >>> PAGE_BITS]
    const at = (lane & PAGE_MASK) * WORDS + COUNT
    page[at] += more
    return page[at]
  }

  /** Ids of the records are in [lowest, highest]. Returns how many jobs it brings. */
  addRun(lane: number, segment: Segment, first: number, end: number, lowest: number, highest: number): number {
    const run = this.runs.add(segment, first, end, this.get(lane, RUNS), this.lifo ? highest : lowest)
    if (!this.runs.skipConsumed(run)) {
      this.runs.free(run)
      return 0
    }
    this.set(lane, RUNS, run)
    const count = this.runs.countLive(run)
    this.countMore(lane, count)
    return count
  }

  /** One job of a run in `segment` was consumed from outside. Returns how many are ready in the lane now. */
  movedFrom(lane: number, segment: Segment, reader: LaneReader): number {
    const { runs } = this
    for (let run = this.get(lane, RUNS); run !== NONE; ) {
      const next = runs.next(run)
      if (runs.segment(run) === segment) {
        runs.inexact(run)
        if (!runs.skipConsumed(run)) this.dropRun(lane, run, reader)
      }
      run = next
    }
    return this.countMore(lane, -1)
  }

  private dropRun(lane: number, run: number, reader: LaneReader): void {
    const { runs } = this
    let at = this.get(lane, RUNS)
    if (at === run) this.set(lane, RUNS, runs.next(run))
    else {
      while (runs.next(at) !== run) at = runs.next(at)
      runs.setNext(at, runs.next(run))
    }
    reader.runEnded(run)
    runs.free(run)
  }

  /**
   * Takes the next job out, held. A job from a segment is read and marked consumed there. May throw when the segment cannot
   * be read: then nothing changed.
   */
  take(lane: number, reader: LaneReader): JobEntry {
    const page = this.pages[lane >>> PAGE_BITS]
    const at = (lane & PAGE_MASK) * WORDS
    assert(page[at + COUNT] > 0)
    const returned = this.returned.size === 0 ? undefined : this.returned.get(lane)
    const frozen = page[at + FROZEN]
    let job: JobEntry
    if (returned === undefined && frozen === NONE) {
      // Everything in memory comes after the runs (lifo: before).
      if (page[at + LISTED] > 0 && (page[at + RUNS] === NONE || this.lifo)) job = this.takeListed(lane)
      else job = this.takeFromRun(lane, this.bestRun(lane, reader), reader)
    } else job = this.takeBest(lane, returned, frozen, reader)
    page[at + COUNT]--
    return job
  }

  private takeBest(lane: number, returned: ReturnedJobs | undefined, frozen: number, reader: LaneReader): JobEntry {
    const sign = this.lifo ? -1 : 1
    const { jobs } = this
    const parts = this.frozen as FrozenLanes
    let best = Infinity
    let source = NONE
    const offer = (id: number, from: number): void => {
      if (sign * id >= best) return
      best = sign * id
      source = from
    }
    const [LIST, RETURNED, FREEZE, RUN] = [0, 1, 2, 3]
    if (this.get(lane, LISTED) > 0) offer(jobs.id(this.get(lane, HEAD)), LIST)
    if (returned !== undefined) offer((returned.peek() as JobEntry).id, RETURNED)
    if (frozen !== NONE && parts.left.at(frozen) > 0) offer(jobs.id(parts.cursors.at(frozen)), FREEZE)
    const run = this.bestRun(lane, reader)
    if (run !== NONE) offer(this.runs.bound(run), RUN)
    assert(source !== NONE, 'a lane that counts jobs has one')
    if (source === RUN) return this.takeFromRun(lane, run, reader)
    if (source === LIST) return this.takeListed(lane)
    if (source === FREEZE) return this.takeFrozen(lane, frozen)
    const job = (returned as ReturnedJobs).pop()
    if ((returned as ReturnedJobs).size === 0) this.returned.delete(lane)
    return job
  }

  private takeListed(lane: number): JobEntry {
    const { jobs } = this
    const page = this.pages[lane >>> PAGE_BITS]
    const at = (lane & PAGE_MASK) * WORDS
    const node = page[at + HEAD]
    page[at + HEAD] = jobs.next(node)
    page[at + BYTES] -= jobs.length(node)
    if (--page[at + LISTED] === 0) page[at + TAIL] = NO_JOB
    const job = this.entryOf(node, lane)
    jobs.remove(node)
    return job
  }

  private entryOf(node: number, lane: number): JobEntry {
    const { jobs } = this
    const known = jobs.entry(node)
    if (known !== undefined) return known
    const chunk = jobs.chunk(node)
    jobs.hold(chunk)
    this.hold(lane)
    return new JobEntry(jobs.id(node), this.bucket(lane), lane, chunk, jobs.start(node), jobs.end(node))
  }

  private takeFrozen(lane: number, frozen: number): JobEntry {
    const parts = this.frozen as FrozenLanes
    const node = parts.cursors.at(frozen)
    parts.cursors.set(frozen, this.jobs.next(node))
    const left = parts.left.at(frozen) - 1
    parts.left.set(frozen, left)
    const { segment, ordinal } = parts.place(frozen, this.lifo ? left : parts.totals.at(frozen) - left - 1)
    const job = this.entryOf(node, lane)
    // Whether the segment becomes real is open: replay finds the job by id if it does not.
    segment.consume(ordinal)
    job.home = segment
    job.ordinal = ordinal
    return job
  }

  /** The run whose next record comes first, its id known; -1 when there is none. */
  private bestRun(lane: number, reader: LaneReader): number {
    const { runs, lifo } = this
    for (;;) {
      let best = NONE
      let bestBound = 0
      for (let run = this.get(lane, RUNS); run !== NONE; run = runs.next(run)) {
        const bound = runs.bound(run)
        if (best !== NONE && (lifo ? bound < bestBound : bound > bestBound)) continue
        // Among equals one that is not exact is looked at first: it may turn out to be later.
        if (best !== NONE && bound === bestBound && runs.isExact(run)) continue
        best = run
        bestBound = bound
      }
      if (best === NONE || runs.isExact(best)) return best
      // With one run there is nothing to compare within the lane; but whoever compares it with the rest needs the id.
      runs.setExact(best, reader.recordId(best, lifo ? runs.end(best) - 1 : runs.first(best)))
    }
  }

  private takeFromRun(lane: number, run: number, reader: LaneReader): JobEntry {
    const { runs } = this
    const ordinal = this.lifo ? runs.end(run) - 1 : runs.first(run)
    const job = reader.recordEntry(run, ordinal, lane)
    runs.segment(run).consume(ordinal)
    runs.inexact(run)
    if (!runs.skipConsumed(run)) this.dropRun(lane, run, reader)
    return job
  }

  /** What came back takes its place in the list: only for a freeze, since it may belong before what lies in runs. */
  private gather(lane: number): void {
    const returned = this.returned.size === 0 ? undefined : this.returned.get(lane)
    if (returned === undefined) return
    this.returned.delete(lane)
    const before = { head: this.head(lane), tail: this.get(lane, TAIL), count: this.get(lane, LISTED), bytes: 0 }
    const list = mergedList(this.jobs, before, [...returned.all()], this.lifo)
    this.set(lane, HEAD, list.head)
    this.set(lane, TAIL, list.tail)
    this.set(lane, LISTED, list.count)
  }

  /** First node of the list in memory, or NO_JOB. */
  head(lane: number): number {
    return this.get(lane, LISTED) > 0 ? this.get(lane, HEAD) : NO_JOB
  }

  returnedJobs(lane: number): readonly JobEntry[] {
    return (this.returned.size === 0 ? undefined : this.returned.get(lane)?.all()) ?? NO_JOBS
  }

  /** Jobs of the lane in memory, listed or come back. */
  inMemory(lane: number): number {
    return this.get(lane, LISTED) + this.returnedJobs(lane).length
  }

  /** What the lane has in memory belongs to the checkpoint now, and is served from there; its places follow. */
  freeze(lane: number): void {
    this.gather(lane)
    const page = this.pages[lane >>> PAGE_BITS]
    const at = (lane & PAGE_MASK) * WORDS
    const head = page[at + HEAD]
    const parts = this.frozen as FrozenLanes
    const frozen = parts.add(lane, head, page[at + LISTED])
    page[at + FROZEN] = frozen
    page[at + LISTED] = 0
    page[at + BYTES] = 0
    page[at + HEAD] = NO_JOB
    page[at + TAIL] = NO_JOB
  }

  frozenOf(lane: number): number {
    return this.get(lane, FROZEN)
  }

  /** The checkpoint is committed: what was frozen is served from its segments. The lane counts these jobs already. */
  thaw(lane: number): void {
    this.set(lane, FROZEN, NONE)
  }

  /** As `addRun`, for jobs the lane counts already; `bound` is not beyond any of their ids. */
  thawRun(lane: number, segment: Segment, first: number, end: number, bound: number): void {
    const run = this.runs.add(segment, first, end, this.get(lane, RUNS), bound)
    if (this.runs.skipConsumed(run)) this.set(lane, RUNS, run)
    else this.runs.free(run)
  }

  /** The checkpoint failed: what was frozen and not taken waits in memory again. */
  unfreeze(lane: number): void {
    const frozen = this.get(lane, FROZEN)
    this.set(lane, FROZEN, NONE)
    const list = meltedList(this.jobs, this.frozen as FrozenLanes, frozen)
    for (const job of list.returned) {
      this.giveBack(job)
      this.countMore(lane, -1)
    }
    if (list.count > 0) this.join(lane, list)
  }

  /** Before what was added meanwhile; for lifo, which serves the newest first, behind it. */
  private join(lane: number, list: JobList): void {
    const isEmpty = this.get(lane, LISTED) === 0
    if (isEmpty || !this.lifo) {
      if (!isEmpty) this.jobs.setNext(list.tail, this.get(lane, HEAD))
      else this.set(lane, TAIL, list.tail)
      this.set(lane, HEAD, list.head)
    } else {
      this.jobs.setNext(this.get(lane, TAIL), list.head)
      this.set(lane, TAIL, list.tail)
    }
    this.set(lane, LISTED, this.get(lane, LISTED) + list.count)
    this.set(lane, BYTES, this.get(lane, BYTES) + list.bytes)
  }
}
