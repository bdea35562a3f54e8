/** Merges that run beside checkpoints: what they make takes its place late, and a crash or an error costs only the work. */
import { describe, expect, test } from 'vitest'
import type { SimFileSystem } from '../../src/env/sim-file-system.js'
import { SeenSet, type SeenTuning } from '../../src/seen/seen-set.js'
import {
  type Committed,
  checkpoint,
  DIRECTORY,
  EMPTY,
  JOB_ID,
  openSet,
  spreadKey,
  TINY,
  world,
} from './seen-support.js'

/** Three runs of a level become one, beside when that is more than 12 keys. */
const TUNING: Partial<SeenTuning> = { ...TINY, filterKeysMax: 100, levelBaseKeys: 6, besideKeysMin: 12 }

const keysOf = (set: SeenSet): string[] => [...set.keys()].map((key) => Buffer.from(key).toString('hex'))
const expected = (to: number): string[] => Array.from({ length: to }, (_, n) => spreadKey(n).toString('hex')).sort()

let next = 0
async function flush(set: SeenSet, count: number): Promise<Committed> {
  for (let i = 0; i < count; i++) expect(set.add(spreadKey(next++), 0)).toBe(true)
  return checkpoint(set)
}

/** Flushes until a merge runs beside; returns what was committed last. */
async function untilMerging(set: SeenSet): Promise<Committed> {
  next = 0
  for (let i = 0; i < 20; i++) {
    const committed = await flush(set, 6)
    if (isMerging(set)) return committed
  }
  throw new Error('no merge began')
}

const isMerging = (set: SeenSet): boolean =>
  (set as unknown as { beside: { current: { made: unknown } | undefined } }).beside.current !== undefined

describe('a merge beside', () => {
  test('flushes go on while it runs, and what it made takes the place of its inputs with the next checkpoint', async () => {
    const env = world(1)
    const set = openSet(env, EMPTY, TUNING)
    const before = await untilMerging(set)
    const inputs = before.runs.map((run) => run.file)
    expect(set.isMerged).toBe(false)
    // Not a turn is given to it but those that the flush takes.
    const during = await flush(set, 2)
    expect(during.runs.slice(-inputs.length).map((run) => run.file)).toEqual(inputs)
    await set.settled()
    expect([set.isMerged, set.runs.length]).toEqual([true, during.runs.length])
    const after = await flush(set, 1)
    expect(set.isMerged).toBe(false)
    expect(after.runs.length).toBeLessThan(during.runs.length)
    for (const file of inputs) expect(after.runs.map((run) => run.file)).not.toContain(file)
    expect(keysOf(set)).toEqual(expected(next))
    set.check()
    await set.settled()
    const disk = env.files.allFiles().map((path) => path.slice(DIRECTORY.length + 1))
    expect(disk.sort()).toEqual(after.runs.map((run) => run.file).sort())
    set.close()
    expect(env.files.openHandles()).toBe(0)
    const again = openSet(env, after, TUNING)
    again.check()
    expect(keysOf(again)).toEqual(expected(next))
  })

  test('forgotten meanwhile stays forgotten: the newer run counts', async () => {
    const env = world(2)
    const set = openSet(env, EMPTY, TUNING)
    await untilMerging(set)
    expect(set.forget(spreadKey(0), 0)).toBe(true)
    await flush(set, 1)
    await set.settled()
    const committed = await flush(set, 1)
    expect([set.has(spreadKey(0), 0), set.size]).toEqual([false, next - 1])
    const again = openSet(env, committed, TUNING)
    expect(again.has(spreadKey(0), 0)).toBe(false)
    again.check()
  })

  test('one that fails is warned of and leaves no file; the next checkpoint tries again', async () => {
    for (let k = 0, hit = true; hit; k++) {
      const env = world(3)
      const warnings: string[] = []
      const warn = (code: string): void => void warnings.push(code)
      const set = SeenSet.open({ env, directory: DIRECTORY, jobId: JOB_ID, ...EMPTY, tuning: TUNING, warn })
      const committed = await untilMerging(set)
      env.files.failAt(k, { kind: 'EIO' })
      await set.settled()
      hit = env.files.hit
      env.files.clearFaults()
      expect(warnings, `call ${k}`).toEqual(hit ? ['seen-merge-failed'] : [])
      if (hit) expect(env.files.allFiles()).toHaveLength(committed.runs.length)
      await flush(set, 1)
      await set.settled()
      await flush(set, 1)
      set.check()
      expect(keysOf(set)).toEqual(expected(next))
      set.close()
      expect(env.files.openHandles()).toBe(0)
      if (!hit) expect(k).toBeGreaterThan(3)
    }
  })

  test('with too many runs the next checkpoint waits for it', async () => {
    const env = world(4)
    const set = openSet(env, EMPTY, { ...TUNING, runsMax: 3 })
    await untilMerging(set)
    await flush(set, 1)
    expect(isMerging(set) && !set.isMerged).toBe(false)
    set.check()
  })

  test('closed while it runs: it ends at its next pause, and the file goes at the next open', async () => {
    const env = world(5)
    const set = openSet(env, EMPTY, TUNING)
    const committed = await untilMerging(set)
    await env.clock.settle(3)
    const ended = set.settled()
    set.close()
    await ended
    expect(env.files.openHandles()).toBe(0)
    const again = openSet(env, committed, TUNING)
    again.removeUnnamed()
    expect(env.files.allFiles()).toHaveLength(committed.runs.length)
    again.check()
    expect(keysOf(again)).toEqual(expected(next))
  })

  test('crash at any call, from its start to the checkpoint that names what it made', async () => {
    for (let k = 0, hit = true; hit; k++) {
      const env = world(k)
      const set = openSet(env, EMPTY, TUNING)
      const old = await untilMerging(set)
      const before = next
      env.files.failAt(k, { kind: 'crash', seed: k })
      let named: Committed | undefined
      let written: Committed | undefined
      try {
        await set.settled()
        set.add(spreadKey(before), 0)
        set.freeze()
        written = await set.writeFrozen()
        set.commitFrozen()
        named = written
      } catch {
        // The crash.
      }
      hit = env.files.hit
      for (const unsynced of ['lost', 'kept', 'torn'] as const) {
        const disk = env.files.crash({ seed: k, unsynced })
        // Until the commit a manifest names the old runs; from when they were written it may name the new ones.
        if (named === undefined) expectOpens(disk, old, before)
        if (written !== undefined) expectOpens(disk, written, before + 1)
      }
      if (!hit) expect(k).toBeGreaterThan(6)
    }
  })
})

function expectOpens(disk: SimFileSystem, committed: Committed, keys: number): void {
  const set = openSet(world(9, disk), committed, TUNING)
  set.check()
  expect([set.size, keysOf(set)]).toEqual([keys, expected(keys)])
  set.close()
}
