/**
 * Writes one run from entries that come in ascending order. The file is real only once a manifest names it; until then it
 * can be thrown away (`abandon`) and nobody has missed anything.
 *
 * Key pages go out as they fill. Tombstones (few) wait in memory, as their pages follow the last key page. Filters are built
 * at the end, each from its share of the pages just written: neither they nor the hashes they are made of are ever in memory
 * all at once, so what a run takes to be written does not grow with it, fences apart.
 */
import { assert } from '../assert.js'
import { crc32 } from '../bytes/crc32.js'
import type { FileHandle, FileSystem } from '../env/file-system.js'
import { ioError } from '../errors.js'
import { writeFully } from '../store/json-file.js'
import { buildBinaryFuse, FuseScratch } from './binary-fuse.js'
import type { FilterDirectory } from './seen-filters.js'
import {
  encodeFilter,
  encodeRunEnd,
  encodeRunHeader,
  FILTER_KEYS_MAX,
  type FilterShape,
  filterBytes,
  KEYS_PER_PAGE,
  PAGE_BYTES,
  PAGE_KEYS,
  PAGE_TOMBSTONES,
  RUN_HEADER_BYTES,
  type RunHeader,
  runName,
  type SeenRunInfo,
  sealPage,
} from './seen-format.js'
import {
  compareKeys,
  copyKey,
  hashHigh,
  hashLow,
  KEY,
  KEY_BYTES,
  KEY_WORDS,
  newProbe,
  probeWords,
  TOMBSTONE,
} from './seen-key.js'
import { Merger, runSources } from './seen-merge.js'
import { PAGE_WORDS, RunPages, swapPageKeys, swapWords } from './seen-run-pages.js'
import { STEP_KEYS, type Steps } from './seen-slices.js'

/** Pages gathered for one write call. */
const WRITE_PAGES = 32
/** Pages in memory when what was written is read back, at most. */
const READ_BACK_PAGES = 32
/** Fences turned into bytes at once. */
const FENCE_CHUNK_WORDS = 16 * 1024
const NO_FINGERPRINTS = new Uint8Array(0)

export interface RunWriterOptions extends RunHeader {
  readonly files: FileSystem
  readonly path: string
  /** `edit`: the file was made already. Default `create`. */
  readonly mode?: 'create' | 'edit'
  /** At least as many entries as will come: sizes the arrays. */
  readonly entriesMax: number
  readonly filterKeysMax?: number
  /** Bytes after which what was written is synced, blocking: for a thread of its own. Default: never. */
  readonly syncEveryBytes?: number
  /** Memory for building filters, for who writes many runs. */
  readonly scratch?: FuseScratch
}

/** A run as it was written, to be opened without reading it. Can be sent to another thread. */
export interface WrittenRun {
  readonly info: SeenRunInfo
  readonly salt: number
  readonly fences: Uint32Array
  readonly directory: FilterDirectory
}

export class SeenRunWriter {
  keys = 0
  tombstones = 0
  readonly path: string
  private readonly header: RunHeader
  private readonly files: FileSystem
  private readonly handle: FileHandle
  private readonly syncEveryBytes: number
  private readonly scratch: FuseScratch
  private position = 0
  private syncedTo = 0
  private readonly out = Buffer.alloc(WRITE_PAGES * PAGE_BYTES)
  private readonly outWords = new Uint32Array(this.out.buffer, this.out.byteOffset, this.out.length / 4)
  /** Whole pages in `out`, and keys in the page behind them. */
  private outPages = 0
  private pageKeys = 0
  private pages = 0
  private readonly fences: Uint32Array
  private tombstoneWords = new Uint32Array(0)
  private readonly lastKey = new Uint32Array(KEY_WORDS)
  private readonly filterKeysMax: number
  private filterBuffer = Buffer.alloc(0)
  private readonly firsts: number[] = []
  private readonly shapes: FilterShape[] = []

  constructor(options: RunWriterOptions) {
    const { files, path, entriesMax } = options
    this.header = { jobId: options.jobId, number: options.number, salt: options.salt, level: options.level }
    this.files = files
    this.path = path
    this.filterKeysMax = options.filterKeysMax ?? FILTER_KEYS_MAX
    this.scratch = options.scratch ?? new FuseScratch()
    this.syncEveryBytes = options.syncEveryBytes ?? Infinity
    // One page more of each kind than full ones.
    this.fences = new Uint32Array((Math.ceil(entriesMax / KEYS_PER_PAGE) + 1) * KEY_WORDS)
    try {
      this.handle = files.open(path, options.mode ?? 'create')
    } catch (error) {
      throw ioError('creating', path, error)
    }
    try {
      this.write(encodeRunHeader(this.header))
    } catch (error) {
      this.abandon(true)
      throw error
    }
  }

  /** The entry whose words are at `at`; above every one before. */
  append(words: Uint32Array, at: number, state: number): void {
    assert(this.keys + this.tombstones === 0 || compareKeys(this.lastKey, 0, words, at) < 0, 'entries ascend')
    copyKey(this.lastKey, 0, words, at)
    if (state === KEY) {
      this.keys++
      this.putInPage(words, at, PAGE_KEYS)
    } else {
      assert(state === TOMBSTONE, 'an entry is a key or a tombstone')
      this.keepTombstone(words, at)
    }
  }

  /** Everything behind the key pages. `sync` makes it durable. */
  *finish(): Steps<WrittenRun> {
    const { keys, tombstones, header } = this
    assert(keys + tombstones > 0, 'a run holds something')
    this.endPage(PAGE_KEYS)
    for (let i = 0; i < tombstones; i++) {
      this.putInPage(this.tombstoneWords, i * KEY_WORDS, PAGE_TOMBSTONES)
      if (i % STEP_KEYS === STEP_KEYS - 1) yield
    }
    this.endPage(PAGE_TOMBSTONES)
    this.flushPages()
    assert(this.position === RUN_HEADER_BYTES + this.pages * PAGE_BYTES, 'pages are where readers look for them')
    const fencesCrc = yield* this.writeFences()
    const filtersAt = this.position
    yield* this.writeFilters()
    const filtersBytes = this.position - filtersAt
    const footer = { keys, tombstones, fencesCrc, filterCount: this.shapes.length, filtersBytes }
    const end = encodeRunEnd(footer, header.salt)
    this.write(end.bytes)
    const info = { ...this.infoSoFar(), bytes: this.position, crc: end.crc }
    // It stays in memory as long as the run does: no larger than need be, and not copied for a few words.
    const fenceWords = this.pages * KEY_WORDS
    const fences =
      this.fences.length - fenceWords <= 2 * KEY_WORDS
        ? this.fences.subarray(0, fenceWords)
        : this.fences.slice(0, fenceWords)
    const directory = { firsts: Uint32Array.from(this.firsts), shapes: this.shapes, at: filtersAt }
    return { info, salt: header.salt, fences, directory }
  }

  async sync(): Promise<void> {
    try {
      await this.handle.sync()
    } catch (error) {
      throw ioError('syncing', this.path, error)
    }
  }

  syncNow(): void {
    try {
      this.handle.syncNow()
    } catch (error) {
      throw ioError('syncing', this.path, error)
    }
    this.syncedTo = this.position
  }

  close(): void {
    this.handle.close()
  }

  /** Closes, and with `remove` removes the file if that is still possible: one no manifest names goes at the next open. */
  abandon(remove: boolean): void {
    try {
      this.handle.close()
      if (remove) this.files.unlink(this.path)
    } catch {
      // Neither the bytes nor the name matter any more.
    }
  }

  private *writeFences(): Steps<number> {
    let crc = this.header.salt
    const end = this.pages * KEY_WORDS
    for (let at = 0; at < end; at += FENCE_CHUNK_WORDS) {
      const chunk = this.fences.slice(at, Math.min(end, at + FENCE_CHUNK_WORDS))
      const bytes = Buffer.from(chunk.buffer)
      swapWords(bytes)
      crc = crc32(bytes, crc)
      this.write(bytes)
      yield
    }
    return crc
  }

  /** Reads the pages back, checked like any other, and builds and writes one filter after the other. */
  private *writeFilters(): Steps<void> {
    const entriesMax = Math.min(this.filterKeysMax, this.keys + this.tombstones)
    const high = new Uint32Array(entriesMax)
    const low = new Uint32Array(entriesMax)
    const first = new Uint32Array(KEY_WORDS)
    const probe = newProbe()
    const { path, header } = this
    const written = new RunPages(this.handle, { path, info: this.infoSoFar(), salt: header.salt })
    const merger = new Merger(runSources([written]))
    let entries = 0
    for (let more = merger.advance(), count = 1; more; count++) {
      if (entries === 0) copyKey(first, 0, merger.words, 0)
      probeWords(probe, merger.words, 0)
      high[entries] = hashHigh(probe)
      low[entries++] = hashLow(probe)
      more = merger.advance()
      if (count % STEP_KEYS === 0) yield
      if (more && entries < this.filterKeysMax) continue
      const seed = (header.salt + this.shapes.length) >>> 0
      const fuse = yield* buildBinaryFuse(high, low, entries, seed, this.scratch)
      const shape = fuse ?? { seed: 0, segmentLength: 0, segmentCount: 0 }
      const fingerprints = fuse?.fingerprints ?? NO_FINGERPRINTS
      this.addFilter(first, { ...shapeOf(shape), entries, length: fingerprints.length }, fingerprints)
      entries = 0
      yield
    }
  }

  private addFilter(first: Uint32Array, shape: FilterShape, fingerprints: Uint8Array): void {
    if (this.filterBuffer.length < filterBytes(shape)) this.filterBuffer = Buffer.alloc(filterBytes(shape))
    this.write(encodeFilter(this.filterBuffer, first, shape, fingerprints, this.header.salt))
    this.shapes.push(shape)
    this.firsts.push(...first)
  }

  private infoSoFar(): SeenRunInfo {
    const { keys, tombstones, header } = this
    return { file: runName(header.number), keys, tombstones, bytes: this.position, level: header.level, crc: 0 }
  }

  private keepTombstone(words: Uint32Array, at: number): void {
    const end = this.tombstones * KEY_WORDS
    if (end === this.tombstoneWords.length) {
      const grown = new Uint32Array(Math.max(64 * KEY_WORDS, end * 2))
      grown.set(this.tombstoneWords)
      this.tombstoneWords = grown
    }
    copyKey(this.tombstoneWords, end, words, at)
    this.tombstones++
  }

  private putInPage(words: Uint32Array, at: number, kind: number): void {
    if (this.pageKeys === 0) copyKey(this.fences, this.pages * KEY_WORDS, words, at)
    copyKey(this.outWords, this.outPages * PAGE_WORDS + this.pageKeys * KEY_WORDS, words, at)
    if (++this.pageKeys === KEYS_PER_PAGE) this.endPage(kind)
  }

  private endPage(kind: number): void {
    if (this.pageKeys === 0) return
    const at = this.outPages * PAGE_BYTES
    swapPageKeys(this.out, at)
    sealPage(this.out, at, this.pages, this.pageKeys, kind, this.header.salt)
    this.pageKeys = 0
    this.pages++
    if (++this.outPages === WRITE_PAGES) this.flushPages()
  }

  private flushPages(): void {
    if (this.outPages > 0) this.write(this.out.subarray(0, this.outPages * PAGE_BYTES))
    this.outPages = 0
  }

  private write(bytes: Uint8Array): void {
    try {
      writeFully(this.handle, bytes, this.position)
    } catch (error) {
      throw ioError('writing', this.path, error)
    }
    this.position += bytes.length
    if (this.position - this.syncedTo >= this.syncEveryBytes) this.syncNow()
  }
}

const shapeOf = ({ seed, segmentLength, segmentCount }: Omit<FilterShape, 'entries' | 'length'>) => ({
  seed,
  segmentLength,
  segmentCount,
})

/** What writing a run takes in memory, at most, beside the tombstones. */
export function writingBytes(entriesMax: number): number {
  return (Math.ceil(entriesMax / KEYS_PER_PAGE) + 1) * KEY_BYTES + (WRITE_PAGES + READ_BACK_PAGES) * PAGE_BYTES
}
