/**
 * One immutable sorted run, as look-ups see it: fences in memory, filters as far as they may be, pages on disk and in the
 * shared cache. Invariant: what it says of a key is exact; filters and cache only spare it the disk.
 */
import { assert } from '../assert.js'
import type { FileHandle } from '../env/file-system.js'
import type { PageCache } from './seen-cache.js'
import type { RunFilters } from './seen-filters.js'
import { KEYS_PER_PAGE, parseRunName } from './seen-format.js'
import { ABSENT, compareKeys, KEY, KEY_WORDS, type KeyState, type Probe, TOMBSTONE } from './seen-key.js'
import { type RunName, RunPages } from './seen-run-pages.js'
import { lastNotAbove } from './seen-search.js'

/** A reader's pages in the shared cache are told apart by its serial number, which is never used twice. */
let lastSerial = 0
const PAGES_PER_RUN_MAX = 2 ** 28
/** Page numbers leave room for the serial in one exact number. */
export const RUN_KEYS_MAX = PAGES_PER_RUN_MAX * KEYS_PER_PAGE

/** All that a reader needs: read from the file by `openRun`, or handed over by the writer that made it. */
export interface RunParts extends RunName {
  /** First key of each page, key pages first: four words each. */
  readonly fences: Uint32Array
  readonly filters: RunFilters
}

export class SeenRunReader extends RunPages {
  readonly number: number
  readonly fences: Uint32Array
  readonly filters: RunFilters
  private readonly cache: PageCache
  private readonly serial = ++lastSerial

  constructor(handle: FileHandle, parts: RunParts, cache: PageCache) {
    super(handle, parts)
    this.number = parseRunName(parts.info.file) as number
    this.fences = parts.fences
    this.filters = parts.filters
    this.cache = cache
    assert(this.fences.length === (this.keyPages + this.tombstonePages) * KEY_WORDS, 'one fence a page')
    assert(this.keyPages + this.tombstonePages < PAGES_PER_RUN_MAX, 'page numbers leave room for the serial')
  }

  get memoryBytes(): number {
    return this.fences.byteLength + this.filters.memoryBytes
  }

  /** Without the pages: false only if the run holds neither the key nor a tombstone of it. */
  mayHold(probe: Probe): boolean {
    return this.filters.mayHold(probe)
  }

  /** What this run says of the key; at most one page is read for a key, one more where there are tombstones. */
  get(probe: Probe): KeyState {
    if (!this.filters.mayHold(probe)) return ABSENT
    if (this.inPages(probe, 0, this.keyPages)) return KEY
    if (this.tombstonePages > 0 && this.inPages(probe, this.keyPages, this.keyPages + this.tombstonePages)) {
      return TOMBSTONE
    }
    return ABSENT
  }

  private inPages(probe: Probe, from: number, to: number): boolean {
    const index = lastNotAbove(this.fences, from, to, probe)
    if (index < from) return false
    const words = this.page(index)
    const at = lastNotAbove(words, 0, this.keysInPage(index), probe)
    return at >= 0 && compareKeys(words, at * KEY_WORDS, probe, 0) === 0
  }

  private page(index: number): Uint32Array {
    this.assertOpen()
    const id = this.serial * PAGES_PER_RUN_MAX + index
    const cached = this.cache.get(id)
    if (cached !== undefined) return cached.words
    const page = this.cache.take()
    this.readPages(page.bytes, index, 1)
    this.cache.keep(id)
    return page.words
  }
}
