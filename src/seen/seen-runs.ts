/**
 * The runs of the last checkpoint, newest first, and what makes asking them cheap: two caches, and as many filters in memory
 * as the budget leaves room for. Invariant: fences, filters, caches and what the owner says it takes stay within the budget
 * as long as fences and the owner alone do.
 */
import { CACHED_PAGE_BYTES, HitCache, PageCache } from './seen-cache.js'
import type { RunFilters } from './seen-filters.js'
import type { SeenRunInfo } from './seen-format.js'
import { ABSENT, KEY, type Probe } from './seen-key.js'
import type { SeenRunReader } from './seen-run-reader.js'

/** Filters of a run that are this small are read at once: that costs less than asking for each whether it is worth it. */
const EAGER_BYTES = 1024 * 1024

export interface RunsBudget {
  readonly memoryBytes: number
  readonly hitCacheBytes: number
  /** Pages it has room for at least, and at most if filters leave room. */
  readonly pageCacheCount: number
  readonly pageCacheCountMax: number
}

export class SeenRuns {
  readonly pages: PageCache
  private list: readonly SeenRunReader[] = []
  /** In which order the runs are asked for a key. */
  private order: readonly SeenRunReader[] = []
  private readonly budget: RunsBudget
  private readonly hits: HitCache

  constructor(budget: RunsBudget) {
    this.budget = budget
    this.pages = new PageCache(budget.pageCacheCount)
    this.hits = new HitCache(budget.hitCacheBytes)
  }

  /** Newest first. */
  get readers(): readonly SeenRunReader[] {
    return this.list
  }

  set readers(list: readonly SeenRunReader[]) {
    this.list = list
    this.order = orderOf(list)
  }

  get infos(): SeenRunInfo[] {
    return this.readers.map((reader) => reader.info)
  }

  get memoryBytes(): number {
    let bytes = this.pages.memoryBytes + this.hits.memoryBytes
    for (const reader of this.readers) bytes += reader.memoryBytes
    return bytes
  }

  get diskBytes(): number {
    return this.readers.reduce((sum, reader) => sum + reader.info.bytes, 0)
  }

  /** Whether it was found in a run lately. */
  wasHit(probe: Probe): boolean {
    return this.hits.has(probe)
  }

  /** Whether the runs call it seen. May read pages. */
  find(probe: Probe): boolean {
    const { order } = this
    for (let i = 0; i < order.length; i++) {
      const state = order[i].get(probe)
      if (state === ABSENT) continue
      if (state !== KEY) return false
      this.hits.put(probe)
      return true
    }
    return false
  }

  mayHold(probe: Probe): boolean {
    return this.readers.some((reader) => reader.mayHold(probe))
  }

  dropHit(probe: Probe): void {
    this.hits.drop(probe)
  }

  /**
   * Divides what is left among the filters; `othersBytes`: what everything that is not here takes, at most. Newest runs
   * first: they are the small ones, and each filter spares the same page for a key that is not in its run. What filters do
   * not need goes to pages.
   */
  fit(othersBytes: number): void {
    const { memoryBytes, hitCacheBytes, pageCacheCount, pageCacheCountMax } = this.budget
    let left = memoryBytes - othersBytes - hitCacheBytes - (pageCacheCount + 1) * CACHED_PAGE_BYTES
    for (const reader of this.readers) left -= reader.fences.byteLength
    for (const { filters } of this.readers) {
      filters.allow(Math.max(0, left))
      left -= filters.bytesWanted
      if (filters.bytesWhole <= EAGER_BYTES) loadIfPossible(filters)
    }
    const more = Math.floor(Math.max(0, left) / CACHED_PAGE_BYTES)
    this.pages.allow(Math.max(pageCacheCount, Math.min(pageCacheCountMax, pageCacheCount + more)))
    this.order = orderOf(this.list)
  }

  /** At open: in large reads, before anyone asks. */
  loadFilters(): void {
    for (const { filters } of this.readers) filters.loadWanted()
  }

  close(): void {
    for (const reader of this.readers) reader.close()
  }
}

/**
 * Newest first where there are tombstones, which hide what is older. Else no run can contradict another, and the cheapest are
 * asked first: those that have all their filters, large ones first as most known keys are there, and only then those where
 * a key that is not in them may cost a page.
 */
function orderOf(list: readonly SeenRunReader[]): readonly SeenRunReader[] {
  if (list.some((reader) => reader.tombstonePages > 0)) return list
  const [filtered, bare] = [true, false].map((whole) => list.filter(({ filters }) => filters.mayBeWhole === whole))
  return [...filtered.reverse(), ...bare]
}

/** This is on the way of a commit, which cannot fail any more. A disk that does not answer is met by the next look-up. */
function loadIfPossible(filters: RunFilters): void {
  try {
    filters.loadWanted()
  } catch {
    // See above.
  }
}
