/**
 * One politeness key (a host): its lanes, its leases at work, its clock. Its clock outlives its jobs: an emptied and
 * refilled host keeps its delay.
 */

import { compareBuckets } from './bucket.js'
import { IndexedHeap } from './indexed-heap.js'
import type { Lane } from './lane.js'

export interface SlotLimits {
  /** Leases at once. */
  readonly concurrency: number
  readonly delayMs: number
}

export class Slot {
  readonly name: string
  readonly limits: SlotLimits
  /** Leases out now. */
  active = 0
  /** Wall ms before which nothing of this slot is handed out. */
  notBefore = 0
  /** Rises with each hand-out: the slot served longest ago is first among equals. */
  turn = 0
  /** Position in the heap of slots that may be served, or in that of those that wait for their clock. */
  heapIndex = -1
  waitIndex = -1
  /** Lanes that have jobs, best bucket first. */
  readonly lanes = new IndexedHeap<Lane>(
    (a, b) => compareBuckets(a.bucket, b.bucket) < 0,
    (lane) => lane.heapIndex,
    (lane, index) => {
      lane.heapIndex = index
    },
  )

  constructor(name: string, limits: SlotLimits) {
    this.name = name
    this.limits = limits
  }
}
