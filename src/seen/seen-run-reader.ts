/**
 * One immutable sorted run, as look-ups see it: fences in memory, filters as far as they may be, pages on disk and in the
 * shared cache. Invariant: what it says of a key is exact; filters and cache only spare it the disk.
 */
import { assert } from '../assert.js'
import type { FileHandle } from '../env/file-system.js'
import type { PageCache } from './seen-cache.js'
import type { RunFilters } from './seen-filters.js'
import { KEYS_PER_PAGE, PAGE_BYTES, parseRunName } from './seen-format.js'
import { ABSENT, compareKeys, KEY, KEY_WORDS, type KeyState, type Probe, TOMBSTONE } from './seen-key.js'
import { type RunName, RunPages } from './seen-run-pages.js'

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

assert(PAGE_BYTES % 16 === 0, 'pages are read as words')

/** Few are searched from the middle: a guess has nothing to win there. */
const GUESS_MIN = 32

/**
 * Of ascending keys (four words each) at places `from` to `to`, the last one that is not above the probe; `from` - 1 when
 * there is none. The first words say about where it must be when keys are spread evenly, as fingerprints are; from there the
 * steps double until the probe is between two of them, so that keys of any other kind cost no more than halving would.
 */
export function lastNotAbove(keys: Uint32Array, from: number, to: number, probe: Probe): number {
  let low = from
  let high = to
  if (high - low > GUESS_MIN) {
    const first = keys[low * KEY_WORDS]
    const last = keys[(high - 1) * KEY_WORDS]
    const word = probe[0]
    if (word > first && word < last) {
      const guess = low + Math.floor(((word - first) / (last - first)) * (high - 1 - low))
      let step = 4
      if (compareKeys(keys, guess * KEY_WORDS, probe, 0) <= 0) {
        low = guess + 1
        while (low + step < high && compareKeys(keys, (low + step) * KEY_WORDS, probe, 0) <= 0) {
          low += step + 1
          step *= 2
        }
        high = Math.min(high, low + step)
      } else {
        high = guess
        while (high - step > from && compareKeys(keys, (high - step) * KEY_WORDS, probe, 0) > 0) {
          high -= step
          step *= 2
        }
        low = Math.max(from, high - step)
      }
    }
  }
  while (low < high) {
    const middle = (low + high) >>> 1
    if (compareKeys(keys, middle * KEY_WORDS, probe, 0) <= 0) low = middle + 1
    else high = middle
  }
  return low - 1
}
