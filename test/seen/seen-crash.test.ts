/**
 * Power lost at every call between the freeze and the commit. The manifest is played by two variables: until `writeFrozen`
 * has resolved only the old list of runs is on disk; after that, before the commit, it may be either.
 */
import { describe, expect, test } from 'vitest'
import type { SimFileSystem, Unsynced } from '../../src/env/sim-file-system.js'
import type { SeenSet } from '../../src/seen/seen-set.js'
import { type Committed, checkpoint, EMPTY, openSet, spreadKey, TINY, world } from './seen-support.js'

/** Few filters a run: each is a call to crash at, and they are all alike. */
const TUNING = { ...TINY, filterKeysMax: 200 }

/** Each ends before its last checkpoint: a first run, a plain flush, a merge of all, a merge with tombstones left over. */
const SCENARIOS: Record<string, (set: SeenSet) => Promise<Committed>> = {
  'the first run': async (set) => {
    addRange(set, 0, 10)
    return { runs: [], size: 0 }
  },
  'a second run beside a large one': async (set) => {
    addRange(set, 0, 30)
    const committed = await checkpoint(set)
    addRange(set, 30, 32)
    return committed
  },
  'a merge into the last run': async (set) => {
    addRange(set, 0, 300)
    let committed = await checkpoint(set)
    addRange(set, 300, 303)
    committed = await checkpoint(set)
    addRange(set, 303, 700)
    return committed
  },
  'tombstones over an older run': async (set) => {
    addRange(set, 0, 300)
    await checkpoint(set)
    for (const n of [3, 4, 5]) set.forget(spreadKey(n), 0)
    const committed = await checkpoint(set)
    for (const n of [4, 6]) set.forget(spreadKey(n), 0)
    addRange(set, 4, 5)
    addRange(set, 300, 302)
    return committed
  },
  'everything forgotten': async (set) => {
    addRange(set, 0, 12)
    const committed = await checkpoint(set)
    for (let n = 0; n < 12; n++) set.forget(spreadKey(n), 0)
    return committed
  },
}

function addRange(set: SeenSet, from: number, to: number): void {
  for (let n = from; n < to; n++) set.add(spreadKey(n), 0)
}

const keysOf = (set: SeenSet): string[] => [...set.keys()].map((key) => Buffer.from(key).toString('hex'))

/** Opens what the list names on this disk, checks all of it, and returns its keys. */
function openedKeys(disk: SimFileSystem, committed: Committed): string[] {
  const set = openSet(world(99, disk), committed)
  set.check()
  expect(set.size).toBe(committed.size)
  const keys = keysOf(set)
  set.close()
  expect(disk.openHandles()).toBe(0)
  return keys
}

/** The disk after power loss at call `k` behind the freeze, with the lists of runs that a manifest on it may name. */
async function crashAt(prepare: (set: SeenSet) => Promise<Committed>, k: number) {
  const env = world(k)
  const set = openSet(env, EMPTY, TUNING)
  const old = await prepare(set)
  set.freeze()
  const keysAtFreeze = keysOf(set)
  addRange(set, 5000, 5003)
  const { files } = env
  files.failAt(k, { kind: 'crash', seed: k })
  const next = await set.writeFrozen().catch(() => undefined)
  const atWritten = files.hit ? undefined : files.crash({ seed: k, unsynced: 'lost' })
  if (next !== undefined) set.commitFrozen()
  return { files, hit: files.hit, old, next, keysAtFreeze, atWritten }
}

describe.each(Object.entries(SCENARIOS))('crash in %s', (_, prepare) => {
  test('at any call: the old list opens until the commit, the new one from when it was written', async () => {
    const reference = world(0)
    const referenceSet = openSet(reference, EMPTY, TUNING)
    const oldRuns = await prepare(referenceSet)
    referenceSet.close()
    const oldKeys = openedKeys(reference.files, oldRuns)
    let writtenCalls = 0
    for (let k = 0, hit = true; hit; k++) {
      const run = await crashAt(prepare, k)
      hit = run.hit
      if (run.next === undefined) expect(hit, `call ${k} failed without a crash`).toBe(true)
      for (const unsynced of ['lost', 'kept', 'torn'] satisfies Unsynced[]) {
        for (let seed = 0; seed < (unsynced === 'torn' ? 4 : 1); seed++) {
          const disk = run.files.crash({ seed, unsynced })
          if (run.next === undefined) expect(openedKeys(disk, run.old)).toEqual(oldKeys)
          else expect(openedKeys(disk, run.next)).toEqual(run.keysAtFreeze)
          if (run.next === undefined) recoverWithCrashes(disk, run.old, oldKeys)
          else recoverWithCrashes(disk, run.next, run.keysAtFreeze)
        }
      }
      if (run.atWritten !== undefined && run.next !== undefined) {
        expect(openedKeys(run.atWritten, run.old)).toEqual(oldKeys)
        expect(openedKeys(run.atWritten, run.next)).toEqual(run.keysAtFreeze)
      }
      if (run.next !== undefined) writtenCalls++
      if (!hit) expect(k).toBeGreaterThan(3)
    }
    expect(writtenCalls).toBeGreaterThan(0)
  }, 30_000)
})

/** Removing leftovers, itself cut off at each call: what is named stays whole, and in the end only that is left. */
function recoverWithCrashes(start: SimFileSystem, committed: Committed, keys: string[]): void {
  let disk = start
  for (let k = 0, hit = true; hit; k++) {
    const set = openSet(world(k, disk), committed)
    disk.failAt(k, { kind: 'crash' })
    set.removeUnnamed()
    hit = disk.hit
    disk = disk.crash({ seed: k, unsynced: 'kept' })
    expect(openedKeys(disk, committed)).toEqual(keys)
  }
  expect(disk.allFiles()).toHaveLength(committed.runs.length)
}
