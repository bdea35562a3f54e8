/**
 * One immutable sorted run, as look-ups and merges see it: fences and filters in memory, pages on disk.
 *
 * Invariant: a page is believed only after its checksum, its number, its kind and its count were found right, each time
 * it comes from the disk. What does not fit is HOLDFAST_CORRUPT with file and offset; a run is never read as smaller than
 * the manifest says it is.
 */
import { assert } from '../assert.js'
import type { FileHandle } from '../env/file-system.js'
import { HoldfastError, ioError } from '../errors.js'
import { corrupt } from '../store/format.js'
import { fuseMayHold } from './binary-fuse.js'
import type { PageCache } from './seen-cache.js'
import {
  KEYS_PER_PAGE,
  PAGE_BYTES,
  PAGE_KEYS,
  PAGE_TOMBSTONES,
  pageDamage,
  parseRunName,
  RUN_HEADER_BYTES,
  type RunFilter,
  type SeenRunInfo,
} from './seen-format.js'
import {
  ABSENT,
  compareKeys,
  hashHigh,
  hashLow,
  KEY,
  KEY_BYTES,
  KEY_WORDS,
  type KeyState,
  type Probe,
  readWord,
  TOMBSTONE,
} from './seen-key.js'

/** A reader's pages in the shared cache are told apart by its serial number, which is never used twice. */
let lastSerial = 0
const PAGES_PER_RUN_MAX = 2 ** 28

/** All that a reader needs: read from the file by `openRun`, or handed over by the writer that made it. */
export interface RunParts {
  readonly path: string
  readonly handle: FileHandle
  readonly info: SeenRunInfo
  readonly salt: number
  /** First key of each page, key pages first: four words each. */
  readonly fences: Uint32Array
  readonly filters: readonly RunFilter[]
}

export class SeenRunReader {
  readonly path: string
  readonly info: SeenRunInfo
  readonly number: number
  readonly keyPages: number
  readonly tombstonePages: number
  readonly fences: Uint32Array
  readonly filters: readonly RunFilter[]
  readonly memoryBytes: number
  private readonly salt: number
  private readonly handle: FileHandle
  private readonly cache: PageCache
  private readonly serial = ++lastSerial
  private closed = false

  constructor(parts: RunParts, cache: PageCache) {
    this.path = parts.path
    this.handle = parts.handle
    this.info = parts.info
    this.number = parseRunName(parts.info.file) as number
    this.salt = parts.salt
    this.fences = parts.fences
    this.filters = parts.filters
    this.cache = cache
    this.keyPages = Math.ceil(parts.info.keys / KEYS_PER_PAGE)
    this.tombstonePages = Math.ceil(parts.info.tombstones / KEYS_PER_PAGE)
    assert(this.fences.length === (this.keyPages + this.tombstonePages) * KEY_WORDS, 'one fence a page')
    assert(this.keyPages + this.tombstonePages < PAGES_PER_RUN_MAX, 'page numbers leave room for the serial')
    let memoryBytes = this.fences.byteLength
    for (const { fuse } of this.filters) memoryBytes += 128 + (fuse?.fingerprints.length ?? 0)
    this.memoryBytes = memoryBytes
  }

  /** Without touching the disk: false only if the run holds neither the key nor a tombstone of it. */
  mayHold(probe: Probe): boolean {
    const { filters } = this
    let low = 0
    let high = filters.length
    while (low < high) {
      const middle = (low + high) >>> 1
      if (compareKeys(filters[middle].first, 0, probe, 0) <= 0) low = middle + 1
      else high = middle
    }
    if (low === 0) return false
    const { fuse } = filters[low - 1]
    return fuse === undefined || fuseMayHold(fuse, hashHigh(probe), hashLow(probe))
  }

  /** What this run says of the key; at most one page is read for a key, one more where there are tombstones. */
  get(probe: Probe): KeyState {
    if (!this.mayHold(probe)) return ABSENT
    if (this.inPages(probe, 0, this.keyPages)) return KEY
    if (this.inPages(probe, this.keyPages, this.keyPages + this.tombstonePages)) return TOMBSTONE
    return ABSENT
  }

  /** Reads and checks `count` pages from page `first` on. */
  readPages(into: Buffer, first: number, count: number): void {
    this.assertOpen()
    const at = pageOffset(first)
    readExactly(this.handle, into.subarray(0, count * PAGE_BYTES), at)
    for (let i = 0; i < count; i++) {
      const index = first + i
      const kind = index < this.keyPages ? PAGE_KEYS : PAGE_TOMBSTONES
      const damage = pageDamage(into, i * PAGE_BYTES, index, this.keysInPage(index), kind, this.salt)
      if (damage !== undefined) throw corrupt(this.path, damage, pageOffset(index))
    }
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

  private inPages(probe: Probe, from: number, to: number): boolean {
    let low = from
    let high = to
    while (low < high) {
      const middle = (low + high) >>> 1
      if (compareKeys(this.fences, middle * KEY_WORDS, probe, 0) <= 0) low = middle + 1
      else high = middle
    }
    if (low === from) return false
    const index = low - 1
    return pageHolds(this.page(index), this.keysInPage(index), probe)
  }

  private page(index: number): Buffer {
    this.assertOpen()
    const id = this.serial * PAGES_PER_RUN_MAX + index
    const cached = this.cache.get(id)
    if (cached !== undefined) return cached
    const page = this.cache.take()
    try {
      this.readPages(page, index, 1)
    } catch (error) {
      this.cache.giveBack(page)
      throw error
    }
    this.cache.keep(id, page)
    return page
  }

  private assertOpen(): void {
    if (this.closed) throw new HoldfastError('HOLDFAST_CLOSED', `${this.path} was closed`, { path: this.path })
  }
}

export const pageOffset = (index: number): number => RUN_HEADER_BYTES + index * PAGE_BYTES

function pageHolds(page: Buffer, count: number, probe: Probe): boolean {
  let low = 0
  let high = count
  while (low < high) {
    const middle = (low + high) >>> 1
    const order = compareToPage(page, middle * KEY_BYTES, probe)
    if (order === 0) return true
    if (order > 0) low = middle + 1
    else high = middle
  }
  return false
}

/** The probe against the key at `at`. */
function compareToPage(page: Buffer, at: number, probe: Probe): number {
  for (let i = 0; i < KEY_WORDS; i++) {
    const word = readWord(page, at + i * 4)
    if (probe[i] !== word) return probe[i] < word ? -1 : 1
  }
  return 0
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
