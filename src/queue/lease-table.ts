/**
 * Who works on what, until when. A token is the opening's epoch and a counter, so no two hand-outs ever share one and a
 * token from before a restart is never valid. Deadlines are monotonic time.
 */
import { IndexedHeap } from './indexed-heap.js'
import type { JobEntry } from './job-entry.js'

export class LeaseEntry {
  readonly job: JobEntry
  readonly number: number
  /** Monotonic ms. */
  deadline: number
  heapIndex = -1
  /** `settling`: its end is in a batch that is not applied yet. */
  state: 'live' | 'settling' | 'over' = 'live'
  /** The hand-out is on disk, or its end will be. */
  marked = false
  controller: AbortController | undefined = undefined

  constructor(job: JobEntry, number: number, deadline: number) {
    this.job = job
    this.number = number
    this.deadline = deadline
  }

  abort(reason: unknown): void {
    this.controller?.abort(reason)
  }
}

export class LeaseTable {
  private nextNumber = 1
  private readonly heap = new IndexedHeap<LeaseEntry>(
    (a, b) => a.deadline < b.deadline || (a.deadline === b.deadline && a.number < b.number),
    (lease) => lease.heapIndex,
    (lease, index) => {
      lease.heapIndex = index
    },
  )

  get size(): number {
    return this.heap.size
  }

  grant(job: JobEntry, deadline: number): LeaseEntry {
    const lease = new LeaseEntry(job, this.nextNumber++, deadline)
    this.heap.push(lease)
    return lease
  }

  extend(lease: LeaseEntry, deadline: number): void {
    lease.deadline = deadline
    this.heap.update(lease)
  }

  end(lease: LeaseEntry): void {
    lease.state = 'over'
    this.heap.remove(lease)
  }

  /** Monotonic ms of the first deadline; Infinity when nothing is leased. */
  get nextDeadline(): number {
    return this.heap.peek()?.deadline ?? Infinity
  }

  /** The lease that ran out longest ago, if one has. */
  due(nowMonotonic: number): LeaseEntry | undefined {
    const first = this.heap.peek()
    return first !== undefined && first.deadline <= nowMonotonic ? first : undefined
  }

  values(): readonly LeaseEntry[] {
    return this.heap.values()
  }
}
