/**
 * The live jobs that a replay knows, by id. Those the journal added have ids in a row from the first on, and stand in typed
 * arrays as nodes of the job table as long as they only wait; those it carried, and those that were out, are objects.
 */
import type { JobEntry } from '../queue/job-entry.js'

/** Ids that were given and not written leave gaps; a far one is kept apart, or the arrays would be mostly holes. */
const GAP_MAX = 1_000_000
const COUNT_MIN = 1024

export class ReplayedJobs {
  private readonly base: number
  /** Node + 1 of the job `base + i`, or 0; and its lane. */
  private nodes = new Int32Array(COUNT_MIN)
  private lanes = new Int32Array(COUNT_MIN)
  private end = 0
  private readonly objects = new Map<number, JobEntry>()

  constructor(base: number) {
    this.base = base
  }

  /** Whether the job may be a node: its id is in the row that this journal began. */
  isRecent(id: number): boolean {
    return id >= this.base && id - this.base <= this.end + GAP_MAX
  }

  /** -1: it is no node. */
  nodeOf(id: number): number {
    const at = id - this.base
    return at >= 0 && at < this.end ? this.nodes[at] - 1 : -1
  }

  /** Of one that is a node. */
  laneOf(id: number): number {
    return this.lanes[id - this.base]
  }

  entryOf(id: number): JobEntry | undefined {
    return this.objects.get(id)
  }

  has(id: number): boolean {
    return this.nodeOf(id) >= 0 || this.objects.has(id)
  }

  setNode(id: number, node: number, lane: number): void {
    const at = id - this.base
    if (at >= this.nodes.length) this.grow(at + 1)
    this.nodes[at] = node + 1
    this.lanes[at] = lane
    if (at >= this.end) this.end = at + 1
  }

  private grow(count: number): void {
    const length = Math.max(count, this.nodes.length * 2)
    const nodes = new Int32Array(length)
    const lanes = new Int32Array(length)
    nodes.set(this.nodes)
    lanes.set(this.lanes)
    this.nodes = nodes
    this.lanes = lanes
  }

  set(id: number, entry: JobEntry): void {
    const at = id - this.base
    if (at >= 0 && at < this.end) this.nodes[at] = 0
    this.objects.set(id, entry)
  }

  delete(id: number): void {
    const at = id - this.base
    if (at >= 0 && at < this.end && this.nodes[at] !== 0) this.nodes[at] = 0
    else this.objects.delete(id)
  }

  entries(): IterableIterator<JobEntry> {
    return this.objects.values()
  }

  /** By rising id. */
  forEachNode(visit: (node: number, lane: number) => void): void {
    for (let at = 0; at < this.end; at++) if (this.nodes[at] !== 0) visit(this.nodes[at] - 1, this.lanes[at])
  }
}
