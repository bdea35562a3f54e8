/**
 * Two caches in front of the runs: keys that were found in one lately (most duplicates of a crawl are a few popular links),
 * and pages read lately. Both are exact: a key is cached with all its bits, and whoever forgets one must `drop` it. Both
 * take memory only as they fill.
 */
import { PAGE_BYTES } from './seen-format.js'
import {
  copyKey,
  hashHigh,
  hashLow,
  KEY_BYTES,
  KEY_WORDS,
  newProbe,
  type Probe,
  probeWords,
  sameKey,
} from './seen-key.js'

const WAYS = 4
const HIT_SHARD_BITS = 4
const HIT_SHARDS = 1 << HIT_SHARD_BITS
const HIT_SETS_MIN = 16
/** One more than the ways: any 16 bytes are a key, so emptiness needs a place of its own. */
const SET_BYTES = WAYS * KEY_BYTES + 1

interface HitShard {
  words: Uint32Array
  /** Keys in each set. */
  used: Uint8Array
  /** Keys that had to go for others since it last grew. */
  evicted: number
}

/**
 * Sets of four keys. A hit moves its key one place forward, a new key takes the last place: keys that are asked for again
 * and again end up in front, and those that come once push out only one another.
 */
export class HitCache {
  memoryBytes = 0
  private readonly shards = new Array<HitShard | undefined>(HIT_SHARDS).fill(undefined)
  private readonly setsMax: number
  private readonly moving = newProbe()

  /** `bytesMax`: what it may grow to. Below what sixteen sets take it stays empty. */
  constructor(bytesMax: number) {
    let sets = 1
    while (sets * 2 * HIT_SHARDS * SET_BYTES <= bytesMax) sets *= 2
    this.setsMax = sets * HIT_SHARDS * SET_BYTES <= bytesMax ? sets : 0
  }

  has(probe: Probe): boolean {
    const shard = this.shards[shardOf(probe)]
    if (shard === undefined) return false
    const at = placeOf(shard, probe)
    if (at < 0) return false
    if (at % (WAYS * KEY_WORDS) > 0) {
      const { words } = shard
      copyKey(words, at, words, at - KEY_WORDS)
      copyKey(words, at - KEY_WORDS, probe, 0)
    }
    return true
  }

  /** For a key that is not in it. */
  put(probe: Probe): void {
    if (this.setsMax === 0) return
    const shard = this.shards[shardOf(probe)] ?? this.newShard(shardOf(probe))
    if (shard.evicted >= shard.used.length && shard.used.length < this.setsMax) this.grow(shard)
    const set = hashLow(probe) & (shard.used.length - 1)
    const { used } = shard
    if (used[set] < WAYS) used[set]++
    else shard.evicted++
    copyKey(shard.words, (set * WAYS + used[set] - 1) * KEY_WORDS, probe, 0)
  }

  drop(probe: Probe): void {
    const shard = this.shards[shardOf(probe)]
    if (shard === undefined) return
    const at = placeOf(shard, probe)
    if (at < 0) return
    const set = hashLow(probe) & (shard.used.length - 1)
    shard.words.copyWithin(at, at + KEY_WORDS, (set * WAYS + shard.used[set]) * KEY_WORDS)
    shard.used[set]--
  }

  private newShard(index: number): HitShard {
    const shard = emptyShard(Math.min(HIT_SETS_MIN, this.setsMax))
    this.shards[index] = shard
    this.memoryBytes += shard.used.length * SET_BYTES
    return shard
  }

  /** Twice the sets: each one's keys go to it or to its new twin, in the same order. */
  private grow(shard: HitShard): void {
    const { words, used } = shard
    const larger = emptyShard(used.length * 2)
    this.memoryBytes += used.length * SET_BYTES
    for (let set = 0; set < used.length; set++) {
      for (let way = 0; way < used[set]; way++) {
        probeWords(this.moving, words, (set * WAYS + way) * KEY_WORDS)
        const to = hashLow(this.moving) & (larger.used.length - 1)
        copyKey(larger.words, (to * WAYS + larger.used[to]++) * KEY_WORDS, this.moving, 0)
      }
    }
    Object.assign(shard, larger)
  }
}

const shardOf = (probe: Probe): number => hashHigh(probe) >>> (32 - HIT_SHARD_BITS)

/** Where the key stands in the words, or -1. */
function placeOf({ words, used }: HitShard, probe: Probe): number {
  const set = hashLow(probe) & (used.length - 1)
  const base = set * WAYS * KEY_WORDS
  const end = base + used[set] * KEY_WORDS
  for (let at = base; at < end; at += KEY_WORDS) if (sameKey(words, at, probe, 0)) return at
  return -1
}

function emptyShard(sets: number): HitShard {
  return { words: new Uint32Array(sets * WAYS * KEY_WORDS), used: new Uint8Array(sets), evicted: 0 }
}

/** A page in memory: checked, and its words in the order of this machine. */
export interface CachedPage {
  readonly bytes: Buffer
  /** The same memory. */
  readonly words: Uint32Array
}

/** Beside the page itself: two views, a place, an entry of the index. */
const PAGE_OVERHEAD_BYTES = 256
export const CACHED_PAGE_BYTES = PAGE_BYTES + PAGE_OVERHEAD_BYTES

/**
 * Pages of all runs. A hand goes round them: who was asked for since it came by last is passed over once, the next one makes
 * room. What is in it was checked when it came from the disk, and is not checked again.
 */
export class PageCache {
  /** By place. */
  private readonly pages: CachedPage[] = []
  private readonly ids: number[] = []
  private readonly asked: boolean[] = []
  private readonly places = new Map<number, number>()
  private countMax: number
  private hand = 0
  /** What the next page is read into: it gets a place only when it proved good. */
  private spare: CachedPage | undefined

  constructor(countMax: number) {
    this.countMax = Math.max(1, countMax)
  }

  get memoryBytes(): number {
    return (this.pages.length + (this.spare === undefined ? 0 : 1)) * CACHED_PAGE_BYTES
  }

  /** Room for so many pages, and the one being read. */
  allow(countMax: number): void {
    this.countMax = Math.max(1, countMax)
    while (this.pages.length > this.countMax) this.dropLast()
  }

  get(id: number): CachedPage | undefined {
    const place = this.places.get(id)
    if (place === undefined) return undefined
    this.asked[place] = true
    return this.pages[place]
  }

  /** A page's worth of memory to be read into, and then to be kept; if not, the next one to take gets it. */
  take(): CachedPage {
    this.spare ??= newPage()
    return this.spare
  }

  /** Keeps what was taken, as page `id`, which is not in it. */
  keep(id: number): void {
    const page = this.take()
    let place = this.pages.length
    if (place < this.countMax) this.spare = undefined
    else {
      place = this.nextToGo()
      this.places.delete(this.ids[place])
      this.spare = this.pages[place]
    }
    this.pages[place] = page
    this.ids[place] = id
    this.asked[place] = false
    this.places.set(id, place)
  }

  private nextToGo(): number {
    for (;;) {
      if (this.hand >= this.pages.length) this.hand = 0
      const place = this.hand++
      if (!this.asked[place]) return place
      this.asked[place] = false
    }
  }

  private dropLast(): void {
    this.pages.pop()
    this.asked.pop()
    this.places.delete(this.ids.pop() as number)
  }
}

function newPage(): CachedPage {
  const bytes = Buffer.allocUnsafeSlow(PAGE_BYTES)
  return { bytes, words: new Uint32Array(bytes.buffer, 0, PAGE_BYTES / 4) }
}
