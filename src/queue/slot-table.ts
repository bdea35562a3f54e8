/**
 * The slots (hosts, mostly): name, lanes, leases at work, clock, and where each stands in the heaps. Twelve words each and
 * no object, so that a million hosts fit beside everything else. A slot's clock outlives its jobs: an emptied and
 * refilled host keeps its delay.
 *
 * Invariants: a slot with at most CHAIN_LANES_MAX lanes has them in a chain, one with more (ten thousand priorities in one
 * slot) in a map with a heap beside it; BEST is the lane with ready jobs whose bucket is served first, or -1.
 */
import { compareBuckets } from './bucket.js'
import { IntHeap } from './int-heap.js'
import { COUNT, type LaneTable, NEXT_OF_SLOT, POSITION } from './lane-table.js'
import { PAGE_BITS, PAGE_MASK, RecordPages } from './record-pages.js'
import { SlotNames } from './slot-names.js'

export interface SlotLimits {
  /** Leases at once. */
  readonly concurrency: number
  readonly delayMs: number
}

const WORDS = 12
const NAME_AT = 0
const NAME_LENGTH = 1
const LIMITS = 2
export const ACTIVE = 3
/** Position in the heap of slots that may be served, and in that of those that wait for their clock; -1: in neither. */
export const ELIGIBLE = 4
export const WAITING = 5
const CHAIN = 6
export const BEST = 7
/** 64-bit fields, counted in words: wall ms before which nothing is handed out, and the turn it was served last. */
const NOT_BEFORE = 8
const TURN = 10

const CHAIN_LANES_MAX = 16

interface Wide {
  readonly byBucket: Map<number, number>
  readonly ready: IntHeap
}

export class SlotTable {
  private readonly records = new RecordPages(WORDS)
  private readonly pages = this.records.pages
  private readonly floats = this.records.floats
  private readonly names: SlotNames
  private readonly lanes: LaneTable
  private readonly limits: SlotLimits[] = []
  private readonly limitNumbers = new Map<string, number>()
  private readonly wide = new Map<number, Wide>()
  private readonly limitsOf: (slot: string) => SlotLimits
  private turn = 0

  constructor(lanes: LaneTable, limitsOf: (slot: string) => SlotLimits, seed: number) {
    this.lanes = lanes
    this.limitsOf = limitsOf
    this.names = new SlotNames(
      { nameAt: (slot) => this.get(slot, NAME_AT), nameLength: (slot) => this.get(slot, NAME_LENGTH) },
      seed,
    )
  }

  get count(): number {
    return this.records.count
  }

  get(slot: number, field: number): number {
    return this.pages[slot >>> PAGE_BITS][(slot & PAGE_MASK) * WORDS + field]
  }

  set(slot: number, field: number, value: number): void {
    this.pages[slot >>> PAGE_BITS][(slot & PAGE_MASK) * WORDS + field] = value
  }

  notBefore(slot: number): number {
    return this.floats[slot >>> PAGE_BITS][((slot & PAGE_MASK) * WORDS + NOT_BEFORE) / 2]
  }

  setNotBefore(slot: number, wallMs: number): void {
    this.floats[slot >>> PAGE_BITS][((slot & PAGE_MASK) * WORDS + NOT_BEFORE) / 2] = wallMs
  }

  turnOf(slot: number): number {
    return this.floats[slot >>> PAGE_BITS][((slot & PAGE_MASK) * WORDS + TURN) / 2]
  }

  /** It is served now: among equals the others come first. */
  served(slot: number): void {
    this.floats[slot >>> PAGE_BITS][((slot & PAGE_MASK) * WORDS + TURN) / 2] = ++this.turn
  }

  limitsOfSlot(slot: number): SlotLimits {
    return this.limits[this.get(slot, LIMITS)]
  }

  name(slot: number): string {
    return this.names.name(slot)
  }

  /** Whether the name is the UTF-8 in `buffer[start, end)`. */
  isNamed(slot: number, buffer: Buffer, start: number, end: number): boolean {
    return this.names.isNamed(slot, buffer, start, end)
  }

  /** The slot named `text[start, end)`, made if it is not there. */
  of(text: string, start: number, end: number): number {
    const known = this.names.find(text, start, end)
    return known >= 0 ? known : this.make(start === 0 && end === text.length ? text : text.slice(start, end))
  }

  ofBytes(buffer: Buffer, start: number, end: number): number {
    const known = this.names.findBytes(buffer, start, end)
    return known >= 0 ? known : this.make(buffer.toString('utf8', start, end))
  }

  private make(name: string): number {
    const slot = this.records.allocate()
    const { at, length } = this.names.add(slot, name)
    this.set(slot, NAME_AT, at)
    this.set(slot, NAME_LENGTH, length)
    this.set(slot, LIMITS, this.limitNumber(this.limitsOf(name)))
    this.set(slot, ACTIVE, 0)
    for (const field of [ELIGIBLE, WAITING, CHAIN, BEST]) this.set(slot, field, -1)
    this.setNotBefore(slot, 0)
    this.served(slot)
    return slot
  }

  private limitNumber(limits: SlotLimits): number {
    const key = `${limits.concurrency} ${limits.delayMs}`
    let number = this.limitNumbers.get(key)
    if (number === undefined) {
      number = this.limits.push(limits) - 1
      this.limitNumbers.set(key, number)
    }
    return number
  }

  /** The slot's lane in the bucket, or -1. */
  findLane(slot: number, bucket: number): number {
    if (this.wide.size > 0) {
      const wide = this.wide.get(slot)
      if (wide !== undefined) return wide.byBucket.get(bucket) ?? -1
    }
    const { lanes } = this
    let lane = this.get(slot, CHAIN)
    while (lane >= 0 && lanes.bucketOf(lane) !== bucket) lane = lanes.get(lane, NEXT_OF_SLOT)
    return lane
  }

  addLane(slot: number, lane: number, bucket: number): void {
    const { lanes } = this
    lanes.set(lane, POSITION, -1)
    const wide = this.wide.get(slot)
    if (wide !== undefined) {
      wide.byBucket.set(bucket, lane)
      return
    }
    lanes.set(lane, NEXT_OF_SLOT, this.get(slot, CHAIN))
    this.set(slot, CHAIN, lane)
    let length = 0
    for (let at = lane; at >= 0; at = lanes.get(at, NEXT_OF_SLOT)) length++
    if (length > CHAIN_LANES_MAX) this.widen(slot)
  }

  private widen(slot: number): void {
    const { lanes } = this
    const wide: Wide = {
      byBucket: new Map(),
      ready: new IntHeap(
        (a, b) => compareBuckets(lanes.bucket(a), lanes.bucket(b)) < 0,
        (lane, position) => lanes.set(lane, POSITION, position),
      ),
    }
    for (let lane = this.get(slot, CHAIN); lane >= 0; lane = lanes.get(lane, NEXT_OF_SLOT)) {
      wide.byBucket.set(lanes.bucketOf(lane), lane)
      if (lanes.get(lane, COUNT) > 0) wide.ready.push(lane)
    }
    this.set(slot, CHAIN, -1)
    this.wide.set(slot, wide)
  }

  /** The lane has ready jobs now, and had none. */
  laneFilled(slot: number, lane: number): void {
    const { lanes } = this
    const wide = this.wide.size > 0 ? this.wide.get(slot) : undefined
    if (wide !== undefined) {
      if (lanes.get(lane, POSITION) < 0) wide.ready.push(lane)
      this.set(slot, BEST, wide.ready.peek())
      return
    }
    const best = this.get(slot, BEST)
    if (best < 0 || compareBuckets(lanes.bucket(lane), lanes.bucket(best)) < 0) this.set(slot, BEST, lane)
  }

  /** The lane has no ready jobs any more. */
  laneEmptied(slot: number, lane: number): void {
    const { lanes } = this
    const wide = this.wide.size > 0 ? this.wide.get(slot) : undefined
    if (wide !== undefined) {
      wide.ready.remove(lanes.get(lane, POSITION))
      this.set(slot, BEST, wide.ready.peek())
      return
    }
    if (this.get(slot, BEST) !== lane) return
    let best = -1
    for (let at = this.get(slot, CHAIN); at >= 0; at = lanes.get(at, NEXT_OF_SLOT)) {
      if (lanes.get(at, COUNT) > 0 && (best < 0 || compareBuckets(lanes.bucket(at), lanes.bucket(best)) < 0)) best = at
    }
    this.set(slot, BEST, best)
  }

  /** Forgets lanes that nothing holds; a slot without jobs, leases, lanes or a running clock goes too. */
  prune(slot: number, now: number): void {
    const { lanes } = this
    const wide = this.wide.get(slot)
    if (wide !== undefined) {
      for (const [bucket, lane] of wide.byBucket) {
        if (!lanes.isIdle(lane)) continue
        wide.byBucket.delete(bucket)
        lanes.free(lane)
      }
      if (wide.byBucket.size === 0) this.wide.delete(slot)
    } else this.pruneChain(slot)
    const isEmpty = this.get(slot, CHAIN) < 0 && !this.wide.has(slot)
    if (!isEmpty || this.get(slot, ACTIVE) > 0 || this.notBefore(slot) > now) return
    this.names.remove(slot)
    // Told apart from slots in use by whoever walks through all of them.
    this.set(slot, NAME_LENGTH, -1)
    this.records.free(slot)
  }

  private pruneChain(slot: number): void {
    const { lanes } = this
    let before = -1
    for (let lane = this.get(slot, CHAIN); lane >= 0; ) {
      const next = lanes.get(lane, NEXT_OF_SLOT)
      if (lanes.isIdle(lane)) {
        if (before < 0) this.set(slot, CHAIN, next)
        else lanes.set(before, NEXT_OF_SLOT, next)
        lanes.free(lane)
      } else before = lane
      lane = next
    }
  }

  /** One above the highest number a slot has. */
  get end(): number {
    return this.records.end
  }

  has(slot: number): boolean {
    return this.get(slot, NAME_LENGTH) >= 0
  }

  *all(): Generator<number> {
    for (let slot = 0; slot < this.records.end; slot++) if (this.has(slot)) yield slot
  }

  compactNames(): void {
    this.names.compact(this.all(), (slot, at) => this.set(slot, NAME_AT, at))
  }
}
