/**
 * A key of the seen-set as numbers: four big-endian 32-bit words, so that comparing words is comparing bytes, and 64 bits
 * of hash over them. Keys are usually evenly spread, but a user's own fingerprints may be counters or padded text, so
 * nothing relies on a key's own bits being random. The hash is part of the file format: docs/format-seen.md.
 */

export const KEY_BYTES = 16
export const KEY_WORDS = 4

/** What a table or a run can say about a key. */
export const ABSENT = 0
export const KEY = 1
/** Forgotten: hides the key in everything older. */
export const TOMBSTONE = 2
export type KeyState = typeof ABSENT | typeof KEY | typeof TOMBSTONE

/** Words 0 to 3 of the key, then the high and the low half of its hash: one array, reused, so that looking up makes nothing. */
export type Probe = Uint32Array
const HASH_HIGH = 4
const HASH_LOW = 5

export const newProbe = (): Probe => new Uint32Array(6)

export function readWord(bytes: Uint8Array, at: number): number {
  return ((bytes[at] << 24) | (bytes[at + 1] << 16) | (bytes[at + 2] << 8) | bytes[at + 3]) >>> 0
}

export function writeWord(bytes: Uint8Array, at: number, word: number): void {
  bytes[at] = word >>> 24
  bytes[at + 1] = word >>> 16
  bytes[at + 2] = word >>> 8
  bytes[at + 3] = word
}

/** Fills the probe with the 16 bytes at `offset`. */
export function probeBytes(probe: Probe, bytes: Uint8Array, offset: number): void {
  fillProbe(
    probe,
    readWord(bytes, offset),
    readWord(bytes, offset + 4),
    readWord(bytes, offset + 8),
    readWord(bytes, offset + 12),
  )
}

/** Fills the probe with the four words at `at`. */
export function probeWords(probe: Probe, words: Uint32Array, at: number): void {
  fillProbe(probe, words[at], words[at + 1], words[at + 2], words[at + 3])
}

/**
 * Two lanes with different multipliers; each takes in a word and mixes fully before the next. Written out: this is on the
 * way of every look-up.
 */
function fillProbe(probe: Probe, a: number, b: number, c: number, d: number): void {
  probe[0] = a
  probe[1] = b
  probe[2] = c
  probe[3] = d
  probe[HASH_HIGH] = mixHigh(mixHigh(mixHigh(mixHigh(0x9e3779b9 ^ a) ^ b) ^ c) ^ d)
  probe[HASH_LOW] = mixLow(mixLow(mixLow(mixLow(0x7f4a7c15 ^ a) ^ b) ^ c) ^ d)
}

export const hashHigh = (probe: Probe): number => probe[HASH_HIGH]
export const hashLow = (probe: Probe): number => probe[HASH_LOW]

/** The 32-bit finaliser of MurmurHash3 (Austin Appleby, public domain): a bijection in which each bit stirs all. */
export function mixHigh(value: number): number {
  let h = value ^ (value >>> 16)
  h = Math.imul(h, 0x85ebca6b)
  h ^= h >>> 13
  h = Math.imul(h, 0xc2b2ae35)
  return (h ^ (h >>> 16)) >>> 0
}

/** The same shape with the multipliers Christopher Wellons found by search (public domain). */
export function mixLow(value: number): number {
  let h = value ^ (value >>> 16)
  h = Math.imul(h, 0x7feb352d)
  h ^= h >>> 15
  h = Math.imul(h, 0x846ca68b)
  return (h ^ (h >>> 16)) >>> 0
}

/** Copies the key at `b[j]` to `a[i]`. */
export function copyKey(a: Uint32Array, i: number, b: Uint32Array, j: number): void {
  a[i] = b[j]
  a[i + 1] = b[j + 1]
  a[i + 2] = b[j + 2]
  a[i + 3] = b[j + 3]
}

/** Below zero, zero or above: the key at `a[i]` against the one at `b[j]`, as their bytes compare. */
export function compareKeys(a: Uint32Array, i: number, b: Uint32Array, j: number): number {
  if (a[i] !== b[j]) return a[i] < b[j] ? -1 : 1
  if (a[i + 1] !== b[j + 1]) return a[i + 1] < b[j + 1] ? -1 : 1
  if (a[i + 2] !== b[j + 2]) return a[i + 2] < b[j + 2] ? -1 : 1
  if (a[i + 3] !== b[j + 3]) return a[i + 3] < b[j + 3] ? -1 : 1
  return 0
}

export function sameKey(a: Uint32Array, i: number, b: Uint32Array, j: number): boolean {
  return a[i] === b[j] && a[i + 1] === b[j + 1] && a[i + 2] === b[j + 2] && a[i + 3] === b[j + 3]
}
