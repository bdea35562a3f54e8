/** What the tests of the seen-set share: keys from numbers, small tuning so that little data merges often, a quiet world. */
import { expect } from 'vitest'
import type { Env } from '../../src/env/env.js'
import { seededRandom } from '../../src/env/random.js'
import { simEnv } from '../../src/env/sim-env.js'
import type { SimFileSystem } from '../../src/env/sim-file-system.js'
import { HoldfastError, type HoldfastErrorCode } from '../../src/errors.js'
import { type SeenRunInfo, SeenSet, type SeenTuning } from '../../src/seen/seen-set.js'

export const JOB_ID = Uint8Array.from({ length: 16 }, (_, i) => i + 1)
export const DIRECTORY = '/job/requests.seen'

/** Levels, filters, caches and shards so small that a handful of keys exercises all of them; a pause at every step. */
export const TINY: SeenTuning = {
  levelGrowth: 3,
  levelBaseKeys: 4,
  filterKeysMax: 7,
  tableKeysMax: 32,
  hitCacheBytes: 16 * 65,
  pageCacheCount: 2,
  pageCacheCountMax: 2,
  tableSlotsMin: 2,
  sliceMs: 0,
  workerKeysMin: 0,
  besideKeysMin: Infinity,
  runsMax: 100,
}

export interface Committed {
  readonly runs: readonly SeenRunInfo[]
  readonly size: number
}

export const EMPTY: Committed = { runs: [], size: 0 }

/** A disk on which /job is durable, as the engine leaves it. */
export function world(seed: number, files?: SimFileSystem): ReturnType<typeof simEnv> {
  const env = files === undefined ? simEnv({ seed }) : simEnv({ seed, files })
  if (files === undefined) {
    env.files.makeDirectory('/job')
    env.files.syncDirectoryNow('/')
  }
  return env
}

export function openSet(env: Env, committed: Committed = EMPTY, tuning: Partial<SeenTuning> = TINY): SeenSet {
  return SeenSet.open({ env, directory: DIRECTORY, jobId: JOB_ID, ...committed, tuning })
}

export async function checkpoint(set: SeenSet): Promise<Committed> {
  set.freeze()
  const committed = await set.writeFrozen()
  set.commitFrozen()
  return committed
}

/** Evenly spread keys, as fingerprints are: the n-th of a family. */
export function spreadKey(n: number): Buffer {
  return seededRandom(n * 2 + 1).bytes(16)
}

/** Keys that differ only at their end, as a user's counters do. Number 0 is all zeros. */
export function counterKey(n: number): Buffer {
  const key = Buffer.alloc(16)
  key.writeUInt32BE(n, 12)
  return key
}

export function caught(action: () => unknown): unknown {
  try {
    action()
  } catch (error) {
    return error
  }
  return undefined
}

export function expectHoldfastError(error: unknown, code: HoldfastErrorCode): HoldfastError {
  expect(error).toBeInstanceOf(HoldfastError)
  expect((error as HoldfastError).code, (error as HoldfastError).message).toBe(code)
  return error as HoldfastError
}
