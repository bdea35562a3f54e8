/**
 * The bytes of a run file: header page, key pages, tombstone pages, fences, filters, footer, trailer. The numbers here are
 * on disk: never change one. docs/format-seen.md is the text to this.
 *
 * Decoders say what they saw; that it is damage, and in which file, is said by the reader. Invariant: every byte of a run
 * is under a checksum, and everything behind the header under one seeded with this file's own salt.
 */
import { assert } from '../assert.js'
import { crc32 } from '../bytes/crc32.js'
import { FORMAT } from '../limits.js'
import { HEADER_CRC_SEED } from '../store/format.js'
import { SEGMENT_LENGTH_MAX } from './binary-fuse.js'
import { KEY_BYTES, KEY_WORDS, writeWord } from './seen-key.js'

/** What the manifest says of a run. Runs are listed newest first. */
export interface SeenRunInfo {
  /** Name in the seen-set's directory. */
  readonly file: string
  readonly keys: number
  readonly tombstones: number
  readonly bytes: number
  readonly level: number
  /** Checksum of the footer: a run of another time under the same name is noticed. */
  readonly crc: number
}

export const RUN_MAGIC = 'HFSEEN\r\n'
export const RUN_END_MAGIC = 'HFSEND\r\n'
export const PAGE_BYTES = 4096
/** The header fills a page, so that the pages behind it lie as the disk's own do. */
export const RUN_HEADER_BYTES = PAGE_BYTES
const HEADER_BYTES_MIN = 64
export const KEYS_PER_PAGE = 255
/** Room for keys in a page. */
export const PAGE_KEY_BYTES = KEYS_PER_PAGE * KEY_BYTES
const PAGE_INDEX_AT = 4080
const PAGE_COUNT_AT = 4084
const PAGE_KIND_AT = 4088
const PAGE_CRC_AT = 4092
export const PAGE_KEYS = 1
export const PAGE_TOMBSTONES = 2
export const FILTER_HEADER_BYTES = 36
export const FILTER_CRC_BYTES = 4
export const FOOTER_BYTES = 64
export const TRAILER_BYTES = 24
/** Keys in one filter: bounds what building it costs in memory (FUSE_BUILD_BYTES a key). */
export const FILTER_KEYS_MAX = 1 << 17
/** No file has a filter of more: its places would not fit the arithmetic of binary-fuse.ts. */
export const FILTER_KEYS_LIMIT = 2_000_000

assert(KEYS_PER_PAGE * KEY_BYTES === PAGE_INDEX_AT, 'keys fill a page up to its trailer')
assert(FILTER_KEYS_MAX <= FILTER_KEYS_LIMIT, 'filters we build can be read back')

export const runName = (number: number): string => `r${String(number).padStart(5, '0')}`

export function parseRunName(name: string): number | undefined {
  return /^r\d{5,10}$/.test(name) && runName(Number(name.slice(1))) === name ? Number(name.slice(1)) : undefined
}

export interface RunHeader {
  readonly jobId: Uint8Array
  readonly number: number
  readonly salt: number
  readonly level: number
}

export function encodeRunHeader(header: RunHeader): Buffer {
  assert(header.salt !== 0, 'a salt of zero would let zeros pass')
  const bytes = Buffer.alloc(RUN_HEADER_BYTES)
  bytes.write(RUN_MAGIC, 0, 'latin1')
  bytes.writeUInt32LE(FORMAT, 8)
  bytes.writeUInt32LE(RUN_HEADER_BYTES, 12)
  bytes.set(header.jobId, 16)
  bytes.writeUInt32LE(header.number, 32)
  bytes.writeUInt32LE(header.salt, 36)
  bytes.writeUInt32LE(header.level, 40)
  bytes.writeUInt32LE(PAGE_BYTES, 44)
  bytes.writeUInt32LE(crc32(bytes.subarray(0, RUN_HEADER_BYTES - 4), HEADER_CRC_SEED), RUN_HEADER_BYTES - 4)
  return bytes
}

export type RunHeaderRead =
  | { readonly kind: 'header'; readonly header: RunHeader }
  | { readonly kind: 'newer'; readonly format: number }
  | { readonly kind: 'bad'; readonly reason: string }

/** The checksum is asked for before the format is believed: a newer format and damage are told apart. */
export function decodeRunHeader(bytes: Buffer): RunHeaderRead {
  const bad = (reason: string): RunHeaderRead => ({ kind: 'bad', reason })
  if (bytes.length < HEADER_BYTES_MIN) return bad(`header cut short: ${bytes.length} bytes`)
  const magic = bytes.toString('latin1', 0, 8)
  if (magic !== RUN_MAGIC) return bad(`magic is ${JSON.stringify(magic)}, expected ${JSON.stringify(RUN_MAGIC)}`)
  const format = bytes.readUInt32LE(8)
  const headerBytes = bytes.readUInt32LE(12)
  if (headerBytes < HEADER_BYTES_MIN || headerBytes > RUN_HEADER_BYTES) {
    return bad(`header claims ${headerBytes} bytes, expected ${RUN_HEADER_BYTES}`)
  }
  if (bytes.length < headerBytes) return bad(`header cut short: ${bytes.length} of ${headerBytes} bytes`)
  if (crc32(bytes.subarray(0, headerBytes - 4), HEADER_CRC_SEED) !== bytes.readUInt32LE(headerBytes - 4)) {
    return bad('header checksum mismatch')
  }
  if (format > FORMAT) return { kind: 'newer', format }
  if (format !== FORMAT) return bad(`format is ${format}, expected ${FORMAT}`)
  if (headerBytes !== RUN_HEADER_BYTES || bytes.readUInt32LE(44) !== PAGE_BYTES) return bad('another page size')
  const salt = bytes.readUInt32LE(36)
  if (salt === 0) return bad('salt is zero')
  const jobId = Uint8Array.from(bytes.subarray(16, 32))
  return { kind: 'header', header: { jobId, number: bytes.readUInt32LE(32), salt, level: bytes.readUInt32LE(40) } }
}

/** Finishes the page at `at`, whose first `count` keys are in place. */
export function sealPage(buffer: Buffer, at: number, index: number, count: number, kind: number, salt: number): void {
  assert(count > 0 && count <= KEYS_PER_PAGE, 'a page holds something')
  buffer.fill(0, at + count * KEY_BYTES, at + PAGE_INDEX_AT)
  buffer.writeUInt32LE(index, at + PAGE_INDEX_AT)
  buffer.writeUInt32LE(count, at + PAGE_COUNT_AT)
  buffer.writeUInt32LE(kind, at + PAGE_KIND_AT)
  buffer.writeUInt32LE(crc32(buffer.subarray(at, at + PAGE_CRC_AT), salt), at + PAGE_CRC_AT)
}

/** What is wrong with the page at `at`, or undefined. */
export function pageDamage(
  buffer: Buffer,
  at: number,
  index: number,
  count: number,
  kind: number,
  salt: number,
): string | undefined {
  if (crc32(buffer.subarray(at, at + PAGE_CRC_AT), salt) !== buffer.readUInt32LE(at + PAGE_CRC_AT)) {
    return `page ${index}: checksum mismatch`
  }
  const foundIndex = buffer.readUInt32LE(at + PAGE_INDEX_AT)
  const foundCount = buffer.readUInt32LE(at + PAGE_COUNT_AT)
  const foundKind = buffer.readUInt32LE(at + PAGE_KIND_AT)
  if (foundIndex === index && foundCount === count && foundKind === kind) return undefined
  return `page ${index}: says index ${foundIndex}, ${foundCount} keys, kind ${foundKind}; expected ${count} keys, kind ${kind}`
}

/** What a filter's header says of it. `length` 0: none could be built; it answers "maybe" to everything from its first key on. */
export interface FilterShape {
  readonly entries: number
  readonly seed: number
  readonly segmentLength: number
  readonly segmentCount: number
  /** Bytes of fingerprints. */
  readonly length: number
}

/** `first`: the lowest key it was built from, as four words. The bytes are those at the beginning of `into`. */
export function encodeFilter(
  into: Buffer,
  first: Uint32Array,
  shape: FilterShape,
  fingerprints: Uint8Array,
  salt: number,
): Buffer {
  assert(fingerprints.length === shape.length, 'a filter is as long as it says')
  const bytes = into.subarray(0, filterBytes(shape))
  for (let i = 0; i < KEY_WORDS; i++) writeWord(bytes, i * 4, first[i])
  bytes.writeUInt32LE(shape.entries, 16)
  bytes.writeUInt32LE(shape.seed, 20)
  bytes.writeUInt32LE(shape.segmentLength, 24)
  bytes.writeUInt32LE(shape.segmentCount, 28)
  bytes.writeUInt32LE(shape.length, 32)
  bytes.set(fingerprints, FILTER_HEADER_BYTES)
  const end = bytes.length - FILTER_CRC_BYTES
  bytes.writeUInt32LE(crc32(bytes.subarray(0, end), salt), end)
  return bytes
}

/** What a filter takes in the file. */
export const filterBytes = (shape: FilterShape): number => FILTER_HEADER_BYTES + shape.length + FILTER_CRC_BYTES

/** The shape a filter's header claims, or what is wrong with it. Asked before its length is believed. */
export function decodeFilterHeader(bytes: Buffer): FilterShape | string {
  const entries = bytes.readUInt32LE(16)
  const seed = bytes.readUInt32LE(20)
  const segmentLength = bytes.readUInt32LE(24)
  const segmentCount = bytes.readUInt32LE(28)
  const length = bytes.readUInt32LE(32)
  // Any shape that the look-up can walk is taken: how a writer chose it is its own affair.
  const powerOfTwo = (segmentLength & (segmentLength - 1)) === 0 && segmentLength <= SEGMENT_LENGTH_MAX
  const fits = length === 0 || (powerOfTwo && segmentCount > 0 && length === (segmentCount + 2) * segmentLength)
  if (entries === 0 || entries > FILTER_KEYS_LIMIT || !fits) {
    return `filter of ${entries} keys claims ${segmentCount} segments of ${segmentLength} in ${length} bytes`
  }
  return { entries, seed, segmentLength, segmentCount, length }
}

export interface RunFooter {
  readonly keys: number
  readonly tombstones: number
  readonly fencesCrc: number
  readonly filterCount: number
  readonly filtersBytes: number
}

/** Where the parts of a run lie: all of it follows from the footer's counts. */
export interface RunLayout {
  readonly keyPages: number
  readonly tombstonePages: number
  readonly fencesAt: number
  readonly filtersAt: number
  readonly footerAt: number
  readonly bytes: number
}

export function runLayout(footer: RunFooter): RunLayout {
  const keyPages = Math.ceil(footer.keys / KEYS_PER_PAGE)
  const tombstonePages = Math.ceil(footer.tombstones / KEYS_PER_PAGE)
  const fencesAt = RUN_HEADER_BYTES + (keyPages + tombstonePages) * PAGE_BYTES
  const filtersAt = fencesAt + (keyPages + tombstonePages) * KEY_BYTES
  const footerAt = filtersAt + footer.filtersBytes
  return { keyPages, tombstonePages, fencesAt, filtersAt, footerAt, bytes: footerAt + FOOTER_BYTES + TRAILER_BYTES }
}

/** Footer and trailer, and the footer's checksum. */
export function encodeRunEnd(footer: RunFooter, salt: number): { bytes: Buffer; crc: number } {
  const layout = runLayout(footer)
  const bytes = Buffer.alloc(FOOTER_BYTES + TRAILER_BYTES)
  writeUInt64(bytes, footer.keys, 0)
  writeUInt64(bytes, footer.tombstones, 8)
  bytes.writeUInt32LE(layout.keyPages, 16)
  bytes.writeUInt32LE(layout.tombstonePages, 20)
  writeUInt64(bytes, layout.fencesAt, 24)
  bytes.writeUInt32LE(footer.fencesCrc, 32)
  bytes.writeUInt32LE(footer.filterCount, 36)
  writeUInt64(bytes, layout.filtersAt, 40)
  writeUInt64(bytes, footer.filtersBytes, 48)
  // CRC is linear: with two fences, the salt in `fencesCrc` and the salt that seeds this checksum cancel out, and two runs
  // of the same content would have the same footer. The salt itself, in plain, keeps them apart.
  bytes.writeUInt32LE(salt, 56)
  const crc = crc32(bytes.subarray(0, FOOTER_BYTES - 4), salt)
  bytes.writeUInt32LE(crc, FOOTER_BYTES - 4)
  const trailer = bytes.subarray(FOOTER_BYTES)
  writeUInt64(trailer, layout.footerAt, 0)
  trailer.writeUInt32LE(FOOTER_BYTES, 8)
  trailer.writeUInt32LE(crc32(trailer.subarray(0, 12), salt), 12)
  trailer.write(RUN_END_MAGIC, 16, 'latin1')
  return { bytes, crc }
}

export type RunEndRead =
  | { readonly kind: 'end'; readonly footer: RunFooter; readonly crc: number }
  | { readonly kind: 'bad'; readonly reason: string; readonly offset: number }

/** `bytes`: the last FOOTER_BYTES + TRAILER_BYTES of a file of `fileBytes`. */
export function decodeRunEnd(bytes: Buffer, fileBytes: number, salt: number): RunEndRead {
  const footerAt = fileBytes - bytes.length
  const trailerAt = footerAt + FOOTER_BYTES
  const trailer = bytes.subarray(FOOTER_BYTES)
  const bad = (reason: string, offset: number): RunEndRead => ({ kind: 'bad', reason, offset })
  if (trailer.toString('latin1', 16, 24) !== RUN_END_MAGIC)
    return bad('no end mark: cut short or overwritten', trailerAt)
  if (crc32(trailer.subarray(0, 12), salt) !== trailer.readUInt32LE(12))
    return bad('trailer checksum mismatch', trailerAt)
  if (readUInt64(trailer, 0) !== footerAt || trailer.readUInt32LE(8) !== FOOTER_BYTES) {
    return bad(`footer claimed at ${readUInt64(trailer, 0)}, expected at ${footerAt}`, trailerAt)
  }
  const crc = bytes.readUInt32LE(FOOTER_BYTES - 4)
  if (crc32(bytes.subarray(0, FOOTER_BYTES - 4), salt) !== crc) return bad('footer checksum mismatch', footerAt)
  const footer = {
    keys: readUInt64(bytes, 0),
    tombstones: readUInt64(bytes, 8),
    fencesCrc: bytes.readUInt32LE(32),
    filterCount: bytes.readUInt32LE(36),
    filtersBytes: readUInt64(bytes, 48),
  }
  const layout = runLayout(footer)
  // Zero in the earliest runs, which are as good otherwise.
  const saltAgain = bytes.readUInt32LE(56)
  const fits =
    bytes.readUInt32LE(16) === layout.keyPages &&
    bytes.readUInt32LE(20) === layout.tombstonePages &&
    readUInt64(bytes, 24) === layout.fencesAt &&
    readUInt64(bytes, 40) === layout.filtersAt &&
    (saltAgain === salt || saltAgain === 0) &&
    layout.bytes === fileBytes
  if (!fits)
    return bad(`${footer.keys} keys and ${footer.tombstones} tombstones do not fill ${fileBytes} bytes`, footerAt)
  return { kind: 'end', footer, crc }
}

function writeUInt64(bytes: Buffer, value: number, at: number): void {
  bytes.writeBigUInt64LE(BigInt(value), at)
}

function readUInt64(bytes: Buffer, at: number): number {
  return Number(bytes.readBigUInt64LE(at))
}
