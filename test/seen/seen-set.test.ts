import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { describe, expect, test } from 'vitest'
import { nodeEnv } from '../../src/env/node-env.js'
import { SEEN_MEMORY_BYTES_DEFAULT } from '../../src/limits.js'
import { hashHigh, hashLow, mixHigh, mixLow, newProbe, probeBytes } from '../../src/seen/seen-key.js'
import { SeenSet } from '../../src/seen/seen-set.js'
import {
  caught,
  checkpoint,
  counterKey,
  DIRECTORY,
  EMPTY,
  expectHoldfastError,
  JOB_ID,
  openSet,
  spreadKey,
  TINY,
  world,
} from './seen-support.js'

const range = (from: number, to: number): number[] => Array.from({ length: to - from }, (_, i) => from + i)
const seenOf = (set: SeenSet, numbers: number[]): number[] => numbers.filter((n) => set.has(spreadKey(n), 0))

function addAll(set: SeenSet, numbers: number[]): void {
  for (const n of numbers) expect(set.add(spreadKey(n), 0)).toBe(true)
}

/**
 * The hash takes in the last word by XOR into both lanes: two beginnings whose lanes differ by the same bits come together
 * when the last words differ by those bits too. Among 2^17 beginnings there is such a pair.
 */
function collidingKeys(): [Buffer, Buffer] {
  const byDifference = new Map<number, { n: number; high: number }>()
  for (let n = 0; ; n++) {
    let [high, low] = [0x9e3779b9, 0x7f4a7c15]
    for (const word of [0, 0, n]) {
      high = mixHigh(high ^ word)
      low = mixLow(low ^ word)
    }
    const twin = byDifference.get((high ^ low) >>> 0)
    byDifference.set((high ^ low) >>> 0, { n, high })
    if (twin === undefined) continue
    const keys: [Buffer, Buffer] = [Buffer.alloc(16), Buffer.alloc(16)]
    keys[0].writeUInt32BE(n, 8)
    keys[1].writeUInt32BE(twin.n, 8)
    keys[1].writeUInt32BE((high ^ twin.high) >>> 0, 12)
    const probes = keys.map((key) => {
      const probe = newProbe()
      probeBytes(probe, key, 0)
      return probe
    })
    expect([hashHigh(probes[0]), hashLow(probes[0])]).toEqual([hashHigh(probes[1]), hashLow(probes[1])])
    return keys
  }
}

const rejection = (promise: Promise<unknown>): Promise<unknown> =>
  promise.then(
    () => undefined,
    (error) => error,
  )

describe('seen-set', () => {
  test('an absent directory is an empty set, and a look leaves nothing behind', async () => {
    const env = world(1)
    const set = openSet(env)
    expect([set.size, set.tableCount, set.runs, set.diskBytes, set.removeUnnamed()]).toEqual([0, 0, [], 0, []])
    expect(set.has(spreadKey(1), 0)).toBe(false)
    expect(await checkpoint(set)).toEqual(EMPTY)
    set.check()
    set.close()
    expect(env.files.allFiles()).toEqual([])
  })

  test('add is true once; keys are taken at their offset', () => {
    const set = openSet(world(2))
    const two = Buffer.concat([Buffer.from([7]), spreadKey(1), spreadKey(2)])
    expect(set.add(two, 1)).toBe(true)
    expect(set.add(two, 17)).toBe(true)
    expect(set.add(spreadKey(2), 0)).toBe(false)
    expect([set.size, set.has(spreadKey(1), 0), set.has(spreadKey(3), 0)]).toEqual([2, true, false])
    expect(() => set.has(two, 18)).toThrow('a key is 16 bytes')
  })

  test('insertNew is idempotent against the table and counts once', async () => {
    const set = openSet(world(3))
    set.insertNew(spreadKey(1), 0)
    set.insertNew(spreadKey(1), 0)
    expect(set.size).toBe(1)
    set.freeze()
    set.insertNew(spreadKey(1), 0)
    expect([set.size, set.tableCount]).toEqual([1, 0])
    set.forget(spreadKey(1), 0)
    set.insertNew(spreadKey(1), 0)
    expect(set.size).toBe(1)
    set.check()
  })

  test('forget: in the table, in the frozen table, in a run, in a run and then flushed', async () => {
    const env = world(4)
    const set = openSet(env)
    addAll(set, range(0, 10))
    expect([set.forget(spreadKey(0), 0), set.forget(spreadKey(0), 0), set.tableCount]).toEqual([true, false, 9])
    set.freeze()
    expect([set.forget(spreadKey(1), 0), set.has(spreadKey(1), 0)]).toEqual([true, false])
    await set.writeFrozen()
    set.commitFrozen()
    expect([set.forget(spreadKey(2), 0), set.forget(spreadKey(2), 0)]).toEqual([true, false])
    const committed = await checkpoint(set)
    const again = openSet(env, committed)
    expect(again.size).toBe(7)
    expect(seenOf(again, range(0, 12))).toEqual(range(3, 10))
    again.check()
    expect(again.add(spreadKey(2), 0)).toBe(true)
    await checkpoint(again)
    expect(seenOf(again, range(0, 12))).toEqual(range(2, 10))
    again.check()
  })

  test('forgotten, added and forgotten again above a frozen key: the last word counts', async () => {
    const set = openSet(world(20))
    addAll(set, range(0, 3))
    set.freeze()
    expect([set.forget(spreadKey(1), 0), set.add(spreadKey(1), 0), set.forget(spreadKey(1), 0)]).toEqual([
      true,
      true,
      true,
    ])
    expect([set.has(spreadKey(1), 0), set.size]).toEqual([false, 2])
    set.add(spreadKey(1), 0)
    set.undoAdd(spreadKey(1), 0)
    expect([set.has(spreadKey(1), 0), set.size]).toEqual([false, 2])
    await set.writeFrozen()
    set.commitFrozen()
    expect(set.has(spreadKey(1), 0)).toBe(false)
    set.check()
  })

  test('a cached hit does not outlive a forget, not even when its tombstone has gone to disk', async () => {
    const set = openSet(world(5))
    addAll(set, range(0, 30))
    await checkpoint(set)
    expect(set.has(spreadKey(1), 0)).toBe(true)
    expect(set.forget(spreadKey(1), 0)).toBe(true)
    await checkpoint(set)
    expect(set.has(spreadKey(1), 0)).toBe(false)
  })

  test('tombstones go when nothing older is left, and with them the last run', async () => {
    const env = world(6)
    const set = openSet(env)
    addAll(set, range(0, 5))
    await checkpoint(set)
    for (const n of range(0, 5)) set.forget(spreadKey(n), 0)
    expect(await checkpoint(set)).toEqual({ runs: [], size: 0 })
    expect(env.files.allFiles()).toEqual([])
    expect(set.add(spreadKey(1), 0)).toBe(true)
  })

  test('adds and looks go on between freeze and commit', async () => {
    const set = openSet(world(7))
    addAll(set, range(0, 40))
    set.freeze()
    const writing = set.writeFrozen()
    addAll(set, range(40, 50))
    expect(set.add(spreadKey(3), 0)).toBe(false)
    expect(await writing).toMatchObject({ size: 40 })
    addAll(set, range(50, 60))
    set.commitFrozen()
    expect([set.size, set.tableCount]).toEqual([60, 20])
    expect(seenOf(set, range(0, 70))).toEqual(range(0, 60))
    set.check()
  })

  test('what is written is as of the freeze, and old runs stay until the commit', async () => {
    const env = world(8)
    const set = openSet(env)
    addAll(set, range(0, 40))
    const first = await checkpoint(set)
    addAll(set, range(40, 400))
    set.freeze()
    addAll(set, range(400, 410))
    const second = await set.writeFrozen()
    expect(set.runs).toEqual(first.runs)
    const old = openSet(env, first)
    expect([old.size, seenOf(old, range(0, 410)).length]).toEqual([40, 40])
    old.close()
    const next = openSet(env, second)
    expect([next.size, seenOf(next, range(0, 410)).length]).toEqual([400, 400])
    next.check()
    next.close()
    set.commitFrozen()
    expect(env.files.allFiles()).toEqual(second.runs.map((run) => `${DIRECTORY}/${run.file}`))
    set.close()
    expect(env.files.openHandles()).toBe(0)
  })

  test('undoAdd leaves no trace: live, frozen, frozen while written, and after the write', async () => {
    const env = world(9)
    const set = openSet(env)
    addAll(set, range(0, 300))
    set.undoAdd(spreadKey(0), 0)
    set.undoAdd(spreadKey(0), 0)
    expect(set.size).toBe(299)
    set.freeze()
    set.undoAdd(spreadKey(1), 0)
    const writing = set.writeFrozen()
    await env.clock.settle(40)
    set.undoAdd(spreadKey(2), 0)
    const committed = await writing
    expect(committed.size).toBe(297)
    const other = openSet(env, committed)
    expect(seenOf(other, range(0, 6))).toEqual([3, 4, 5])
    other.check()
    other.close()
    set.undoAdd(spreadKey(3), 0)
    expect(set.has(spreadKey(3), 0)).toBe(false)
    set.commitFrozen()
    expect(seenOf(set, range(0, 6))).toEqual([4, 5])
    set.undoAdd(spreadKey(4), 0)
    expect(seenOf(set, range(0, 6))).toEqual([5])
    set.check()
    await checkpoint(set)
    set.check()
    expect([set.size, env.files.allFiles().length]).toEqual([295, set.runs.length])
  })

  test('undoing an add of what had been forgotten brings the tombstone back, not the key', async () => {
    const set = openSet(world(10))
    addAll(set, range(0, 20))
    await checkpoint(set)
    set.forget(spreadKey(1), 0)
    set.add(spreadKey(1), 0)
    set.undoAdd(spreadKey(1), 0)
    expect(set.has(spreadKey(1), 0)).toBe(false)
    await checkpoint(set)
    expect([set.has(spreadKey(1), 0), set.size]).toEqual([false, 19])
    set.check()
  })

  test('abort brings everything back, before, during and after the write, and leaves no file', async () => {
    const env = world(11)
    const set = openSet(env)
    const expectWhole = async (numbers: number[]): Promise<void> => {
      expect([set.size, set.tableCount]).toEqual([numbers.length, numbers.length])
      expect(seenOf(set, range(0, 50))).toEqual(numbers)
      expect([env.files.allFiles(), env.files.openHandles()]).toEqual([[], 0])
    }
    addAll(set, range(0, 30))
    set.freeze()
    set.forget(spreadKey(0), 0)
    addAll(set, [30])
    set.abortFrozen()
    expect(set.size).toBe(30)
    set.add(spreadKey(0), 0)
    await expectWhole(range(0, 31))
    set.freeze()
    await set.writeFrozen()
    addAll(set, [31])
    set.abortFrozen()
    await expectWhole(range(0, 32))
    set.freeze()
    const writing = rejection(set.writeFrozen())
    for (let turns = 0; turns < 1000 && env.files.allFiles().length === 0; turns++) await env.clock.settle(1)
    expect(env.files.allFiles()).toHaveLength(1)
    set.abortFrozen()
    expectHoldfastError(await writing, 'HOLDFAST_CLOSED')
    await expectWhole(range(0, 32))
    await checkpoint(set)
    expect(seenOf(set, range(0, 50))).toEqual(range(0, 32))
    set.check()
  })

  test('a write that fails at any call says why, leaves no file, and works again after abort', async () => {
    for (const [kind, code] of [
      ['EIO', 'HOLDFAST_IO'],
      ['ENOSPC', 'HOLDFAST_DISK_FULL'],
      ['short', 'HOLDFAST_DISK_FULL'],
      ['EMFILE', 'HOLDFAST_IO'],
    ] as const) {
      for (let k = 0, hit = true; hit; k++) {
        const env = world(12)
        const set = openSet(env)
        addAll(set, range(0, 20))
        const before = await checkpoint(set)
        addAll(set, range(20, 30))
        set.freeze()
        env.files.failAt(k, { kind })
        const error = await rejection(set.writeFrozen())
        hit = env.files.hit
        env.files.clearFaults()
        if (hit && error !== undefined) expectHoldfastError(error, code)
        else expect(hit, `${kind} at call ${k} was swallowed`).toBe(false)
        if (error !== undefined) {
          set.abortFrozen()
          expect(env.files.allFiles()).toEqual(before.runs.map((run) => `${DIRECTORY}/${run.file}`))
          await checkpoint(set)
        } else set.commitFrozen()
        expect(seenOf(set, range(0, 35))).toEqual(range(0, 30))
        set.check()
        set.close()
        expect(env.files.openHandles()).toBe(0)
        if (!hit) expect(k).toBeGreaterThan(5)
      }
    }
  })

  test('an error while reading changes nothing and passes', async () => {
    const env = world(13)
    const set = openSet(env)
    addAll(set, range(0, 20))
    await checkpoint(set)
    env.files.failReads(DIRECTORY, 'EIO')
    const key = spreadKey(1)
    for (const call of [() => set.has(key, 0), () => set.add(key, 0), () => set.forget(key, 0)]) {
      expectHoldfastError(caught(call), 'HOLDFAST_IO')
    }
    env.files.clearFaults()
    expect([set.size, set.tableCount, set.has(key, 0)]).toEqual([20, 0, true])
  })

  test('close ends a write at its next pause and leaves what is on disk alone', async () => {
    const env = world(14)
    const set = openSet(env)
    addAll(set, range(0, 300))
    set.freeze()
    const writing = rejection(set.writeFrozen())
    for (let turns = 0; turns < 1000 && env.files.allFiles().length === 0; turns++) await env.clock.settle(1)
    const files = env.files.allFiles()
    expect(files).toHaveLength(1)
    set.close()
    expectHoldfastError(await writing, 'HOLDFAST_CLOSED')
    expect([env.files.allFiles(), env.files.openHandles()]).toEqual([files, 0])
    for (const call of [() => set.has(spreadKey(1), 0), () => set.add(spreadKey(1), 0), () => set.freeze()]) {
      expectHoldfastError(caught(call), 'HOLDFAST_CLOSED')
    }
    set.close()
  })

  test('removeUnnamed takes run files and leftovers no manifest names, and nothing else', async () => {
    const env = world(15)
    const set = openSet(env)
    addAll(set, range(0, 20))
    const committed = await checkpoint(set)
    set.close()
    for (const name of ['r00077', 'x.tmp', 'notes.txt']) env.files.setContents(`${DIRECTORY}/${name}`, Buffer.from('?'))
    const again = openSet(env, committed)
    expect(again.removeUnnamed().sort()).toEqual(['r00077', 'x.tmp'])
    expect(env.files.readDirectory(DIRECTORY)).toEqual(['notes.txt', committed.runs[0].file])
    addAll(again, range(20, 25))
    // A number that was ever seen in the directory is not used again.
    expect((await checkpoint(again)).runs[0].file).toBe('r00078')
    again.check()
  })

  test('keys() gives every key once, ascending, over table, frozen table and runs', async () => {
    const set = openSet(world(16))
    const wanted = new Set<string>()
    for (const n of range(0, 90)) {
      set.add(spreadKey(n), 0)
      wanted.add(spreadKey(n).toString('hex'))
      if (n % 7 === 3) wanted.delete(spreadKey(n - 2).toString('hex'))
      if (n % 7 === 3) set.forget(spreadKey(n - 2), 0)
      if (n % 20 === 19 && n < 70) await checkpoint(set)
    }
    set.freeze()
    addAll(set, [90])
    wanted.add(spreadKey(90).toString('hex'))
    expect([...set.keys()].map((key) => Buffer.from(key).toString('hex'))).toEqual([...wanted].sort())
    expect(set.size).toBe(wanted.size)
  })

  test('check notices a size that is not the number of keys', async () => {
    const env = world(17)
    const set = openSet(env)
    addAll(set, range(0, 20))
    const committed = await checkpoint(set)
    set.close()
    const wrong = openSet(env, { ...committed, size: 21 })
    expectHoldfastError(
      caught(() => wrong.check()),
      'HOLDFAST_CORRUPT',
    )
  })

  test('many filters in one run: each look-up goes to the one its range says', async () => {
    const env = world(18)
    const set = openSet(env, EMPTY, { ...TINY, filterKeysMax: 1 })
    for (const n of range(0, 60)) set.add(counterKey(n * 2), 0)
    const committed = await checkpoint(set)
    const again = openSet(env, committed)
    for (const n of range(0, 120)) expect(again.has(counterKey(n), 0), `key ${n}`).toBe(n % 2 === 0)
    again.check()
  })

  test('two keys with the same hash: their run goes without a filter and is still exact', async () => {
    const [one, other] = collidingKeys()
    const env = world(19)
    const set = openSet(env)
    expect([set.add(one, 0), set.has(other, 0), set.add(other, 0), set.forget(one, 0)]).toEqual([
      true,
      false,
      true,
      true,
    ])
    set.add(one, 0)
    const committed = await checkpoint(set)
    const again = openSet(env, committed)
    expect([again.has(one, 0), again.has(other, 0), again.has(spreadKey(1), 0)]).toEqual([true, true, false])
    again.check()
    expect(again.forget(one, 0)).toBe(true)
    await checkpoint(again)
    expect([again.has(one, 0), again.has(other, 0)]).toEqual([false, true])
  })

  test('100,000 keys on a real disk, in several checkpoints, found again after reopening', async () => {
    const root = mkdtempSync(`${tmpdir()}/holdfast-seen-`)
    try {
      const options = { env: nodeEnv, directory: `${root}/requests.seen`, jobId: JOB_ID }
      const tuning = { levelGrowth: 4, levelBaseKeys: 2000, filterKeysMax: 20_000 }
      const set = SeenSet.open({ ...options, ...EMPTY, tuning })
      let committed = { ...EMPTY }
      for (let n = 0; n < 100_000; n++) {
        // Half of them counters: pages and filters must not need spread keys.
        set.insertNew(n % 2 === 0 ? counterKey(n) : spreadKey(n), 0)
        if (n % 6007 === 6006) committed = await checkpoint(set)
      }
      committed = await checkpoint(set)
      expect(set.runs.length).toBeGreaterThan(1)
      set.check()
      set.close()
      const again = SeenSet.open({ ...options, ...committed })
      expect(again.size).toBe(100_000)
      expect(again.removeUnnamed()).toEqual([])
      let missing = 0
      let wrong = 0
      for (let n = 0; n < 100_000; n++) {
        if (!again.has(n % 2 === 0 ? counterKey(n) : spreadKey(n), 0)) missing++
        if (again.has(n % 2 === 0 ? spreadKey(n) : counterKey(n), 0)) wrong++
      }
      expect([missing, wrong]).toEqual([0, 0])
      again.check()
      expect(again.diskBytes).toBeLessThan(100_000 * 18)
      // Filters and fences: under two bytes a key.
      const fresh = SeenSet.open({ ...options, ...committed })
      expect(fresh.memoryBytes).toBeLessThan(100_000 * 2)
      fresh.close()
      expect(again.memoryBytes).toBeLessThan(SEEN_MEMORY_BYTES_DEFAULT)
      again.close()
    } finally {
      rmSync(root, { recursive: true, force: true })
    }
  })
})
