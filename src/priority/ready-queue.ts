/**
 * Which job is next. Slots that may be served stand in one heap, ordered by their best bucket, then by fewest leases at
 * work, then by who was served longest ago: highest priority first, no host starves, and names do not matter.
 * A take costs O(log slots). Slots whose clock has not come stand in a second heap; slots at their concurrency in none.
 */
import { type Bucket, compareBuckets } from '../queue/bucket.js'
import { IntHeap } from '../queue/int-heap.js'
import type { JobEntry } from '../queue/job-entry.js'
import type { JobTable } from '../queue/job-table.js'
import { COUNT, type LaneReader, LaneTable } from '../queue/lane-table.js'
import { ACTIVE, BEST, ELIGIBLE, type SlotLimits, SlotTable, WAITING } from '../queue/slot-table.js'
import type { Segment } from '../store/segment.js'

/** Slots looked at between two pauses while idle ones are forgotten. */
const PRUNE_SLICE_COUNT = 10_000

/** A pause never shortens a delay or a longer pause; 0 ends both. */
export function laterClock(current: number, untilMs: number): number {
  return untilMs === 0 ? 0 : Math.max(current, untilMs)
}

export class ReadyQueue {
  readonly lanes: LaneTable
  readonly slots: SlotTable
  /** Ready jobs, eligible or not. */
  count = 0
  private readonly eligible: IntHeap
  private readonly waiting: IntHeap
  /** Wall ms as of the last call that told it. */
  private now = 0

  /** `seed` is random: it keeps whoever chooses names from choosing where they are put. */
  constructor(jobs: JobTable, lifo: boolean, limitsOf: (slot: string) => SlotLimits, seed: number) {
    this.lanes = new LaneTable(jobs, lifo)
    this.slots = new SlotTable(this.lanes, limitsOf, seed)
    const { lanes, slots } = this
    this.eligible = new IntHeap(
      (a, b) => {
        const bestA = slots.get(a, BEST)
        const bestB = slots.get(b, BEST)
        if (lanes.bucketOf(bestA) !== lanes.bucketOf(bestB)) {
          return compareBuckets(lanes.bucket(bestA), lanes.bucket(bestB)) < 0
        }
        const active = slots.get(a, ACTIVE) - slots.get(b, ACTIVE)
        return active !== 0 ? active < 0 : slots.turnOf(a) < slots.turnOf(b)
      },
      (slot, position) => slots.set(slot, ELIGIBLE, position),
    )
    this.waiting = new IntHeap(
      (a, b) => slots.notBefore(a) < slots.notBefore(b),
      (slot, position) => slots.set(slot, WAITING, position),
    )
  }

  slot(name: string): number {
    return this.slots.of(name, 0, name.length)
  }

  lane(bucket: Bucket, slotName: string): number {
    return this.laneOf(bucket, this.slot(slotName))
  }

  laneOf(bucket: Bucket, slot: number): number {
    const known = this.slots.findLane(slot, bucket.number)
    if (known >= 0) return known
    const lane = this.lanes.make(bucket, slot)
    this.slots.addLane(slot, lane, bucket.number)
    return lane
  }

  slotName(lane: number): string {
    return this.slots.name(this.lanes.slotOf(lane))
  }

  /** A new job, as a settled node. */
  push(lane: number, node: number): void {
    this.count++
    if (this.lanes.push(lane, node) === 1) this.filled(lane)
  }

  giveBack(job: JobEntry): void {
    this.count++
    if (this.lanes.giveBack(job) === 1) this.filled(job.lane)
  }

  /** A job of the lane was taken out of `segment` by other means than `take`; `giveBack` follows. */
  moved(lane: number, segment: Segment, reader: LaneReader): void {
    this.count--
    if (this.lanes.movedFrom(lane, segment, reader) === 0) this.emptied(lane)
  }

  /** For recovery: jobs that lie in a segment, their ids in [lowest, highest]. */
  addRun(lane: number, segment: Segment, first: number, end: number, lowest: number, highest: number): void {
    const before = this.lanes.get(lane, COUNT)
    const added = this.lanes.addRun(lane, segment, first, end, lowest, highest)
    this.count += added
    if (before === 0 && added > 0) this.filled(lane)
  }

  private filled(lane: number): void {
    const slot = this.lanes.slotOf(lane)
    this.lanes.bucket(lane).readyLanes++
    this.slots.laneFilled(slot, lane)
    this.place(slot)
  }

  private emptied(lane: number): void {
    const slot = this.lanes.slotOf(lane)
    this.lanes.bucket(lane).readyLanes--
    this.slots.laneEmptied(slot, lane)
    this.place(slot)
  }

  /** Puts the slot where its state says it belongs. */
  private place(slot: number): void {
    const { slots, eligible, waiting } = this
    const mayServe = slots.get(slot, BEST) >= 0 && slots.get(slot, ACTIVE) < slots.limitsOfSlot(slot).concurrency
    const waits = mayServe && slots.notBefore(slot) > this.now
    const wasWaiting = slots.get(slot, WAITING)
    const wasEligible = slots.get(slot, ELIGIBLE)
    if (waits) {
      if (wasEligible >= 0) eligible.remove(wasEligible)
      if (wasWaiting >= 0) waiting.update(wasWaiting)
      else waiting.push(slot)
      return
    }
    if (wasWaiting >= 0) waiting.remove(wasWaiting)
    if (!mayServe) {
      if (wasEligible >= 0) eligible.remove(wasEligible)
    } else if (wasEligible >= 0) eligible.update(wasEligible)
    else eligible.push(slot)
  }

  /** Lets slots whose clock has come be served again. */
  tick(now: number): void {
    this.now = now
    for (;;) {
      const slot = this.waiting.peek()
      if (slot < 0 || this.slots.notBefore(slot) > now) return
      this.waiting.remove(0)
      this.place(slot)
    }
  }

  /** The next eligible job, held, its slot counted as active and its clock moved on; undefined when none is eligible. */
  take(now: number, reader: LaneReader): JobEntry | undefined {
    this.tick(now)
    const slot = this.eligible.peek()
    if (slot < 0) return undefined
    const { slots, lanes } = this
    const lane = slots.get(slot, BEST)
    const job = lanes.take(lane, reader)
    this.count--
    slots.set(slot, ACTIVE, slots.get(slot, ACTIVE) + 1)
    slots.served(slot)
    const { delayMs } = slots.limitsOfSlot(slot)
    if (delayMs > 0) slots.setNotBefore(slot, Math.max(slots.notBefore(slot), now + delayMs))
    if (lanes.get(lane, COUNT) === 0) this.emptied(lane)
    else this.place(slot)
    return job
  }

  /** A lease of the slot ended. */
  leaseEnded(slot: number): void {
    this.slots.set(slot, ACTIVE, this.slots.get(slot, ACTIVE) - 1)
    this.place(slot)
  }

  /** Nothing of the slot is handed out before `untilMs`; 0 ends a pause. */
  setClock(slot: number, untilMs: number): void {
    this.slots.setNotBefore(slot, laterClock(this.slots.notBefore(slot), untilMs))
    this.place(slot)
  }

  /** Wall ms at which the first waiting slot may be served; Infinity when none waits. */
  get nextEligibleAt(): number {
    const slot = this.waiting.peek()
    return slot < 0 ? Infinity : this.slots.notBefore(slot)
  }

  /** Forgets slots without jobs, leases or a running clock, and lanes without jobs. Consistent at every pause. */
  async prune(now: number, pause: () => Promise<void>): Promise<void> {
    const { slots } = this
    for (let slot = 0; slot < slots.end; slot++) {
      if (slots.has(slot)) slots.prune(slot, now)
      if ((slot + 1) % PRUNE_SLICE_COUNT === 0) await pause()
    }
    slots.compactNames()
  }
}
