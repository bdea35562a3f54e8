/** Jobs by rising id, taken from either end: a ring that grows by doubling. */
import { assert } from '../assert.js'
import type { JobEntry } from './job-entry.js'

export class JobDeque {
  private ring: (JobEntry | undefined)[] = []
  private head = 0
  length = 0
  /** Of the job records. */
  bytes = 0

  private index(i: number): number {
    return (this.head + i) & (this.ring.length - 1)
  }

  at(i: number): JobEntry {
    return this.ring[this.index(i)] as JobEntry
  }

  first(): JobEntry | undefined {
    return this.length === 0 ? undefined : this.ring[this.head]
  }

  last(): JobEntry | undefined {
    return this.length === 0 ? undefined : this.ring[this.index(this.length - 1)]
  }

  push(job: JobEntry): void {
    assert(this.length === 0 || job.id > (this.last() as JobEntry).id, 'ids rise')
    if (this.length === this.ring.length) this.grow()
    this.ring[this.index(this.length)] = job
    this.length++
    this.bytes += job.length
  }

  shift(): JobEntry {
    assert(this.length > 0)
    const job = this.ring[this.head] as JobEntry
    this.ring[this.head] = undefined
    this.head = (this.head + 1) & (this.ring.length - 1)
    this.length--
    this.bytes -= job.length
    return job
  }

  pop(): JobEntry {
    assert(this.length > 0)
    const at = this.index(this.length - 1)
    const job = this.ring[at] as JobEntry
    this.ring[at] = undefined
    this.length--
    this.bytes -= job.length
    return job
  }

  /** In order; quick, since a checkpoint does it for every lane in one turn. */
  toArray(): JobEntry[] {
    const end = this.head + this.length
    const { ring, head } = this
    const jobs = end <= ring.length ? ring.slice(head, end) : ring.slice(head).concat(ring.slice(0, end - ring.length))
    return jobs as JobEntry[]
  }

  private grow(): void {
    const next: (JobEntry | undefined)[] = new Array(this.ring.length === 0 ? 4 : this.ring.length * 2)
    for (let i = 0; i < this.length; i++) next[i] = this.at(i)
    for (let i = this.length; i < next.length; i++) next[i] = undefined
    this.ring = next
    this.head = 0
  }

  *[Symbol.iterator](): Generator<JobEntry> {
    for (let i = 0; i < this.length; i++) yield this.at(i)
  }

  static from(jobs: Iterable<JobEntry>): JobDeque {
    const deque = new JobDeque()
    for (const job of jobs) deque.push(job)
    return deque
  }
}
