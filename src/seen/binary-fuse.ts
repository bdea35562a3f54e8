/**
 * A filter that says "certainly not" or "maybe" in about 9 bits a key, wrong with "maybe" once in 256 times: a binary fuse
 * filter with 8-bit fingerprints, after Thomas Mueller Graf and Daniel Lemire, "Binary Fuse Filters: Fast and Smaller Than
 * Xor Filters", Journal of Experimental Algorithmics 27, 2022.
 *
 * Each key has three places, in three neighbouring segments of one array, and the array is filled so that the bytes at the
 * three places XOR to the key's fingerprint. Invariant: a key it was built from is never answered "certainly not".
 */
import { assert } from '../assert.js'
import { mixHigh, mixLow } from './seen-key.js'
import { type Steps, touch } from './seen-slices.js'

export interface BinaryFuse {
  /** Keys it was built from. */
  readonly entries: number
  readonly seed: number
  /** A power of two. */
  readonly segmentLength: number
  /** Segments in which a key's first place can be; two more follow. */
  readonly segmentCount: number
  readonly fingerprints: Uint8Array
}

/** Two places take 14 bits of the hash each. */
export const SEGMENT_LENGTH_MAX = 1 << 14
/** A try of the full size fails seldom; a small one (its segments are short) may take some. */
const ATTEMPTS_LARGE = 16
const ATTEMPTS_SMALL = 128
const SMALL_ENTRIES = 10_000
const STEP = 2048

const TWO_32 = 2 ** 32
const SEED_STEP = 0x9e3779b9

/** The shape the paper recommends for three places: wide enough to succeed, short enough to stay near in memory. */
export function fuseShape(entries: number): { segmentLength: number; segmentCount: number } {
  assert(entries > 0, 'a filter holds something')
  const exponent = Math.floor(Math.log(entries) / Math.log(3.33) + 2.25)
  const segmentLength = Math.min(2 ** exponent, SEGMENT_LENGTH_MAX)
  const factor = entries === 1 ? 2 : Math.max(1.125, 0.875 + (0.25 * Math.log(1_000_000)) / Math.log(entries))
  const segmentCount = Math.max(1, Math.ceil((entries * factor) / segmentLength) - 2)
  return { segmentLength, segmentCount }
}

/** The numbers a look-up needs beside the fingerprints. */
export type FuseShape = Pick<BinaryFuse, 'seed' | 'segmentLength' | 'segmentCount'>

/** `high` and `low`: the two halves of the key's hash. */
export function fuseMayHold(shape: FuseShape, fingerprints: Uint8Array, high: number, low: number): boolean {
  const { seed, segmentLength, segmentCount } = shape
  const a = mixHigh(high ^ seed)
  const b = mixLow(low + a)
  const mask = segmentLength - 1
  const first = Math.floor((a * (segmentCount * segmentLength)) / TWO_32)
  const second = (first + segmentLength) ^ (b & mask)
  const third = (first + 2 * segmentLength) ^ ((b >>> 14) & mask)
  return ((a ^ (b >>> 24) ^ fingerprints[first] ^ fingerprints[second] ^ fingerprints[third]) & 0xff) === 0
}

/** What building takes for each key, at most: scratch, and the two halves of the hash it is given. */
export const FUSE_BUILD_BYTES = 36

/**
 * Builds a filter over the first `entries` hashes. Undefined when no seed works, which for hashes that differ is out of
 * the question; two keys with the same 64 bits of hash end there. A run then goes without: slower, still exact.
 */
export function* buildBinaryFuse(
  high: Uint32Array,
  low: Uint32Array,
  entries: number,
  firstSeed: number,
  scratch = new FuseScratch(),
): Steps<BinaryFuse | undefined> {
  const { segmentLength, segmentCount } = fuseShape(entries)
  const placeCount = (segmentCount + 2) * segmentLength
  scratch.reserve(entries, placeCount)
  const attempts = entries > SMALL_ENTRIES ? ATTEMPTS_LARGE : ATTEMPTS_SMALL
  for (let attempt = 0; attempt < attempts; attempt++) {
    const seed = (firstSeed + Math.imul(attempt, SEED_STEP)) >>> 0
    const places = new Places(seed, segmentLength, segmentCount)
    yield* scratch.clear()
    if (!(yield* fillIn(scratch, places, high, low, entries))) continue
    if (!(yield* peel(scratch, places, placeCount, entries))) continue
    const fingerprints = yield* assign(scratch, places, placeCount, entries)
    return { entries, seed, segmentLength, segmentCount, fingerprints }
  }
  return undefined
}

/** What building needs for a while. Whoever builds many filters keeps it: as garbage it would be collected late. */
export class FuseScratch {
  /** Per place: keys there times four, XORed with which of its three places this is to each of them. */
  counts = new Uint8Array(0)
  /** Per place: the XOR of the mixed hashes there; with one key left it is that key's. */
  high = new Uint32Array(0)
  low = new Uint32Array(0)
  /** Places that came down to one key, yet to be looked at. */
  alone = new Uint32Array(0)
  /** Keys in the order they were taken off, and which of the three places each was alone in. */
  orderHigh = new Uint32Array(0)
  orderLow = new Uint32Array(0)
  orderWhich = new Uint8Array(0)
  /** The finished fingerprints, of use until the next filter is built. */
  fingerprints = new Uint8Array(0)

  reserve(entries: number, places: number): void {
    if (this.orderHigh.length >= entries && this.counts.length >= places) return
    this.counts = new Uint8Array(places)
    this.high = new Uint32Array(places)
    this.low = new Uint32Array(places)
    this.alone = new Uint32Array(places)
    this.orderHigh = new Uint32Array(entries)
    this.orderLow = new Uint32Array(entries)
    this.orderWhich = new Uint8Array(entries)
    this.fingerprints = new Uint8Array(places)
  }

  /** Takes the memory into use, or forgets a failed attempt. */
  *clear(): Steps<void> {
    yield* touch(this.counts)
    yield* touch(this.high)
    yield* touch(this.low)
  }
}

/** The three places of a mixed hash, and its fingerprint. The same arithmetic as in `fuseMayHold`. */
class Places {
  readonly at: [number, number, number] = [0, 0, 0]
  fingerprint = 0
  private readonly seed: number
  private readonly segmentLength: number
  private readonly range: number

  constructor(seed: number, segmentLength: number, segmentCount: number) {
    this.seed = seed
    this.segmentLength = segmentLength
    this.range = segmentCount * segmentLength
  }

  mixedHigh(high: number): number {
    return mixHigh(high ^ this.seed)
  }

  find(a: number, b: number): void {
    const { at, segmentLength } = this
    const mask = segmentLength - 1
    at[0] = Math.floor((a * this.range) / TWO_32)
    at[1] = (at[0] + segmentLength) ^ (b & mask)
    at[2] = (at[0] + 2 * segmentLength) ^ ((b >>> 14) & mask)
    this.fingerprint = (a ^ (b >>> 24)) & 0xff
  }
}

/** Puts every key to its three places. False when one place overflows: the same key many times over. */
function* fillIn(
  scratch: FuseScratch,
  places: Places,
  high: Uint32Array,
  low: Uint32Array,
  entries: number,
): Steps<boolean> {
  const { counts } = scratch
  for (let i = 0; i < entries; i++) {
    if (i % STEP === STEP - 1) yield
    const a = places.mixedHigh(high[i])
    const b = mixLow(low[i] + a)
    places.find(a, b)
    for (let which = 0; which < 3; which++) {
      const place = places.at[which]
      if (counts[place] >= 252) return false
      counts[place] = (counts[place] + 4) ^ which
      scratch.high[place] ^= a
      scratch.low[place] ^= b
    }
  }
  return true
}

/** Takes off, one after the other, keys that are alone in a place. True when none is left. */
function* peel(scratch: FuseScratch, places: Places, placeCount: number, entries: number): Steps<boolean> {
  const { counts, alone } = scratch
  let waiting = 0
  for (let place = 0; place < placeCount; place++) {
    if (place % STEP === STEP - 1) yield
    if (counts[place] >> 2 === 1) alone[waiting++] = place
  }
  let taken = 0
  while (waiting > 0) {
    const place = alone[--waiting]
    // Its key may have been taken off meanwhile, through another place.
    if (counts[place] >> 2 !== 1) continue
    if (taken % STEP === STEP - 1) yield
    const a = scratch.high[place]
    const b = scratch.low[place]
    scratch.orderHigh[taken] = a
    scratch.orderLow[taken] = b
    scratch.orderWhich[taken] = counts[place] & 3
    taken++
    places.find(a, b)
    for (let which = 0; which < 3; which++) {
      const other = places.at[which]
      counts[other] = (counts[other] - 4) ^ which
      scratch.high[other] ^= a
      scratch.low[other] ^= b
      if (counts[other] >> 2 === 1) alone[waiting++] = other
    }
  }
  return taken === entries
}

/** In the opposite order, the place a key was alone in is still free to make its three bytes come out right. */
function* assign(scratch: FuseScratch, places: Places, placeCount: number, entries: number): Steps<Uint8Array> {
  const fingerprints = yield* touch(scratch.fingerprints.subarray(0, placeCount))
  for (let i = entries - 1; i >= 0; i--) {
    if (i % STEP === STEP - 1) yield
    places.find(scratch.orderHigh[i], scratch.orderLow[i])
    const [first, second, third] = places.at
    const free = places.at[scratch.orderWhich[i]]
    fingerprints[free] = 0
    fingerprints[free] = places.fingerprint ^ fingerprints[first] ^ fingerprints[second] ^ fingerprints[third]
  }
  return fingerprints
}
