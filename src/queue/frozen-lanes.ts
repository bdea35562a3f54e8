/**
 * What a running checkpoint is writing into segments: lists of waiting jobs, still served from memory, whose places in the
 * segments are given already. Columns by the number of the frozen lane, so that freezing a quarter of a million lanes
 * makes no object.
 *
 * Invariant: the nodes of a frozen list stay until the checkpoint ends, taken or not: the writer is walking over them.
 */
import type { Segment } from '../store/segment.js'

export class FrozenLanes {
  readonly lanes: number[] = []
  /** First node of the list, which is in the order of service, and its id: not beyond that of any other. */
  readonly heads: number[] = []
  readonly bounds: number[] = []
  /** The next node to be served, and how many there are from it on. */
  readonly cursors: number[] = []
  readonly left: number[] = []
  readonly totals: number[] = []
  private readonly firstParts: number[] = []
  /** Parts of lanes: below this index (by rising id) the jobs lie in the segment, from `base` on. */
  private readonly partEnds: number[] = []
  private readonly partSegments: Segment[] = []
  private readonly partBases: number[] = []

  get count(): number {
    return this.lanes.length
  }

  /** Its parts follow by `addPart`. */
  add(lane: number, head: number, total: number, bound: number): number {
    this.heads.push(head)
    this.bounds.push(bound)
    this.cursors.push(head)
    this.left.push(total)
    this.totals.push(total)
    this.firstParts.push(this.partEnds.length)
    return this.lanes.push(lane) - 1
  }

  /** Of the lane that was added last. */
  addPart(end: number, segment: Segment, base: number): void {
    this.partEnds.push(end)
    this.partSegments.push(segment)
    this.partBases.push(base)
  }

  /** Segment and ordinal of the i-th job by rising id. */
  place(frozen: number, i: number): { segment: Segment; ordinal: number } {
    let part = this.firstParts[frozen]
    while (i >= this.partEnds[part]) part++
    const from = part === this.firstParts[frozen] ? 0 : this.partEnds[part - 1]
    return { segment: this.partSegments[part], ordinal: this.partBases[part] + i - from }
  }

  /** Each part of the lane as a range of ordinals. */
  forEachPart(frozen: number, visit: (segment: Segment, first: number, end: number) => void): void {
    const behind = frozen + 1 < this.firstParts.length ? this.firstParts[frozen + 1] : this.partEnds.length
    let from = 0
    for (let part = this.firstParts[frozen]; part < behind; part++) {
      const base = this.partBases[part]
      visit(this.partSegments[part], base, base + this.partEnds[part] - from)
      from = this.partEnds[part]
    }
  }
}
