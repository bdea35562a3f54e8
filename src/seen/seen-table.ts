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
  hashHigh,
  hashLow,
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
const SLOT_BYTES = 17

interface Shard {
  words: Uint32Array
  states: Uint8Array
  count: number
}

export class SeenTable {
  /** Entries: keys and tombstones. */
  count = 0
  memoryBytes = 0
  private readonly shards = new Array<Shard | undefined>(SHARD_COUNT).fill(undefined)
  private readonly slotsMin: number
  private readonly moving = newProbe()

  /** `slotsMin`: slots of a new shard, a power of two. */
  constructor(slotsMin = TABLE_SLOTS_MIN) {
    assert(slotsMin >= 2 && (slotsMin & (slotsMin - 1)) === 0, 'slots are a power of two')
    this.slotsMin = slotsMin
  }

  get(probe: Probe): KeyState {
    const shard = this.shards[hashHigh(probe) >>> (32 - SHARD_BITS)]
    if (shard === undefined) return ABSENT
    return shard.states[findSlot(shard, probe)] as KeyState
  }

  /** Puts a key or a tombstone in; over what the table said of it before. */
  set(probe: Probe, state: KeyState): void {
    assert(state !== ABSENT, 'an entry is a key or a tombstone')
    const index = hashHigh(probe) >>> (32 - SHARD_BITS)
    const shard = this.shards[index] ?? this.newShard(index)
    let slot = findSlot(shard, probe)
    if (shard.states[slot] === ABSENT) {
      // At most three quarters full: above that, searches for absent keys get long.
      if ((shard.count + 1) * 4 > shard.states.length * 3) {
        this.grow(shard)
        slot = findSlot(shard, probe)
      }
      for (let i = 0; i < KEY_WORDS; i++) shard.words[slot * KEY_WORDS + i] = probe[i]
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
      for (let i = 0; i < KEY_WORDS; i++) words[next * KEY_WORDS + i] = shard.words[slot * KEY_WORDS + i]
      states[next++] = shard.states[slot]
    }
    return next
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
    const shard = { words: new Uint32Array(slots * KEY_WORDS), states: new Uint8Array(slots), count: 0 }
    this.shards[index] = shard
    this.memoryBytes += slots * SLOT_BYTES
    return shard
  }

  private grow(shard: Shard): void {
    const { words, states } = shard
    shard.words = new Uint32Array(words.length * 2)
    shard.states = new Uint8Array(states.length * 2)
    this.memoryBytes += states.length * SLOT_BYTES
    for (let slot = 0; slot < states.length; slot++) {
      if (states[slot] === ABSENT) continue
      probeWords(this.moving, words, slot * KEY_WORDS)
      const to = findSlot(shard, this.moving)
      for (let i = 0; i < KEY_WORDS; i++) shard.words[to * KEY_WORDS + i] = this.moving[i]
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
      for (let i = 0; i < KEY_WORDS; i++) words[gap * KEY_WORDS + i] = this.moving[i]
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
