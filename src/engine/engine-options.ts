/** The options of a store with their defaults filled in, checked once at the door. */
import type { Env } from '../env/env.js'
import { nodeEnv } from '../env/node-env.js'
import {
  CARRY_BUCKET_BYTES,
  CARRY_TOTAL_BYTES,
  JOURNAL_AHEAD_BYTES,
  JOURNAL_BYTES_MAX,
  LEASE_MS_DEFAULT,
  MAX_ATTEMPTS_DEFAULT,
  MEMORY_BYTES_DEFAULT,
  RESERVE_BYTES,
  SEEN_MEMORY_BYTES_DEFAULT,
  SEEN_MEMORY_BYTES_MIN,
  SEGMENT_BYTES,
  SYNC_EVERY_MS_DEFAULT,
  SYNC_ON_THREAD_MS,
} from '../limits.js'
import type { SlotLimits } from '../queue/slot-table.js'
import { budgetOf } from '../seen/seen-budget.js'
import type { StoreKind } from '../store/manifest.js'

/** Bounds that tests and simulations make small. */
export interface Tuning {
  readonly journalBytes: number
  /** Zeroed ahead of the journal's frames in `power`; 0: nothing. */
  readonly journalAheadBytes: number
  /** In `power`, a sync is made on the calling thread when the last one took less; 0: never. */
  readonly syncOnThreadMs: number
  readonly carryBucketBytes: number
  readonly carryTotalBytes: number
  readonly segmentBytes: number
  /** Fingerprints in the seen-set's table before a checkpoint is asked for. Follows from `seenMemoryBytes`. */
  readonly seenTableKeys: number
  readonly reserveBytes: number
}

export interface EngineOptions {
  readonly env: Env
  readonly kind: StoreKind
  readonly order: 'fifo' | 'lifo' | undefined
  readonly power: boolean
  readonly syncEveryMs: number
  readonly memoryBytes: number
  readonly seenMemoryBytes: number
  readonly leaseMs: number
  readonly maxAttempts: number
  readonly memoryFallback: boolean
  readonly limitsOf: (slot: string) => SlotLimits
  readonly tuning: Tuning
}

export interface CommonOptions {
  readonly order?: 'fifo' | 'lifo'
  readonly durability?: 'process' | 'power'
  readonly syncEveryMs?: number
  readonly memoryBytes?: number
  readonly seenMemoryBytes?: number
  readonly leaseMs?: number
  readonly maxAttempts?: number
  readonly memoryFallback?: boolean
  readonly env?: Env
  /** Undocumented on purpose: bounds for tests. */
  readonly tuning?: Partial<Tuning>
}

export function resolveOptions(
  kind: StoreKind,
  options: CommonOptions,
  limitsOf: (slot: string) => SlotLimits,
): EngineOptions {
  const { order, durability = 'process' } = options
  if (order !== undefined && order !== 'fifo' && order !== 'lifo') {
    throw new TypeError(`order is ${JSON.stringify(order)}, expected 'fifo' or 'lifo'`)
  }
  if (durability !== 'process' && durability !== 'power') {
    throw new TypeError(`durability is ${JSON.stringify(durability)}, expected 'process' or 'power'`)
  }
  const seenMemoryBytes = positive('seenMemoryBytes', options.seenMemoryBytes, SEEN_MEMORY_BYTES_DEFAULT)
  if (seenMemoryBytes < SEEN_MEMORY_BYTES_MIN) {
    throw new TypeError(`seenMemoryBytes is ${seenMemoryBytes}, expected at least ${SEEN_MEMORY_BYTES_MIN}`)
  }
  return {
    env: options.env ?? nodeEnv,
    kind,
    order,
    power: durability === 'power',
    syncEveryMs: positive('syncEveryMs', options.syncEveryMs, SYNC_EVERY_MS_DEFAULT),
    memoryBytes: positive('memoryBytes', options.memoryBytes, MEMORY_BYTES_DEFAULT),
    seenMemoryBytes,
    leaseMs: positive('leaseMs', options.leaseMs, LEASE_MS_DEFAULT),
    maxAttempts: positive('maxAttempts', options.maxAttempts, MAX_ATTEMPTS_DEFAULT),
    memoryFallback: options.memoryFallback ?? true,
    limitsOf,
    tuning: {
      journalBytes: JOURNAL_BYTES_MAX,
      journalAheadBytes: JOURNAL_AHEAD_BYTES,
      syncOnThreadMs: SYNC_ON_THREAD_MS,
      carryBucketBytes: CARRY_BUCKET_BYTES,
      carryTotalBytes: CARRY_TOTAL_BYTES,
      segmentBytes: SEGMENT_BYTES,
      seenTableKeys: budgetOf(seenMemoryBytes).tableKeysMax,
      reserveBytes: RESERVE_BYTES,
      ...options.tuning,
    },
  }
}

export function positive(name: string, value: number | undefined, fallback: number): number {
  if (value === undefined) return fallback
  if (typeof value !== 'number' || !(value > 0)) throw new TypeError(`${name} is ${value}, expected a number above 0`)
  return value
}
