/**
 * Which job is next. Slots that may be served stand in one heap, ordered by their best bucket, then by fewest leases at
 * work, then by who was served longest ago: highest priority first, no host starves, and names do not matter.
 * A take costs O(log slots). Slots whose clock has not come stand in a second heap; slots at their concurrency in none.
 */

import { type Bucket, compareBuckets } from '../queue/bucket.js'
import { IndexedHeap } from '../queue/indexed-heap.js'
import type { JobEntry } from '../queue/job-entry.js'
import { Lane, type LaneReader } from '../queue/lane.js'
import { Slot, type SlotLimits } from '../queue/slot.js'
import type { Segment } from '../store/segment.js'

/** A pause never shortens a delay or a longer pause; 0 ends both. */
export function laterClock(current: number, untilMs: number): number {
  return untilMs === 0 ? 0 : Math.max(current, untilMs)
}

export class ReadyQueue {
  readonly slots = new Map<string, Slot>()
  /** Ready jobs, eligible or not. */
  count = 0
  private readonly lifo: boolean
  private readonly limitsOf: (slot: string) => SlotLimits
  private turn = 0
  private readonly eligible = new IndexedHeap<Slot>(
    (a, b) => {
      const order = compareBuckets((a.lanes.peek() as Lane).bucket, (b.lanes.peek() as Lane).bucket)
      if (order !== 0) return order < 0
      return a.active !== b.active ? a.active < b.active : a.turn < b.turn
    },
    (slot) => slot.heapIndex,
    (slot, index) => {
      slot.heapIndex = index
    },
  )
  private readonly waiting = new IndexedHeap<Slot>(
    (a, b) => a.notBefore < b.notBefore,
    (slot) => slot.waitIndex,
    (slot, index) => {
      slot.waitIndex = index
    },
  )

  constructor(lifo: boolean, limitsOf: (slot: string) => SlotLimits) {
    this.lifo = lifo
    this.limitsOf = limitsOf
  }

  slot(name: string): Slot {
    let slot = this.slots.get(name)
    if (slot === undefined) {
      slot = new Slot(name, this.limitsOf(name))
      slot.turn = ++this.turn
      this.slots.set(name, slot)
    }
    return slot
  }

  lane(bucket: Bucket, slotName: string): Lane {
    let lane = bucket.lanes.get(slotName)
    if (lane === undefined) {
      lane = new Lane(bucket, this.slot(slotName))
      bucket.lanes.set(slotName, lane)
    }
    return lane
  }

  push(job: JobEntry): void {
    job.lane.push(job)
    this.count++
    if (job.lane.count === 1) this.filled(job.lane)
  }

  giveBack(job: JobEntry): void {
    if (job.lane.detached) job.lane = this.lane(job.lane.bucket, job.lane.slot.name)
    job.lane.giveBack(job)
    this.count++
    if (job.lane.count === 1) this.filled(job.lane)
  }

  /** A job of the lane was taken out of `segment` by other means than `take`; `giveBack` follows. */
  moved(lane: Lane, segment: Segment): void {
    lane.movedFrom(segment)
    this.count--
    if (lane.count === 0) this.emptied(lane)
  }

  private emptied(lane: Lane): void {
    const { slot } = lane
    // Out of the eligible heap first: a slot without lanes has no place in its order.
    if (slot.lanes.size === 1 && this.eligible.has(slot)) this.eligible.remove(slot)
    slot.lanes.remove(lane)
    this.place(slot)
  }

  /** For recovery: jobs that lie in a segment. */
  addRun(lane: Lane, segment: Segment, first: number, end: number): void {
    const before = lane.count
    lane.addRun(segment, first, end)
    this.count += lane.count - before
    if (before === 0 && lane.count > 0) this.filled(lane)
  }

  private filled(lane: Lane): void {
    lane.slot.lanes.push(lane)
    this.place(lane.slot)
  }

  /** Puts the slot where its state says it belongs. */
  private place(slot: Slot): void {
    const hasJobs = slot.lanes.size > 0
    const mayServe = hasJobs && slot.active < slot.limits.concurrency
    const waits = mayServe && slot.notBefore > this.now
    if (waits) {
      if (this.eligible.has(slot)) this.eligible.remove(slot)
      if (this.waiting.has(slot)) this.waiting.update(slot)
      else this.waiting.push(slot)
      return
    }
    if (this.waiting.has(slot)) this.waiting.remove(slot)
    if (!mayServe) {
      if (this.eligible.has(slot)) this.eligible.remove(slot)
    } else if (this.eligible.has(slot)) this.eligible.update(slot)
    else this.eligible.push(slot)
  }

  /** Wall ms as of the last call that told it. */
  private now = 0

  /** Lets slots whose clock has come be served again. */
  tick(now: number): void {
    this.now = now
    for (;;) {
      const slot = this.waiting.peek()
      if (slot === undefined || slot.notBefore > now) return
      this.waiting.remove(slot)
      this.place(slot)
    }
  }

  /** The next eligible job, its slot counted as active and its clock moved on; undefined when none is eligible. */
  take(now: number, reader: LaneReader): JobEntry | undefined {
    this.tick(now)
    const slot = this.eligible.peek()
    if (slot === undefined) return undefined
    const lane = slot.lanes.peek() as Lane
    const job = lane.take(this.lifo, reader)
    this.count--
    slot.active++
    slot.turn = ++this.turn
    if (slot.limits.delayMs > 0) slot.notBefore = Math.max(slot.notBefore, now + slot.limits.delayMs)
    if (lane.count === 0) this.emptied(lane)
    else this.place(slot)
    return job
  }

  /** The bucket the next take would serve from, if a job is eligible now. */
  peekLane(now: number): Lane | undefined {
    this.tick(now)
    return this.eligible.peek()?.lanes.peek()
  }

  /** A lease of the slot ended. */
  leaseEnded(slot: Slot): void {
    slot.active--
    this.place(slot)
  }

  /** Nothing of the slot is handed out before `untilMs`; 0 ends a pause. */
  setClock(slot: Slot, untilMs: number): void {
    slot.notBefore = laterClock(slot.notBefore, untilMs)
    this.place(slot)
  }

  /** Wall ms at which the first waiting slot may be served; Infinity when none waits. */
  get nextEligibleAt(): number {
    return this.waiting.peek()?.notBefore ?? Infinity
  }

  get anyEligible(): boolean {
    return this.eligible.size > 0
  }

  /** Forgets slots without ready jobs, leases or a running clock, and their lanes. */
  prune(buckets: Iterable<Bucket>, now: number): void {
    const idle = (slot: Slot): boolean => slot.lanes.size === 0 && slot.active === 0 && slot.notBefore <= now
    for (const bucket of buckets) {
      for (const [name, lane] of bucket.lanes) {
        if (!idle(lane.slot)) continue
        lane.detached = true
        bucket.lanes.delete(name)
      }
    }
    for (const [name, slot] of this.slots) if (idle(slot)) this.slots.delete(name)
  }
}
