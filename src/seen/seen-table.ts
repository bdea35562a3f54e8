/**
 * The in-memory part of the seen-set: recent keys, and tombstones of forgotten ones. Open addressing in typed arrays, 17
 * bytes a slot and no object per key.
 *
 * The table is cut into shards by hash, each growing by doubling on its own: growing moves a few thousand keys, never a
 * million at once. Invariant: between a key's first slot and the slot it is in there is no empty one; deletion closes the
 * gap it makes, so there are no grave markers to clean up.
 */
import { assert } from '../assert.js'
import {
  ABSENT,
  copyKey,
  hashHigh,
  hashLow,
  KEY,
  KEY_WORDS,
  type KeyState,
  newProbe,
  type Probe,
  probeWords,
  sameKey,
} from './seen-key.js'

const SHARD_BITS = 6
export const SHARD_COUNT = 1 << SHARD_BITS
export const TABLE_SLOTS_MIN = 16
export const SLOT_BYTES = 17
/** At most three quarters full: above that, searches for absent keys get long. */
const FILL_MAX = 0.75
/** How full shards are on average when the fullest of them reaches FILL_MAX. */
const FILL_EVEN = 0.7

interface Shard {
  words: Uint32Array
  states: Uint8Array
  count: number
  /** More, and it grows. */
  countMax: number
}

/** The most memory that a table of so many spread keys takes. */
export function tableBytes(keys: number): number {
  let slots = TABLE_SLOTS_MIN
  while (slots * SHARD_COUNT * FILL_EVEN < keys) slots *= 2
  return slots * SHARD_COUNT * SLOT_BYTES
}

export class SeenTable {
  /** Entries: keys and tombstones. */
  count = 0
  memoryBytes = 0
  private readonly shards = new Array<Shard | undefined>(SHARD_COUNT).fill(undefined)
  private readonly slotsMin: number
  private readonly moving = newProbe()
  /** Where the last `get` ended: its key's slot, or the empty one where it would go. Of use until anything changes. */
  private foundShard: Shard | undefined
  private foundSlot = 0

  /** `slotsMin`: slots of a new shard, a power of two. */
  constructor(slotsMin = TABLE_SLOTS_MIN) {
    assert(slotsMin >= 2 && (slotsMin & (slotsMin - 1)) === 0, 'slots are a power of two')
    this.slotsMin = slotsMin
  }

  get(probe: Probe): KeyState {
    const shard = this.shards[hashHigh(probe) >>> (32 - SHARD_BITS)]
    this.foundShard = shard
    if (shard === undefined) return ABSENT
    const slot = findSlot(shard, probe)
    this.foundSlot = slot
    return shard.states[slot] as KeyState
  }

  /** Puts in the key that the last `get` was asked for, without searching again. Nothing may have changed in between. */
  insertFound(probe: Probe): void {
    const shard = this.foundShard
    const slot = this.foundSlot
    if (shard === undefined || shard.count >= shard.countMax || shard.states[slot] !== ABSENT) {
      this.set(probe, KEY)
      return
    }
    copyKey(shard.words, slot * KEY_WORDS, probe, 0)
    shard.states[slot] = KEY
    shard.count++
    this.count++
  }

  /** Puts a key or a tombstone in; over what the table said of it before. */
  set(probe: Probe, state: KeyState): void {
    assert(state !== ABSENT, 'an entry is a key or a tombstone')
    const index = hashHigh(probe) >>> (32 - SHARD_BITS)
    const shard = this.shards[index] ?? this.newShard(index)
    let slot = findSlot(shard, probe)
    if (shard.states[slot] === ABSENT) {
      if (shard.count >= shard.countMax) {
        this.grow(shard)
        slot = findSlot(shard, probe)
      }
      copyKey(shard.words, slot * KEY_WORDS, probe, 0)
      shard.count++
      this.count++
    }
    shard.states[slot] = state
  }

  delete(probe: Probe): void {
    const shard = this.shards[hashHigh(probe) >>> (32 - SHARD_BITS)]
    if (shard === undefined) return
    const slot = findSlot(shard, probe)
    if (shard.states[slot] === ABSENT) return
    this.closeGap(shard, slot)
    shard.count--
    this.count--
  }

  /** Copies the entries of one shard behind the first `at` entries of the arrays; returns how many there are then. */
  copyShard(index: number, words: Uint32Array, states: Uint8Array, at: number): number {
    const shard = this.shards[index]
    if (shard === undefined) return at
    let next = at
    for (let slot = 0; slot < shard.states.length; slot++) {
      if (shard.states[slot] === ABSENT) continue
      copyKey(words, next * KEY_WORDS, shard.words, slot * KEY_WORDS)
      states[next++] = shard.states[slot]
    }
    return next
  }

  /** Empty again, with the memory it had grown to: the next one to fill it need not grow it again. */
  clear(): this {
    for (const shard of this.shards) {
      if (shard === undefined) continue
      shard.states.fill(ABSENT)
      shard.count = 0
    }
    this.count = 0
    return this
  }

  /** Puts every entry into `older`, over what it said: this table is the newer of the two. */
  copyOver(older: SeenTable): void {
    const probe = newProbe()
    for (const shard of this.shards) {
      if (shard === undefined) continue
      for (let slot = 0; slot < shard.states.length; slot++) {
        if (shard.states[slot] === ABSENT) continue
        probeWords(probe, shard.words, slot * KEY_WORDS)
        older.set(probe, shard.states[slot] as KeyState)
      }
    }
  }

  private newShard(index: number): Shard {
    const slots = this.slotsMin
    const words = new Uint32Array(slots * KEY_WORDS)
    const shard = { words, states: new Uint8Array(slots), count: 0, countMax: Math.floor(slots * FILL_MAX) }
    this.shards[index] = shard
    this.memoryBytes += slots * SLOT_BYTES
    return shard
  }

  private grow(shard: Shard): void {
    const { words, states } = shard
    shard.words = new Uint32Array(words.length * 2)
    shard.states = new Uint8Array(states.length * 2)
    shard.countMax = Math.floor(shard.states.length * FILL_MAX)
    this.memoryBytes += states.length * SLOT_BYTES
    for (let slot = 0; slot < states.length; slot++) {
      if (states[slot] === ABSENT) continue
      probeWords(this.moving, words, slot * KEY_WORDS)
      const to = findSlot(shard, this.moving)
      copyKey(shard.words, to * KEY_WORDS, this.moving, 0)
      shard.states[to] = states[slot]
    }
  }

  /** Moves later entries of the same chain forward, so that a search never stops at a hole before what it looks for. */
  private closeGap(shard: Shard, emptied: number): void {
    const { words, states } = shard
    const mask = states.length - 1
    let gap = emptied
    states[gap] = ABSENT
    for (let slot = (gap + 1) & mask; states[slot] !== ABSENT; slot = (slot + 1) & mask) {
      probeWords(this.moving, words, slot * KEY_WORDS)
      const first = hashLow(this.moving) & mask
      // It may move only if its first slot is not behind the gap: distances are taken around the end.
      if (((slot - first) & mask) < ((slot - gap) & mask)) continue
      copyKey(words, gap * KEY_WORDS, this.moving, 0)
      states[gap] = states[slot]
      states[slot] = ABSENT
      gap = slot
    }
  }
}

/** The slot of this key, or the empty one where it would go. A shard is never full, so the search ends. */
function findSlot(shard: Shard, probe: Probe): number {
  const { words, states } = shard
  const mask = states.length - 1
  let slot = hashLow(probe) & mask
  while (states[slot] !== ABSENT && !sameKey(words, slot * KEY_WORDS, probe, 0)) slot = (slot + 1) & mask
  return slot
}
