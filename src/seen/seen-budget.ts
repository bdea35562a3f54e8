/**
 * How the memory of a seen-set is divided. One number bounds all of it: tables (the live one, and the one being written),
 * the two caches, fences, filters, and what merging takes. Tables, caches and merging have fixed shares; fences are needed
 * at any price; filters get the rest, those of small runs first, as they spare most for their size.
 */
import { FUSE_BUILD_BYTES } from './binary-fuse.js'
import { CACHED_PAGE_BYTES } from './seen-cache.js'
import { FILTER_KEYS_MAX, KEYS_PER_PAGE, type SeenRunInfo } from './seen-format.js'
import { KEY_BYTES } from './seen-key.js'
import { entriesOf, type LevelShape, sourceBytes } from './seen-merge.js'
import { writingBytes } from './seen-run-writer.js'
import { ENTRY_BYTES } from './seen-sort.js'
import { TABLE_SLOTS_MIN, tableBytes } from './seen-table.js'

/** Bytes unless it says otherwise. */
export interface SeenBudget {
  readonly memoryBytes: number
  /** Keys in the live table at which it is time for a checkpoint. */
  readonly tableKeysMax: number
  readonly hitCacheBytes: number
  readonly pageCacheCount: number
  /** If filters leave room. */
  readonly pageCacheCountMax: number
  /** Keys of one filter: what building one takes is the larger part of merging. */
  readonly filterKeysMax: number
}

const TABLES_SHARE = 1 / 7
const HIT_CACHE_SHARE = 1 / 16
const PAGE_CACHE_SHARE = 1 / 32
const PAGE_CACHE_SHARE_MAX = 1 / 4
const MERGE_SHARE = 1 / 12
const TABLE_KEYS_MIN = 64
/** A larger table would make a checkpoint long, and spare little: what it answers, the hit cache answers too. */
const TABLE_KEYS_LIMIT = 1_000_000
const FILTER_KEYS_MIN = 1024

export function budgetOf(memoryBytes: number): SeenBudget {
  let tableKeysMax = TABLE_KEYS_MIN
  // Steps of an eighth: shards double, so what a table takes jumps anyway.
  for (let keys = TABLE_KEYS_MIN; keys <= TABLE_KEYS_LIMIT; keys = Math.ceil(keys * 1.125)) {
    // Twice: one is written while the other fills. Twice the keys: it fills while the other is written.
    if (2 * tableBytes(2 * keys) > memoryBytes * TABLES_SHARE) break
    tableKeysMax = keys
  }
  let filterKeysMax = FILTER_KEYS_MAX
  while (filterKeysMax > FILTER_KEYS_MIN && filterKeysMax * FUSE_BUILD_BYTES > memoryBytes * MERGE_SHARE) {
    filterKeysMax /= 2
  }
  return {
    memoryBytes,
    tableKeysMax,
    hitCacheBytes: memoryBytes * HIT_CACHE_SHARE,
    pageCacheCount: Math.floor((memoryBytes * PAGE_CACHE_SHARE) / CACHED_PAGE_BYTES),
    pageCacheCountMax: Math.floor((memoryBytes * PAGE_CACHE_SHARE_MAX) / CACHED_PAGE_BYTES),
    filterKeysMax,
  }
}

/** What the largest merge there could be takes beside the flush of a table, and the fences of what it makes. */
export function mergeReserveBytes(
  tuning: { readonly tableKeysMax: number; readonly filterKeysMax: number; readonly runsMax: number },
  runs: readonly SeenRunInfo[],
): number {
  const entries = runs.reduce((sum, run) => sum + entriesOf(run), 0)
  const sources = runs.reduce((sum, run) => sum + sourceBytes(run), 0) + 2 * writingBytes(2 * tuning.tableKeysMax)
  const fences = Math.ceil(entries / KEYS_PER_PAGE) * KEY_BYTES
  const filters = Math.min(entries + tuning.tableKeysMax, tuning.filterKeysMax) * FUSE_BUILD_BYTES
  return fences + 2 * filters + 2 * tuning.tableKeysMax * ENTRY_BYTES + sources
}

/** For tests and benchmarks; what `memoryBytes` leads to suits everyone else. */
export interface SeenTuning extends LevelShape {
  /** Keys in the live table at which the owner asks for a checkpoint; while that runs, up to twice as many. */
  readonly tableKeysMax: number
  /** Keys of one filter, at most. */
  readonly filterKeysMax: number
  /** Bytes for keys found in runs lately, which are answered without the disk. */
  readonly hitCacheBytes: number
  readonly pageCacheCount: number
  readonly pageCacheCountMax: number
  /** Slots of a new shard of the table, a power of two. */
  readonly tableSlotsMin: number
  /** Background work on this thread lets others in after this long. */
  readonly sliceMs: number
  /** Runs of fewer entries are written on this thread even if there are others. */
  readonly workerKeysMin: number
  /** Merges of more entries run beside checkpoints. */
  readonly besideKeysMin: number
  /** Runs there may be while a merge runs beside: with more, the next checkpoint waits for it. */
  readonly runsMax: number
}

export function tuningOf(memoryBytes: number, given: Partial<SeenTuning>): SeenTuning {
  const { tableKeysMax, filterKeysMax, hitCacheBytes, pageCacheCount, pageCacheCountMax } = budgetOf(memoryBytes)
  return {
    tableKeysMax,
    filterKeysMax,
    hitCacheBytes,
    pageCacheCount,
    pageCacheCountMax,
    levelGrowth: 8,
    // A checkpoint that came late finds up to twice as many keys.
    levelBaseKeys: 2 * (given.tableKeysMax ?? tableKeysMax),
    tableSlotsMin: TABLE_SLOTS_MIN,
    sliceMs: 2,
    workerKeysMin: 64 * 1024,
    besideKeysMin: 2_000_000,
    runsMax: 48,
    ...given,
  }
}
