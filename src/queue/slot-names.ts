/**
 * The names of slots (mostly host names) as bytes in pages, found through an open-addressing table of slot numbers: a
 * million of them cost their letters and eight bytes each, and a host is looked up in the URL it stands in, without a
 * string of its own being made.
 *
 * Invariants: a name is in the table exactly once; between a name's first place and the place it is in there is no empty
 * one. The hash is seeded per process: who chooses host names cannot choose collisions.
 */
const PAGE_BYTES = 64 * 1024
/** Longer names, which no host has, are kept as strings beside the pages. */
const NAME_BYTES_MAX = 1024
const SHARD_BITS = 6
const SHARD_SLOTS_MIN = 16
const CACHE_SIZE = 4096
const EMPTY = 0

/** Where a slot's name lies: kept by the slot. */
export interface NamePlaces {
  /** Offset in the pages, or -1 for a long name. */
  nameAt(slot: number): number
  nameLength(slot: number): number
}

interface Shard {
  /** Slot + 1, or EMPTY. */
  items: Int32Array
  count: number
}

export class SlotNames {
  private readonly places: NamePlaces
  private readonly seed: number
  private pages: Buffer[] = []
  private used = 0
  private liveBytes = 0
  private readonly shards: Shard[] = []
  private readonly long = new Map<string, number>()
  private readonly longNames = new Map<number, string>()
  /** Names made into strings lately, by slot: handing a job out needs its slot's name. */
  private readonly cachedSlots = new Int32Array(CACHE_SIZE).fill(-1)
  private readonly cached: string[] = new Array(CACHE_SIZE).fill('')
  private readonly scratch = Buffer.allocUnsafeSlow(NAME_BYTES_MAX)

  constructor(places: NamePlaces, seed: number) {
    this.places = places
    this.seed = seed | 0
    for (let i = 0; i < 1 << SHARD_BITS; i++) {
      this.shards.push({ items: new Int32Array(SHARD_SLOTS_MIN), count: 0 })
    }
  }

  /** The slot named `text[start, end)`, or -1. */
  find(text: string, start: number, end: number): number {
    const length = end - start
    if (length > NAME_BYTES_MAX) return this.long.get(text.slice(start, end)) ?? -1
    const { scratch } = this
    for (let i = 0; i < length; i++) {
      const code = text.charCodeAt(start + i)
      if (code > 0x7f) return this.findWide(text.slice(start, end))
      scratch[i] = code
    }
    return this.findBytes(scratch, 0, length)
  }

  private findWide(name: string): number {
    const bytes = Buffer.from(name)
    return bytes.length > NAME_BYTES_MAX ? (this.long.get(name) ?? -1) : this.findBytes(bytes, 0, bytes.length)
  }

  /** The slot whose name is the UTF-8 in `buffer[start, end)`, or -1. */
  findBytes(buffer: Buffer, start: number, end: number): number {
    const length = end - start
    if (length > NAME_BYTES_MAX) return this.long.get(buffer.toString('utf8', start, end)) ?? -1
    const hash = this.hash(buffer, start, end)
    const { items } = this.shards[hash >>> (32 - SHARD_BITS)]
    const mask = items.length - 1
    for (let at = hash & mask; ; at = (at + 1) & mask) {
      const item = items[at]
      if (item === EMPTY) return -1
      if (this.places.nameLength(item - 1) === length && this.equals(item - 1, buffer, start, length)) return item - 1
    }
  }

  isNamed(slot: number, buffer: Buffer, start: number, end: number): boolean {
    if (this.places.nameLength(slot) !== end - start) return false
    if (this.places.nameAt(slot) < 0) return this.longNames.get(slot) === buffer.toString('utf8', start, end)
    return this.equals(slot, buffer, start, end - start)
  }

  private equals(slot: number, buffer: Buffer, start: number, length: number): boolean {
    const place = this.places.nameAt(slot)
    if (place < 0) return false
    const page = this.pages[Math.floor(place / PAGE_BYTES)]
    const at = place % PAGE_BYTES
    for (let i = 0; i < length; i++) if (page[at + i] !== buffer[start + i]) return false
    return true
  }

  private hash(buffer: Buffer, start: number, end: number): number {
    let hash = this.seed
    for (let i = start; i < end; i++) hash = Math.imul(hash ^ buffer[i], 0x01000193)
    hash ^= hash >>> 15
    hash = Math.imul(hash, 0x2c1b3c6d)
    hash ^= hash >>> 12
    hash = Math.imul(hash, 0x297a2d39)
    return (hash ^ (hash >>> 15)) >>> 0
  }

  /** Keeps the name of a slot that is not in the table; returns where it lies, for `NamePlaces`. */
  add(slot: number, name: string): { at: number; length: number } {
    const length = Buffer.byteLength(name)
    this.forgetCached(slot)
    if (length > NAME_BYTES_MAX) {
      this.long.set(name, slot)
      this.longNames.set(slot, name)
      return { at: -1, length }
    }
    this.room(length)
    const page = this.pages[this.pages.length - 1]
    page.utf8Write(name, this.used, length)
    const at = (this.pages.length - 1) * PAGE_BYTES + this.used
    this.used += length
    this.liveBytes += length
    const hash = this.hash(page, this.used - length, this.used)
    const shard = this.shards[hash >>> (32 - SHARD_BITS)]
    if ((shard.count + 1) * 4 > shard.items.length * 3) this.grow(shard)
    insert(shard.items, hash, slot)
    shard.count++
    return { at, length }
  }

  private room(length: number): void {
    if (this.pages.length > 0 && this.used + length <= PAGE_BYTES) return
    this.pages.push(Buffer.allocUnsafeSlow(PAGE_BYTES))
    this.used = 0
  }

  private grow(shard: Shard): void {
    const items = new Int32Array(shard.items.length * 2)
    for (const item of shard.items) if (item !== EMPTY) insert(items, this.hashOf(item - 1), item - 1)
    shard.items = items
  }

  private hashOf(slot: number): number {
    const place = this.places.nameAt(slot)
    const at = place % PAGE_BYTES
    return this.hash(this.pages[Math.floor(place / PAGE_BYTES)], at, at + this.places.nameLength(slot))
  }

  /** Before the slot's record goes. */
  remove(slot: number): void {
    this.forgetCached(slot)
    if (this.places.nameAt(slot) < 0) {
      this.long.delete(this.longNames.get(slot) as string)
      this.longNames.delete(slot)
      return
    }
    this.liveBytes -= this.places.nameLength(slot)
    const hash = this.hashOf(slot)
    const shard = this.shards[hash >>> (32 - SHARD_BITS)]
    const { items } = shard
    const mask = items.length - 1
    let gap = hash & mask
    while (items[gap] !== slot + 1) gap = (gap + 1) & mask
    items[gap] = EMPTY
    shard.count--
    // Later names of the same chain move forward: a search must not stop at the hole before what it looks for.
    for (let at = (gap + 1) & mask; items[at] !== EMPTY; at = (at + 1) & mask) {
      const first = this.hashOf(items[at] - 1) & mask
      if (((at - first) & mask) < ((at - gap) & mask)) continue
      items[gap] = items[at]
      items[at] = EMPTY
      gap = at
    }
  }

  name(slot: number): string {
    const cacheAt = slot & (CACHE_SIZE - 1)
    if (this.cachedSlots[cacheAt] === slot) return this.cached[cacheAt]
    const place = this.places.nameAt(slot)
    if (place < 0) return this.longNames.get(slot) as string
    const at = place % PAGE_BYTES
    const name = this.pages[Math.floor(place / PAGE_BYTES)].utf8Slice(at, at + this.places.nameLength(slot))
    this.cachedSlots[cacheAt] = slot
    this.cached[cacheAt] = name
    return name
  }

  private forgetCached(slot: number): void {
    const cacheAt = slot & (CACHE_SIZE - 1)
    if (this.cachedSlots[cacheAt] === slot) this.cachedSlots[cacheAt] = -1
  }

  /** More than half of the pages is names of slots that went: `move` is told the new place of each that is kept. */
  compact(slots: Iterable<number>, move: (slot: number, at: number) => void): void {
    if (this.pages.length < 4 || this.liveBytes * 2 > this.pages.length * PAGE_BYTES) return
    const old = this.pages
    this.pages = []
    this.used = 0
    for (const slot of slots) {
      const place = this.places.nameAt(slot)
      if (place < 0) continue
      const length = this.places.nameLength(slot)
      this.room(length)
      const from = place % PAGE_BYTES
      old[Math.floor(place / PAGE_BYTES)].copy(this.pages[this.pages.length - 1], this.used, from, from + length)
      move(slot, (this.pages.length - 1) * PAGE_BYTES + this.used)
      this.used += length
    }
  }
}

function insert(items: Int32Array, hash: number, slot: number): void {
  const mask = items.length - 1
  let at = hash & mask
  while (items[at] !== EMPTY) at = (at + 1) & mask
  items[at] = slot + 1
}
