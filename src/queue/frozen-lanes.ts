/**
 * What a running checkpoint is writing into segments: lists of waiting jobs, still served from memory, whose places in the
 * segments are given already. Columns by the number of the frozen lane, so that freezing a quarter of a million lanes
 * makes no object.
 *
 * Invariant: the nodes of a frozen list stay until the checkpoint ends, taken or not: the writer is walking over them.
 */
import type { Segment } from '../store/segment.js'
import { IntColumn } from './int-column.js'

export class FrozenLanes {
  readonly lanes = new IntColumn()
  /** First node of the list, which is in the order of service: no other of the list has an id before its own. */
  readonly heads = new IntColumn()
  /** The next node to be served, and how many there are from it on. */
  readonly cursors = new IntColumn()
  readonly left = new IntColumn()
  readonly totals = new IntColumn()
  private readonly firstParts = new IntColumn()
  /** Parts of lanes: below this index (by rising id) the jobs lie in the segment of that number, from `base` on. */
  private readonly partEnds = new IntColumn()
  private readonly partSegments = new IntColumn()
  private readonly partBases = new IntColumn()
  private readonly segments: Segment[] = []

  get count(): number {
    return this.lanes.length
  }

  /** Its parts follow by `addPart`. */
  add(lane: number, head: number, total: number): number {
    this.heads.push(head)
    this.cursors.push(head)
    this.left.push(total)
    this.totals.push(total)
    this.firstParts.push(this.partEnds.length)
    this.lanes.push(lane)
    return this.lanes.length - 1
  }

  /** Of the lane that was added last. The parts of a segment follow one another. */
  addPart(end: number, segment: Segment, base: number): void {
    this.partEnds.push(end)
    if (this.segments.at(-1) !== segment) this.segments.push(segment)
    this.partSegments.push(this.segments.length - 1)
    this.partBases.push(base)
  }

  /** Segment and ordinal of the i-th job by rising id. */
  place(frozen: number, i: number): { segment: Segment; ordinal: number } {
    let part = this.firstParts.at(frozen)
    while (i >= this.partEnds.at(part)) part++
    const from = part === this.firstParts.at(frozen) ? 0 : this.partEnds.at(part - 1)
    return { segment: this.segments[this.partSegments.at(part)], ordinal: this.partBases.at(part) + i - from }
  }

  /** Each part of the lane as a range of ordinals. */
  forEachPart(frozen: number, visit: (segment: Segment, first: number, end: number) => void): void {
    const behind = frozen + 1 < this.firstParts.length ? this.firstParts.at(frozen + 1) : this.partEnds.length
    let from = 0
    for (let part = this.firstParts.at(frozen); part < behind; part++) {
      const base = this.partBases.at(part)
      visit(this.segments[this.partSegments.at(part)], base, base + this.partEnds.at(part) - from)
      from = this.partEnds.at(part)
    }
  }
}
