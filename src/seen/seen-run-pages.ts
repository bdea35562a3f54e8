/**
 * The pages of one run, read and checked: what look-ups, merges and checks share.
 *
 * Invariant: a page is believed only after its checksum, its number, its kind and its count were found right, each time it
 * comes from the disk. What does not fit is HOLDFAST_CORRUPT with file and offset; a run is never read as smaller than the
 * manifest says it is.
 */
import type { FileHandle } from '../env/file-system.js'
import { HoldfastError, ioError } from '../errors.js'
import { corrupt } from '../store/format.js'
import {
  KEYS_PER_PAGE,
  PAGE_BYTES,
  PAGE_KEY_BYTES,
  PAGE_KEYS,
  PAGE_TOMBSTONES,
  pageDamage,
  RUN_HEADER_BYTES,
  type SeenRunInfo,
} from './seen-format.js'

export const PAGE_WORDS = PAGE_BYTES / 4
/** This machine is little endian. */
const SWAPS = new Uint8Array(Uint32Array.of(1).buffer)[0] === 1

/** Which file, what the manifest says of it, and the salt of its checksums: all it takes to read its pages. */
export interface RunName {
  readonly path: string
  readonly info: SeenRunInfo
  readonly salt: number
}

export class RunPages {
  readonly path: string
  readonly info: SeenRunInfo
  readonly salt: number
  readonly keyPages: number
  readonly tombstonePages: number
  protected readonly handle: FileHandle
  private closed = false

  constructor(handle: FileHandle, { path, info, salt }: RunName) {
    this.path = path
    this.handle = handle
    this.info = info
    this.salt = salt
    this.keyPages = Math.ceil(info.keys / KEYS_PER_PAGE)
    this.tombstonePages = Math.ceil(info.tombstones / KEYS_PER_PAGE)
  }

  /** Reads and checks `count` pages from page `first` on, and leaves the words of their keys as this machine has them. */
  readPages(into: Buffer, first: number, count: number): void {
    this.assertOpen()
    const bytes = into.length === count * PAGE_BYTES ? into : into.subarray(0, count * PAGE_BYTES)
    readExactly(this.handle, bytes, pageOffset(first))
    for (let i = 0; i < count; i++) {
      const index = first + i
      const kind = index < this.keyPages ? PAGE_KEYS : PAGE_TOMBSTONES
      const damage = pageDamage(bytes, i * PAGE_BYTES, index, this.keysInPage(index), kind, this.salt)
      if (damage !== undefined) throw corrupt(this.path, damage, pageOffset(index))
    }
    swapWords(bytes)
  }

  /** Every page but the last of its kind is full, so a page's count is known before it is read. */
  keysInPage(index: number): number {
    const tombstone = index >= this.keyPages
    const before = (tombstone ? index - this.keyPages : index) * KEYS_PER_PAGE
    return Math.min(KEYS_PER_PAGE, (tombstone ? this.info.tombstones : this.info.keys) - before)
  }

  close(): void {
    if (this.closed) return
    this.closed = true
    this.handle.close()
  }

  protected assertOpen(): void {
    if (this.closed) throw new HoldfastError('HOLDFAST_CLOSED', `${this.path} was closed`, { path: this.path })
  }
}

export const pageOffset = (index: number): number => RUN_HEADER_BYTES + index * PAGE_BYTES

/** Between words as they are stored (big endian) and as this machine computes with them, in place. */
export function swapWords(bytes: Buffer): void {
  if (SWAPS) bytes.swap32()
}

/** As `swapWords`, only the keys of the page at `at`: what follows them is stored little endian. */
export function swapPageKeys(pages: Buffer, at: number): void {
  if (SWAPS) pages.subarray(at, at + PAGE_KEY_BYTES).swap32()
}

export function readExactly(handle: FileHandle, into: Uint8Array, position: number): void {
  if (into.length === 0) return
  let count: number
  try {
    count = handle.read(into, position)
  } catch (error) {
    throw ioError('reading', handle.path, error)
  }
  if (count !== into.length) {
    throw corrupt(handle.path, `cut short: ${count} bytes left, ${into.length} expected`, position)
  }
}
