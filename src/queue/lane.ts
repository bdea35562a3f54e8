/**
 * The ready jobs of one slot in one bucket, wherever they lie: in memory, frozen by a running checkpoint, in segments,
 * or back from a lease. Ids give the order: fifo serves the lowest, lifo the highest, so a job that comes back
 * returns to its old place whatever happened to its neighbours.
 */
import { assert } from '../assert.js'
import type { RecordSpan, Segment, SegmentRecord } from '../store/segment.js'
import type { Bucket } from './bucket.js'
import { JobDeque } from './job-deque.js'
import type { JobEntry } from './job-entry.js'
import type { Slot } from './slot.js'

/** A range of ordinals of one segment that belongs to a lane; what is left of it lies in [first, end). */
export class Run {
  readonly segment: Segment
  first: number
  end: number
  /** Id of the next record, once it has been read. */
  nextId = -1
  /** Records read ahead. Given up when memory is wanted. */
  ahead: RecordSpan | undefined = undefined

  constructor(segment: Segment, first: number, end: number) {
    this.segment = segment
    this.first = first
    this.end = end
  }

  countLive(): number {
    const { consumed } = this.segment
    if (consumed.live === consumed.records) return this.end - this.first
    let count = 0
    for (let i = this.first; i < this.end; i++) if (!consumed.has(i)) count++
    return count
  }

  /** Moves the ends over consumed records. False when nothing is left. */
  skipConsumed(): boolean {
    const { consumed } = this.segment
    while (this.first < this.end && consumed.has(this.first)) this.first++
    while (this.end > this.first && consumed.has(this.end - 1)) this.end--
    return this.first < this.end
  }
}

/** How a lane gets at what lies in segments. */
export interface LaneReader {
  /** A record of the run, most often one that was read ahead. */
  record(run: Run, ordinal: number): SegmentRecord
  /** Its entry in memory. */
  entry(lane: Lane, segment: Segment, ordinal: number, record: SegmentRecord): JobEntry
}

/** What a checkpoint is writing into a segment: still served from memory, its places in the segment already given. */
export interface FrozenPart {
  /** By rising id; those in [from, to) are not taken yet. */
  readonly jobs: readonly JobEntry[]
  from: number
  to: number
  /** Segment and ordinal of the i-th job of the original order. */
  readonly place: (i: number) => { segment: Segment; ordinal: number }
}

export class Lane {
  readonly bucket: Bucket
  readonly slot: Slot
  /** Jobs in memory, by rising id. */
  jobs = new JobDeque()
  /** Jobs that came back, by rising id; usually few. */
  returned: JobEntry[] = []
  frozen: FrozenPart | undefined = undefined
  runs: Run[] = []
  /** Ready jobs in all of them. */
  count = 0
  /** Position among the slot's lanes. */
  heapIndex = -1
  /** Pruned while it had no ready jobs: whoever still holds it looks it up again. */
  detached = false

  constructor(bucket: Bucket, slot: Slot) {
    this.bucket = bucket
    this.slot = slot
  }

  push(job: JobEntry): void {
    this.jobs.push(job)
    this.count++
  }

  /** A job that was out: into its old place. */
  giveBack(job: JobEntry): void {
    const { returned } = this
    let low = 0
    let high = returned.length
    while (low < high) {
      const middle = (low + high) >>> 1
      if (returned[middle].id < job.id) low = middle + 1
      else high = middle
    }
    if (low === returned.length) returned.push(job)
    else returned.splice(low, 0, job)
    this.count++
  }

  addRun(segment: Segment, first: number, end: number): void {
    const run = new Run(segment, first, end)
    if (!run.skipConsumed()) return
    this.runs.push(run)
    this.count += run.countLive()
  }

  /** One job of a run in `segment` was consumed from outside. */
  movedFrom(segment: Segment): void {
    this.count--
    this.runs = this.runs.filter((run) => {
      if (run.segment !== segment) return true
      run.nextId = -1
      return run.skipConsumed()
    })
  }

  /** The checkpoint is committed: what was frozen is served from its segments. `count` already holds these jobs. */
  thaw(runs: readonly Run[]): void {
    this.frozen = undefined
    for (const run of runs) if (run.skipConsumed()) this.runs.push(run)
  }

  /** The checkpoint failed: what was frozen stays in memory. */
  unfreeze(): void {
    const { jobs, from, to } = this.frozen as FrozenPart
    this.jobs = JobDeque.from([...jobs.slice(from, to), ...this.jobs])
    this.frozen = undefined
  }

  /**
   * Takes the next job out. A job from a segment is read and marked consumed there. May throw when the segment cannot be
   * read: then nothing changed.
   */
  take(lifo: boolean, reader: LaneReader): JobEntry {
    assert(this.count > 0)
    if (this.frozen === undefined && this.returned.length === 0) {
      if (this.runs.length === 0) {
        this.count--
        return lifo ? this.jobs.pop() : this.jobs.shift()
      }
      if (this.runs.length === 1 && this.jobs.length === 0) return this.takeFromRun(this.runs[0], lifo, reader)
    }
    return this.takeBest(lifo, reader)
  }

  private takeBest(lifo: boolean, reader: LaneReader): JobEntry {
    const sign = lifo ? -1 : 1
    let best = Infinity
    let source: JobDeque | JobEntry[] | FrozenPart | Run | undefined
    const offer = (id: number, from: typeof source): void => {
      if (sign * id < best) {
        best = sign * id
        source = from
      }
    }
    const inMemory = lifo ? this.jobs.last() : this.jobs.first()
    if (inMemory !== undefined) offer(inMemory.id, this.jobs)
    const { returned, frozen } = this
    if (returned.length > 0) offer(returned[lifo ? returned.length - 1 : 0].id, returned)
    if (frozen !== undefined && frozen.from < frozen.to) {
      offer(frozen.jobs[lifo ? frozen.to - 1 : frozen.from].id, frozen)
    }
    for (const run of this.runs) offer(this.headId(run, lifo, reader), run)
    assert(source !== undefined, 'a lane that counts jobs has one')
    if (source instanceof Run) return this.takeFromRun(source, lifo, reader)
    this.count--
    if (source === returned) return (lifo ? returned.pop() : returned.shift()) as JobEntry
    if (source instanceof JobDeque) return lifo ? source.pop() : source.shift()
    return this.takeFrozen(source as FrozenPart, lifo)
  }

  private takeFrozen(frozen: FrozenPart, lifo: boolean): JobEntry {
    const at = lifo ? --frozen.to : frozen.from++
    const job = frozen.jobs[at]
    const { segment, ordinal } = frozen.place(at)
    // Whether the segment becomes real is open: replay finds the job by id if it does not.
    segment.consume(ordinal)
    job.home = segment
    job.ordinal = ordinal
    return job
  }

  private headId(run: Run, lifo: boolean, reader: LaneReader): number {
    if (run.nextId < 0) {
      const record = reader.record(run, lifo ? run.end - 1 : run.first)
      run.nextId = this.bucket.readId(record)
    }
    return run.nextId
  }

  private takeFromRun(run: Run, lifo: boolean, reader: LaneReader): JobEntry {
    const ordinal = lifo ? run.end - 1 : run.first
    const job = reader.entry(this, run.segment, ordinal, reader.record(run, ordinal))
    run.segment.consume(ordinal)
    run.nextId = -1
    if (!run.skipConsumed()) this.runs.splice(this.runs.indexOf(run), 1)
    this.count--
    return job
  }
}
