/**
 * Writes one run from entries that come in ascending order. The file is real only once a manifest names it; until then it
 * can be thrown away (`abandon`) and nobody has missed anything.
 *
 * Key pages go out as they fill. Tombstones (few) wait in memory, as their pages follow the last key page. A filter is
 * built each time its share of keys is complete, so that scratch memory does not grow with the run.
 */
import { assert } from '../assert.js'
import { crc32 } from '../bytes/crc32.js'
import type { FileHandle, FileSystem } from '../env/file-system.js'
import { ioError } from '../errors.js'
import { writeFully } from '../store/json-file.js'
import { buildBinaryFuse } from './binary-fuse.js'
import {
  encodeFilter,
  encodeRunEnd,
  encodeRunHeader,
  FILTER_KEYS_MAX,
  KEYS_PER_PAGE,
  PAGE_BYTES,
  PAGE_KEYS,
  PAGE_TOMBSTONES,
  RUN_HEADER_BYTES,
  type RunFilter,
  type RunHeader,
  runName,
  sealPage,
} from './seen-format.js'
import {
  compareKeys,
  hashHigh,
  hashLow,
  KEY,
  KEY_BYTES,
  KEY_WORDS,
  newProbe,
  probeWords,
  TOMBSTONE,
  writeWord,
} from './seen-key.js'
import type { RunParts } from './seen-run-reader.js'
import { STEP_KEYS, type Steps } from './seen-slices.js'

/** Pages gathered for one write call. */
const WRITE_PAGES = 16

export interface RunWriterOptions extends RunHeader {
  readonly files: FileSystem
  readonly path: string
  /** At least as many entries as will come: sizes the arrays. */
  readonly entriesMax: number
  readonly filterKeysMax?: number
}

export class SeenRunWriter {
  keys = 0
  tombstones = 0
  readonly path: string
  private readonly header: RunHeader
  private readonly files: FileSystem
  private readonly handle: FileHandle
  private position = 0
  private readonly out = Buffer.alloc(WRITE_PAGES * PAGE_BYTES)
  /** Whole pages in `out`, and keys in the page behind them. */
  private outPages = 0
  private pageKeys = 0
  private pages = 0
  private readonly fences: Uint32Array
  private tombstoneWords = new Uint32Array(0)
  private readonly lastKey = new Uint32Array(KEY_WORDS)
  private readonly probe = newProbe()
  private readonly filters: RunFilter[] = []
  private readonly filterKeysMax: number
  private readonly filterFirst = new Uint32Array(KEY_WORDS)
  private filterKeys = 0
  private readonly filterHigh: Uint32Array
  private readonly filterLow: Uint32Array

  constructor(options: RunWriterOptions) {
    const { files, path, entriesMax } = options
    this.header = { jobId: options.jobId, number: options.number, salt: options.salt, level: options.level }
    this.files = files
    this.path = path
    this.filterKeysMax = options.filterKeysMax ?? FILTER_KEYS_MAX
    this.filterHigh = new Uint32Array(Math.min(this.filterKeysMax, entriesMax))
    this.filterLow = new Uint32Array(this.filterHigh.length)
    this.fences = new Uint32Array((Math.ceil(entriesMax / KEYS_PER_PAGE) + 1) * KEY_WORDS)
    try {
      this.handle = files.open(path, 'create')
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

  /** The filter's share of keys is complete: `buildFilter` must run before the next `append`. */
  get filterDue(): boolean {
    return this.filterKeys === this.filterKeysMax
  }

  /** The entry whose words are at `at`; above every one before. */
  append(words: Uint32Array, at: number, state: number): void {
    assert(this.keys + this.tombstones === 0 || compareKeys(this.lastKey, 0, words, at) < 0, 'entries ascend')
    for (let i = 0; i < KEY_WORDS; i++) this.lastKey[i] = words[at + i]
    this.addToFilter(words, at)
    if (state === KEY) {
      this.keys++
      this.putInPage(words, at, PAGE_KEYS)
    } else {
      assert(state === TOMBSTONE, 'an entry is a key or a tombstone')
      this.keepTombstone(words, at)
    }
  }

  *buildFilter(): Steps<void> {
    const { filterHigh, filterLow, filterKeys, filterFirst } = this
    const seed = (this.header.salt + this.filters.length) >>> 0
    const fuse = yield* buildBinaryFuse(filterHigh, filterLow, filterKeys, seed)
    this.filters.push({ first: filterFirst.slice(), entries: filterKeys, fuse })
    this.filterKeys = 0
  }

  /** Everything behind the key pages. `sync` makes it durable. */
  *finish(): Steps<RunParts> {
    assert(this.keys + this.tombstones > 0, 'a run holds something')
    if (this.filterKeys > 0) yield* this.buildFilter()
    this.endPage(PAGE_KEYS)
    for (let i = 0; i < this.tombstones; i++) {
      this.putInPage(this.tombstoneWords, i * KEY_WORDS, PAGE_TOMBSTONES)
      if (i % STEP_KEYS === STEP_KEYS - 1) yield
    }
    this.endPage(PAGE_TOMBSTONES)
    this.flushPages()
    assert(this.position === RUN_HEADER_BYTES + this.pages * PAGE_BYTES, 'pages are where readers look for them')
    // A copy of the exact size: it stays in memory as long as the run does.
    const fences = this.fences.slice(0, this.pages * KEY_WORDS)
    const fenceBytes = Buffer.alloc(fences.length * 4)
    for (let i = 0; i < fences.length; i++) writeWord(fenceBytes, i * 4, fences[i])
    this.write(fenceBytes)
    yield
    let filtersBytes = 0
    for (const filter of this.filters) {
      const bytes = encodeFilter(filter, this.header.salt)
      this.write(bytes)
      filtersBytes += bytes.length
      yield
    }
    const { keys, tombstones } = this
    const fencesCrc = crc32(fenceBytes, this.header.salt)
    const footer = { keys, tombstones, fencesCrc, filterCount: this.filters.length, filtersBytes }
    const end = encodeRunEnd(footer, this.header.salt)
    this.write(end.bytes)
    const file = runName(this.header.number)
    const info = { file, keys, tombstones, bytes: this.position, level: this.header.level, crc: end.crc }
    return { path: this.path, handle: this.handle, info, salt: this.header.salt, fences, filters: this.filters }
  }

  async sync(): Promise<void> {
    try {
      await this.handle.sync()
    } catch (error) {
      throw ioError('syncing', this.path, error)
    }
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

  private addToFilter(words: Uint32Array, at: number): void {
    assert(
      this.filterKeys < this.filterHigh.length,
      'the filter was built in time, and no more entries came than announced',
    )
    if (this.filterKeys === 0) this.filterFirst.set(words.subarray(at, at + KEY_WORDS))
    probeWords(this.probe, words, at)
    this.filterHigh[this.filterKeys] = hashHigh(this.probe)
    this.filterLow[this.filterKeys] = hashLow(this.probe)
    this.filterKeys++
  }

  private keepTombstone(words: Uint32Array, at: number): void {
    const end = this.tombstones * KEY_WORDS
    if (end === this.tombstoneWords.length) {
      const grown = new Uint32Array(Math.max(64 * KEY_WORDS, end * 2))
      grown.set(this.tombstoneWords)
      this.tombstoneWords = grown
    }
    for (let i = 0; i < KEY_WORDS; i++) this.tombstoneWords[end + i] = words[at + i]
    this.tombstones++
  }

  private putInPage(words: Uint32Array, at: number, kind: number): void {
    if (this.pageKeys === 0) this.putFence(words, at)
    const to = this.outPages * PAGE_BYTES + this.pageKeys * KEY_BYTES
    for (let i = 0; i < KEY_WORDS; i++) writeWord(this.out, to + i * 4, words[at + i])
    if (++this.pageKeys === KEYS_PER_PAGE) this.endPage(kind)
  }

  private putFence(words: Uint32Array, at: number): void {
    const to = this.pages * KEY_WORDS
    for (let i = 0; i < KEY_WORDS; i++) this.fences[to + i] = words[at + i]
  }

  private endPage(kind: number): void {
    if (this.pageKeys === 0) return
    sealPage(this.out, this.outPages * PAGE_BYTES, this.pages, this.pageKeys, kind, this.header.salt)
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
  }
}
