/**
 * Two small caches in front of the runs: keys that were found in one lately (most duplicates of a crawl are a few popular
 * links), and pages read lately. Both are exact: a key is cached with all its bits, and whoever forgets one must `drop` it.
 */
import { assert } from '../assert.js'
import { hashHigh, KEY_WORDS, type Probe, sameKey } from './seen-key.js'

const WAYS = 4

/** Sets of four keys, each in order of last use, the oldest making room. */
export class HitCache {
  readonly memoryBytes: number
  private readonly words: Uint32Array
  /** Keys in each set: any 16 bytes are a key, so emptiness needs a place of its own. */
  private readonly used: Uint8Array
  private readonly mask: number

  /** `keys`: room for this many, rounded up to a power of two. */
  constructor(keys: number) {
    let sets = 1
    while (sets * WAYS < keys) sets *= 2
    this.mask = sets - 1
    this.words = new Uint32Array(sets * WAYS * KEY_WORDS)
    this.used = new Uint8Array(sets)
    this.memoryBytes = this.words.byteLength + this.used.byteLength
  }

  has(probe: Probe): boolean {
    const set = hashHigh(probe) & this.mask
    const way = this.find(set, probe)
    if (way < 0) return false
    if (way > 0) this.putFirst(set, way, probe)
    return true
  }

  /** For a key that is not in it. */
  put(probe: Probe): void {
    const set = hashHigh(probe) & this.mask
    const used = this.used[set]
    if (used < WAYS) this.used[set] = used + 1
    this.putFirst(set, Math.min(used, WAYS - 1), probe)
  }

  drop(probe: Probe): void {
    const set = hashHigh(probe) & this.mask
    const way = this.find(set, probe)
    if (way < 0) return
    const base = set * WAYS * KEY_WORDS
    const last = --this.used[set]
    this.words.copyWithin(base + way * KEY_WORDS, base + (way + 1) * KEY_WORDS, base + (last + 1) * KEY_WORDS)
  }

  private find(set: number, probe: Probe): number {
    const base = set * WAYS * KEY_WORDS
    for (let way = 0; way < this.used[set]; way++) {
      if (sameKey(this.words, base + way * KEY_WORDS, probe, 0)) return way
    }
    return -1
  }

  /** The ways before `way` move back by one, over it. */
  private putFirst(set: number, way: number, probe: Probe): void {
    const { words } = this
    const base = set * WAYS * KEY_WORDS
    for (let i = base + way * KEY_WORDS - 1; i >= base; i--) words[i + KEY_WORDS] = words[i]
    for (let i = 0; i < KEY_WORDS; i++) words[base + i] = probe[i]
  }
}

/** Pages of all runs, least recently used dropped first. What is in it was checked when it came from the disk. */
export class PageCache {
  private readonly pages = new Map<number, Buffer>()
  private readonly spare: Buffer[] = []
  private readonly pageCount: number
  private readonly pageBytes: number
  /** Pages allocated so far: a seen-set without runs has none. */
  private allocated = 0

  constructor(pageCount: number, pageBytes: number) {
    assert(pageCount > 0, 'one page at least: it is what a page is read into')
    this.pageCount = pageCount
    this.pageBytes = pageBytes
  }

  get memoryBytes(): number {
    return this.allocated * this.pageBytes
  }

  get(id: number): Buffer | undefined {
    const page = this.pages.get(id)
    if (page !== undefined) {
      this.pages.delete(id)
      this.pages.set(id, page)
    }
    return page
  }

  /** A page's worth of memory, to be read into and then either `keep` it or, when the read failed, `giveBack` it. */
  take(): Buffer {
    const spare = this.spare.pop()
    if (spare !== undefined) return spare
    if (this.allocated < this.pageCount) {
      this.allocated++
      return Buffer.allocUnsafeSlow(this.pageBytes)
    }
    const [oldest, page] = this.pages.entries().next().value as [number, Buffer]
    this.pages.delete(oldest)
    return page
  }

  keep(id: number, page: Buffer): void {
    this.pages.set(id, page)
  }

  giveBack(page: Buffer): void {
    this.spare.push(page)
  }
}
