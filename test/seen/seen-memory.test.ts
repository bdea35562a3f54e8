/** One number bounds what the set takes; whatever has to go for that, answers stay exact. */
import { describe, expect, test } from 'vitest'
import { seededRandom } from '../../src/env/random.js'
import type { SimFileSystem } from '../../src/env/sim-file-system.js'
import { SEEN_MEMORY_BYTES_DEFAULT, SEEN_MEMORY_BYTES_MIN } from '../../src/limits.js'
import { budgetOf } from '../../src/seen/seen-budget.js'
import { type SeenRunInfo, SeenSet } from '../../src/seen/seen-set.js'
import { checkpoint, counterKey, DIRECTORY, JOB_ID, spreadKey, TINY, world } from './seen-support.js'

const TUNING = {
  ...TINY,
  tableKeysMax: 400,
  levelBaseKeys: 800,
  filterKeysMax: 256,
  hitCacheBytes: 20_000,
  pageCacheCount: 4,
  pageCacheCountMax: 40,
  besideKeysMin: 3000,
}

function open(
  env: ReturnType<typeof world>,
  memoryBytes: number,
  from: { runs: readonly SeenRunInfo[]; size: number } = { runs: [], size: 0 },
): SeenSet {
  return SeenSet.open({ env, directory: DIRECTORY, jobId: JOB_ID, ...from, memoryBytes, tuning: TUNING })
}

const loadedFilters = (set: SeenSet): { loaded: number; count: number } => {
  const { readers } = (set as unknown as { runList: { readers: { filters: { loaded: number; count: number } }[] } })
    .runList
  return readers.reduce(
    (sum, { filters }) => ({ loaded: sum.loaded + filters.loaded, count: sum.count + filters.count }),
    { loaded: 0, count: 0 },
  )
}

describe('the memory bound', () => {
  test.each([1, 2, 3])(
    'holds at every step of a long random run, seed %i',
    async (seed) => {
      const memoryBytes = 800_000
      const env = world(seed)
      const random = seededRandom(seed)
      const set = open(env, memoryBytes)
      const model = new Set<number>()
      let [highest, evicted, checkpoints, besides] = [0, 0, 0, 0]
      let writing: Promise<unknown> | undefined
      const look = (): void => {
        highest = Math.max(highest, set.memoryBytes)
        expect(set.memoryBytes).toBeLessThanOrEqual(memoryBytes)
      }
      const commit = async (): Promise<void> => {
        await writing
        set.commitFrozen()
        writing = undefined
        checkpoints++
      }
      for (let step = 0; step < 12_000; step++) {
        const n = random.uint32() % 4 === 0 ? random.uint32() % 2000 : step
        const key = n % 3 === 0 ? counterKey(n) : spreadKey(n)
        if (random.uint32() % 40 === 0) {
          expect(set.forget(key, 0)).toBe(model.delete(n))
        } else {
          expect(set.add(key, 0)).toBe(!model.has(n))
          model.add(n)
        }
        look()
        if (random.uint32() % 8 === 0) await env.clock.settle(1)
        look()
        if (writing === undefined && (set.tableCount >= TUNING.tableKeysMax || set.isMerged)) {
          if (set.isMerged) besides++
          set.freeze()
          writing = set.writeFrozen()
        } else if (
          writing !== undefined &&
          (set.tableCount >= 2 * TUNING.tableKeysMax || random.uint32() % 2000 === 0)
        ) {
          await commit()
          look()
        }
        const { loaded, count } = loadedFilters(set)
        if (loaded < count) evicted++
      }
      if (writing !== undefined) await commit()
      set.check()
      expect(set.size).toBe(model.size)
      // The run must reach what it is for: near the bound, with merges beside, and with filters that do not fit.
      expect([checkpoints > 10, besides > 0, evicted > 0], `${checkpoints} ${besides} ${evicted}`).toEqual([
        true,
        true,
        true,
      ])
      expect(highest).toBeGreaterThan(memoryBytes * 0.95)
      set.close()
    },
    60_000,
  )

  test('filters that do not fit are not in memory, small runs keep theirs, and every answer is right', async () => {
    const env = world(5)
    let set = open(env, SEEN_MEMORY_BYTES_DEFAULT)
    for (let n = 0; n < 5000; n++) set.add(spreadKey(n), 0)
    await checkpoint(set)
    for (let n = 5000; n < 5300; n++) set.add(spreadKey(n), 0)
    const committed = await checkpoint(set)
    expect(set.runs).toHaveLength(2)
    set.close()
    const needed = 1_000_000
    const seen: number[] = []
    for (const memoryBytes of [needed, 600_000, 400_000, 50_000]) {
      set = open(env, memoryBytes, committed)
      const { loaded, count } = loadedFilters(set)
      seen.push(loaded / count)
      let wrong = 0
      for (let n = 0; n < 6000; n++) if (set.has(spreadKey(n), 0) !== n < 5300) wrong++
      expect([memoryBytes, wrong]).toEqual([memoryBytes, 0])
      set.check()
      set.close()
    }
    expect(seen[0]).toBe(1)
    expect(seen[seen.length - 1]).toBe(0)
    expect(readsFor(env.files, committed, 50_000)).toBeGreaterThan(readsFor(env.files, committed, needed))
  }, 60_000)

  test('when filters do not fit, newer runs do not pile up above the oldest', async () => {
    const runsWith = async (memoryBytes: number): Promise<number> => {
      const env = world(8)
      const set = open(env, memoryBytes)
      for (let n = 0; n < 24_000; n++) {
        set.add(spreadKey(n), 0)
        if (n % 800 !== 799) continue
        await checkpoint(set)
        await set.settled()
      }
      await checkpoint(set)
      await set.settled()
      set.check()
      const [oldest, ...newer] = [...set.runs].reverse().map((run) => run.keys)
      const sum = newer.reduce((total, keys) => total + keys, 0)
      set.close()
      return sum / oldest
    }
    expect(await runsWith(50_000)).toBeLessThan(0.5)
    // With room for all of them it is the levels that decide.
    expect(await runsWith(SEEN_MEMORY_BYTES_DEFAULT)).toBeGreaterThan(0.5)
  }, 60_000)

  test('more memory than that is of no use to small sets, and none is taken before it is needed', () => {
    const set = open(world(6), SEEN_MEMORY_BYTES_DEFAULT)
    expect(set.memoryBytes).toBe(0)
    set.add(spreadKey(1), 0)
    expect(set.memoryBytes).toBeLessThan(100)
  })

  test('the parts follow from the whole, and fit in it', () => {
    for (let bytes = SEEN_MEMORY_BYTES_MIN; bytes <= 2 ** 32; bytes *= 2) {
      const budget = budgetOf(bytes)
      expect(budget.tableKeysMax).toBeGreaterThan(10_000)
      expect(budget.hitCacheBytes + budget.pageCacheCount * 4096).toBeLessThan(bytes / 8)
    }
    expect(budgetOf(2 ** 40).tableKeysMax).toBeLessThanOrEqual(1_000_000)
  })
})

/** Calls to read, for keys that are not there. */
function readsFor(
  files: SimFileSystem,
  committed: { runs: readonly SeenRunInfo[]; size: number },
  memoryBytes: number,
): number {
  const env = world(7, files)
  let reads = 0
  const counted = {
    ...env,
    files: new Proxy(env.files, {
      get(target, name) {
        if (name !== 'open') return Reflect.get(target, name).bind?.(target) ?? Reflect.get(target, name)
        return (...args: Parameters<typeof target.open>) => {
          const handle = target.open(...args)
          return new Proxy(handle, {
            get(inner, key) {
              if (key === 'read') reads++
              const value = Reflect.get(inner, key)
              return typeof value === 'function' ? value.bind(inner) : value
            },
          })
        }
      },
    }),
  }
  const set = SeenSet.open({
    env: counted,
    directory: DIRECTORY,
    jobId: JOB_ID,
    ...committed,
    memoryBytes,
    tuning: TUNING,
  })
  reads = 0
  for (let n = 10_000; n < 11_000; n++) set.has(spreadKey(n), 0)
  set.close()
  return reads
}
