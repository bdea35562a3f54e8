/**
 * The filters of one run, as many of them in memory as may be: each spares a key that is not in its share the reading of a
 * page. A filter that is not in memory answers "maybe".
 *
 * Invariants: filters are in memory from the first on without a hole; the header of the one behind them is vouched for by
 * its checksum as well, since where it begins is where the share before it ends: a wrong beginning would send a key to a
 * filter that never knew it. What is damaged is told once, and the run goes on without any: slower, still exact.
 */
import { crc32 } from '../bytes/crc32.js'
import type { FileHandle } from '../env/file-system.js'
import { fuseMayHold } from './binary-fuse.js'
import {
  decodeFilterHeader,
  FILTER_CRC_BYTES,
  FILTER_HEADER_BYTES,
  type FilterShape,
  filterBytes,
} from './seen-format.js'
import { hashHigh, hashLow, KEY_WORDS, type Probe, readWord } from './seen-key.js'
import { readExactly } from './seen-run-pages.js'
import { lastNotAbove } from './seen-search.js'

/** Where a run's filters lie and what they cover. Made by who wrote them, or read from the file. */
export interface FilterDirectory {
  /** Four words each. */
  readonly firsts: Uint32Array
  readonly shapes: readonly FilterShape[]
  /** Offset in the file. */
  readonly at: number
}

/** Damage as it is told; `path` is the run's. */
export type TellDamage = (message: string, offset: number) => void

/** Beside the fingerprints. */
const FILTER_OVERHEAD_BYTES = 160
/** A page that had to be read for want of a filter pays for the loading of this many bytes of one. */
const CREDIT_BYTES = 16 * 1024

export class RunFilters {
  /** Bytes that all of them would take in memory. */
  readonly bytesWhole: number
  /** Bytes of those that are. */
  memoryBytes = 0
  /** What was found wrong with them. */
  damage: { readonly message: string; readonly offset: number } | undefined
  private readonly handle: FileHandle
  private readonly salt: number
  private readonly tell: TellDamage
  private firsts: Uint32Array
  private shapes: readonly FilterShape[]
  private readonly offsets: Float64Array
  private readonly fingerprints: Uint8Array[] = []
  /** Filters whose header is known to be good. */
  private vouched: number
  /** Filters that may be in memory. */
  private wanted = 0
  private credit = 0

  /** `trusted`: the directory comes from who wrote the file, not from the file. */
  constructor(handle: FileHandle, salt: number, directory: FilterDirectory, trusted: boolean, tell: TellDamage) {
    this.handle = handle
    this.salt = salt
    this.tell = tell
    this.firsts = directory.firsts
    this.shapes = directory.shapes
    this.vouched = trusted ? directory.shapes.length : 0
    this.offsets = new Float64Array(directory.shapes.length)
    let { at } = directory
    let bytes = 0
    for (const [i, shape] of directory.shapes.entries()) {
      this.offsets[i] = at
      at += filterBytes(shape)
      bytes += memoryOf(shape)
    }
    this.bytesWhole = bytes
  }

  get count(): number {
    return this.shapes.length
  }

  get loaded(): number {
    return this.fingerprints.length
  }

  shapeOf(index: number): FilterShape {
    return this.shapes[index]
  }

  /** The first key of a share, as words at this place of `firstWords`. */
  get firstWords(): Uint32Array {
    return this.firsts
  }

  /** False only if the run holds neither the key nor a tombstone of it. */
  mayHold(probe: Probe): boolean {
    // The share the key falls to; -1: it is below the first.
    const share = lastNotAbove(this.firsts, 0, this.shapes.length, probe)
    if (share < 0) return this.vouched === 0
    if (share >= this.fingerprints.length) {
      if (this.fingerprints.length < this.wanted) this.pay()
      if (share >= this.fingerprints.length) return true
    }
    const shape = this.shapes[share]
    return shape.length === 0 || fuseMayHold(shape, this.fingerprints[share], hashHigh(probe), hashLow(probe))
  }

  /** How many may be in memory: as many as fit in `bytes`. What is too much goes now; what is missing comes as it is missed. */
  allow(bytes: number): void {
    let count = 0
    let sum = 0
    while (count < this.shapes.length && sum + memoryOf(this.shapes[count]) <= bytes) {
      sum += memoryOf(this.shapes[count++])
    }
    this.wanted = count
    while (this.fingerprints.length > count) this.dropLast()
  }

  /** All of them may be in memory. */
  get mayBeWhole(): boolean {
    return this.damage === undefined && this.wanted === this.shapes.length
  }

  /** What those that may be in memory take. */
  get bytesWanted(): number {
    let sum = 0
    for (let i = 0; i < this.wanted; i++) sum += memoryOf(this.shapes[i])
    return sum
  }

  /** Brings in all that may be in memory, at open. */
  loadWanted(): void {
    while (this.fingerprints.length < this.wanted) if (!this.loadNext()) return
    this.vouch(this.fingerprints.length)
  }

  /** Says that they are damaged, and does without them. */
  giveUp(message: string, offset: number): void {
    if (this.damage !== undefined) return
    this.damage = { message, offset }
    this.fingerprints.length = 0
    this.memoryBytes = 0
    this.wanted = 0
    this.vouched = 0
    this.shapes = []
    this.firsts = new Uint32Array(0)
    this.tell(message, offset)
  }

  /** Loading is spread out: none is loaded before its price was paid in pages that had to be read. */
  private pay(): void {
    this.credit += CREDIT_BYTES
    if (this.credit < this.shapes[this.fingerprints.length].length) return
    this.credit = 0
    if (this.loadNext()) this.vouch(this.fingerprints.length)
  }

  private loadNext(): boolean {
    const index = this.fingerprints.length
    const bytes = this.read(index)
    if (bytes === undefined) return false
    this.fingerprints.push(bytes)
    this.memoryBytes += memoryOf(this.shapes[index])
    return true
  }

  private dropLast(): void {
    this.fingerprints.pop()
    this.memoryBytes -= memoryOf(this.shapes[this.fingerprints.length])
  }

  private vouch(index: number): void {
    if (this.damage === undefined && index >= this.vouched && index < this.shapes.length) this.read(index)
  }

  /** The fingerprints of one filter, in memory of exactly their size; undefined when they are damaged. */
  read(index: number): Uint8Array | undefined {
    const { handle, offsets } = this
    const shape = this.shapes[index]
    const at = offsets[index]
    // One read into the memory that stays would leave header and checksum in it; two small ones beside it cost less.
    const header = Buffer.alloc(FILTER_HEADER_BYTES)
    const crc = Buffer.alloc(FILTER_CRC_BYTES)
    const fingerprints = new Uint8Array(shape.length)
    readExactly(handle, header, at)
    readExactly(handle, fingerprints, at + FILTER_HEADER_BYTES)
    readExactly(handle, crc, at + FILTER_HEADER_BYTES + shape.length)
    if (crc32(fingerprints, crc32(header, this.salt)) !== crc.readUInt32LE(0)) {
      this.giveUp('filter: checksum mismatch', at)
      return undefined
    }
    // What was read at open and what is there now are one and the same only under this checksum.
    const found = decodeFilterHeader(header)
    for (let i = 0; i < KEY_WORDS; i++) {
      if (typeof found !== 'string' && readWord(header, i * 4) === this.firsts[index * KEY_WORDS + i]) continue
      this.giveUp('filter: another one than was there before', at)
      return undefined
    }
    this.vouched = Math.max(this.vouched, index + 1)
    return fingerprints
  }
}

const memoryOf = (shape: FilterShape): number => shape.length + FILTER_OVERHEAD_BYTES

/**
 * Reads the headers between two offsets. What they say is not vouched for before each filter is read whole; a string says
 * why they cannot be walked, `offset` where.
 */
export function readDirectory(
  handle: FileHandle,
  from: number,
  to: number,
): { directory: FilterDirectory } | { problem: string; offset: number } {
  const shapes: FilterShape[] = []
  const firsts: number[] = []
  const header = Buffer.alloc(FILTER_HEADER_BYTES)
  for (let at = from; at < to; ) {
    if (to - at < FILTER_HEADER_BYTES + FILTER_CRC_BYTES) return { problem: 'filter header cut short', offset: at }
    readExactly(handle, header, at)
    const shape = decodeFilterHeader(header)
    if (typeof shape === 'string') return { problem: shape, offset: at }
    // Before memory is taken: a damaged length must not choose how much.
    if (at + filterBytes(shape) > to) {
      return { problem: `filter claims ${shape.length} bytes, ${to - at} are left`, offset: at }
    }
    for (let i = 0; i < KEY_WORDS; i++) firsts.push(readWord(header, i * 4))
    const end = firsts.length
    if (shapes.length > 0 && compareKeysOf(firsts, end - 2 * KEY_WORDS, end - KEY_WORDS) >= 0) {
      return { problem: 'filters out of order', offset: at }
    }
    shapes.push(shape)
    at += filterBytes(shape)
  }
  return { directory: { firsts: Uint32Array.from(firsts), shapes, at: from } }
}

function compareKeysOf(words: readonly number[], i: number, j: number): number {
  for (let w = 0; w < KEY_WORDS; w++) if (words[i + w] !== words[j + w]) return words[i + w] - words[j + w]
  return 0
}
