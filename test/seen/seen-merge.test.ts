import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { runName, type SeenRunInfo } from '../../src/seen/seen-format.js'
import { type LevelShape, planMerge } from '../../src/seen/seen-merge.js'

const SHAPE: LevelShape = { levelGrowth: 8, levelBaseKeys: 100 }

const runOf = (number: number, keys: number, level: number): SeenRunInfo => ({
  file: runName(number),
  keys,
  tombstones: 0,
  bytes: 1,
  level,
  crc: 0,
})

/** Flushes these amounts one after the other; returns the runs, newest first, and all keys written. */
function flushAll(amounts: readonly number[], shape: LevelShape): { runs: SeenRunInfo[]; written: number } {
  let runs: SeenRunInfo[] = []
  let written = 0
  for (const [i, amount] of amounts.entries()) {
    const plan = planMerge(amount, runs, shape)
    const total = runs.slice(0, plan.merged).reduce((sum, run) => sum + run.keys, amount)
    expect(plan.entriesMax).toBe(total)
    written += total
    runs = [runOf(i + 1, total, plan.level), ...runs.slice(plan.merged)]
  }
  return { runs, written }
}

describe('planMerge', () => {
  test('a few keys join the only run as long as it is small', () => {
    expect(planMerge(10, [runOf(1, 50, 0)], SHAPE)).toEqual({ merged: 1, level: 0, entriesMax: 60 })
  })

  test('a few keys leave a large run alone', () => {
    expect(planMerge(10, [runOf(1, 500, 1)], SHAPE)).toEqual({ merged: 0, level: 0, entriesMax: 10 })
  })

  test('the eighth of a level makes one of the next, which is merged if it is the last', () => {
    const small = Array.from({ length: 7 }, (_, i) => runOf(20 - i, 90, 0))
    expect(planMerge(90, [...small, runOf(2, 500, 1), runOf(1, 9000, 3)], SHAPE)).toEqual({
      merged: 7,
      level: 1,
      entriesMax: 720,
    })
    expect(planMerge(90, [...small, runOf(1, 500, 1)], SHAPE)).toEqual({ merged: 8, level: 2, entriesMax: 1220 })
  })

  test('a large flush takes the smaller, older runs with it: level and age go together', () => {
    expect(planMerge(700, [runOf(3, 10, 0), runOf(2, 20, 0), runOf(1, 90_000, 4)], SHAPE)).toEqual({
      merged: 2,
      level: 1,
      entriesMax: 730,
    })
  })

  test('after any flushes: levels rise with age, the last level is one run, no level is full', () => {
    const shape = fc.record({
      levelGrowth: fc.integer({ min: 2, max: 8 }),
      levelBaseKeys: fc.integer({ min: 1, max: 50 }),
    })
    const amounts = fc.array(fc.integer({ min: 1, max: 400 }), { minLength: 1, maxLength: 120, size: 'max' })
    fc.assert(
      fc.property(shape, amounts, (levels, list) => {
        const { runs } = flushAll(list, levels)
        const counts = new Map<number, number>()
        for (const [i, run] of runs.entries()) {
          if (i > 0) expect(run.level).toBeGreaterThanOrEqual(runs[i - 1].level)
          counts.set(run.level, (counts.get(run.level) ?? 0) + 1)
        }
        for (const count of counts.values()) expect(count).toBeLessThan(levels.levelGrowth)
        expect(counts.get(runs[runs.length - 1].level)).toBe(1)
        expect(runs.reduce((sum, run) => sum + run.keys, 0)).toBe(list.reduce((sum, n) => sum + n, 0))
      }),
      { seed: 31, numRuns: 200 },
    )
  })

  test('100 million keys in flushes of a million: few runs, each key written fewer than nine times', () => {
    const { runs, written } = flushAll(new Array(100).fill(1_000_000), { levelGrowth: 8, levelBaseKeys: 65_536 })
    expect(runs.length).toBeLessThanOrEqual(15)
    expect(written / 100_000_000).toBeLessThan(9)
  })
})
