/**
 * Runs: the ordinals of one sealed segment that belong to one lane, linked from the lane. Six words each: with a million
 * hosts there are millions of them.
 *
 * Invariant: what is left of a run lies in [first, end), and its bound is not beyond the id of the next record: below or
 * equal for fifo, above or equal for lifo. So a run is read only when its bound is the best there is.
 */
import type { Segment } from '../store/segment.js'
import { PAGE_BITS, PAGE_MASK, RecordPages } from './record-pages.js'

const WORDS = 6
const SEGMENT = 0
const FIRST = 1
const END = 2
const NEXT = 3
const BOUND_LOW = 4
/** The upper 21 bits of the bound; the top bit is set when the bound is the id of the next record itself. */
const BOUND_HIGH = 5
const TWO_32 = 2 ** 32
const HIGH_MASK = 0x1fffff
const EXACT = 0x80000000 | 0

export class RunTable {
  private readonly records = new RecordPages(WORDS)
  private readonly pages = this.records.pages
  private readonly segments = new Map<number, { segment: Segment; runs: number }>()

  add(segment: Segment, first: number, end: number, next: number, bound: number): number {
    const known = this.segments.get(segment.id)
    if (known === undefined) this.segments.set(segment.id, { segment, runs: 1 })
    else known.runs++
    const run = this.records.allocate()
    const page = this.pages[run >>> PAGE_BITS]
    const at = (run & PAGE_MASK) * WORDS
    page[at + SEGMENT] = segment.id
    page[at + FIRST] = first
    page[at + END] = end
    page[at + NEXT] = next
    page[at + BOUND_LOW] = bound
    page[at + BOUND_HIGH] = bound / TWO_32
    return run
  }

  free(run: number): void {
    const id = this.pages[run >>> PAGE_BITS][(run & PAGE_MASK) * WORDS + SEGMENT]
    const known = this.segments.get(id) as { segment: Segment; runs: number }
    if (--known.runs === 0) this.segments.delete(id)
    this.records.free(run)
  }

  segment(run: number): Segment {
    const id = this.pages[run >>> PAGE_BITS][(run & PAGE_MASK) * WORDS + SEGMENT]
    return (this.segments.get(id) as { segment: Segment }).segment
  }

  first(run: number): number {
    return this.pages[run >>> PAGE_BITS][(run & PAGE_MASK) * WORDS + FIRST]
  }

  end(run: number): number {
    return this.pages[run >>> PAGE_BITS][(run & PAGE_MASK) * WORDS + END]
  }

  next(run: number): number {
    return this.pages[run >>> PAGE_BITS][(run & PAGE_MASK) * WORDS + NEXT]
  }

  setNext(run: number, next: number): void {
    this.pages[run >>> PAGE_BITS][(run & PAGE_MASK) * WORDS + NEXT] = next
  }

  bound(run: number): number {
    const page = this.pages[run >>> PAGE_BITS]
    const at = (run & PAGE_MASK) * WORDS
    return (page[at + BOUND_HIGH] & HIGH_MASK) * TWO_32 + (page[at + BOUND_LOW] >>> 0)
  }

  isExact(run: number): boolean {
    return this.pages[run >>> PAGE_BITS][(run & PAGE_MASK) * WORDS + BOUND_HIGH] < 0
  }

  setExact(run: number, id: number): void {
    const page = this.pages[run >>> PAGE_BITS]
    const at = (run & PAGE_MASK) * WORDS
    page[at + BOUND_LOW] = id
    page[at + BOUND_HIGH] = (id / TWO_32) | EXACT
  }

  /** The next record is another one now: the bound holds, but is not its id. */
  inexact(run: number): void {
    this.pages[run >>> PAGE_BITS][(run & PAGE_MASK) * WORDS + BOUND_HIGH] &= HIGH_MASK
  }

  /** Moves the ends over consumed records. False when nothing is left. */
  skipConsumed(run: number): boolean {
    const page = this.pages[run >>> PAGE_BITS]
    const at = (run & PAGE_MASK) * WORDS
    const { consumed } = this.segment(run)
    let first = page[at + FIRST]
    let end = page[at + END]
    while (first < end && consumed.has(first)) first++
    while (end > first && consumed.has(end - 1)) end--
    page[at + FIRST] = first
    page[at + END] = end
    return first < end
  }

  countLive(run: number): number {
    const { consumed } = this.segment(run)
    const first = this.first(run)
    const end = this.end(run)
    if (consumed.live === consumed.records) return end - first
    let count = 0
    for (let i = first; i < end; i++) if (!consumed.has(i)) count++
    return count
  }
}
