/** Jobs of one lane that came back, the next to be served on top: a heap by id, since many may come back at once. */
import type { JobEntry } from './job-entry.js'

export class ReturnedJobs {
  private readonly heap: JobEntry[] = []
  private readonly lifo: boolean

  constructor(lifo: boolean) {
    this.lifo = lifo
  }

  get size(): number {
    return this.heap.length
  }

  peek(): JobEntry | undefined {
    return this.heap[0]
  }

  /** In no order. */
  all(): readonly JobEntry[] {
    return this.heap
  }

  private before(a: JobEntry, b: JobEntry): boolean {
    return this.lifo ? a.id > b.id : a.id < b.id
  }

  push(job: JobEntry): void {
    const { heap } = this
    let at = heap.push(job) - 1
    while (at > 0) {
      const parent = (at - 1) >> 1
      if (!this.before(job, heap[parent])) break
      heap[at] = heap[parent]
      at = parent
    }
    heap[at] = job
  }

  pop(): JobEntry {
    const { heap } = this
    const top = heap[0]
    const last = heap.pop() as JobEntry
    if (heap.length === 0) return top
    let at = 0
    for (;;) {
      let child = at * 2 + 1
      if (child >= heap.length) break
      if (child + 1 < heap.length && this.before(heap[child + 1], heap[child])) child++
      if (!this.before(heap[child], last)) break
      heap[at] = heap[child]
      at = child
    }
    heap[at] = last
    return top
  }
}
