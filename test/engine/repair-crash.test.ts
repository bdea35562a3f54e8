/**
 * A killed process leaves no damage: whatever call it died in, a repaired copy holds what opening the original gives. And
 * damage of every kind at once may cost everything, but never the repair itself.
 */
import { describe, expect, test } from 'vitest'
import { seededRandom } from '../../src/env/random.js'
import { SimClock } from '../../src/env/sim-clock.js'
import { simEnv } from '../../src/env/sim-env.js'
import { SimFileSystem } from '../../src/env/sim-file-system.js'
import type { Frontier } from '../../src/frontier/frontier.js'
import { openSim } from '../support/crash-run.js'
import { Oracle } from '../support/oracle.js'
import { pages, SCENARIOS } from '../support/scenario.js'
import { JOB, killed, makeJob, NEW, repair, snapshot, type World } from './repair-support.js'

const SEED = 11
const SOME_PAGES = [1, 2, 3, 4].flatMap((host) => pages(host, 0, 40))

/** The disk after a kill at the k-th call; undefined when the scenario had ended by then. */
async function killAt(name: string, k: number): Promise<World | undefined> {
  const files = new SimFileSystem()
  const env = simEnv({ seed: SEED, files })
  files.failAt(k, { kind: 'crash', seed: SEED + k })
  let frontier: Frontier | undefined
  try {
    frontier = await openSim(env, 'process')
    await SCENARIOS[name](frontier, new Oracle(), env.clock)
    await frontier.close()
  } catch (error) {
    if (!files.crashed) throw error
  }
  if (!files.crashed) return undefined
  const disk = files.crash({ seed: SEED + k, unsynced: 'kept' })
  return simEnv({ seed: SEED, files: disk, clock: new SimClock({ wallMs: env.clock.now() }) })
}

describe('after a kill', () => {
  test.each(Object.keys(SCENARIOS))('%s: at every third call', async (name) => {
    let compared = 0
    for (let k = 0; ; k += 3) {
      const env = await killAt(name, k)
      if (env === undefined) break
      if (!env.files.exists(`${JOB}/requests.queue/active.json`)) continue
      const expected = await snapshot(env, JOB, SOME_PAGES)
      const report = await repair(env)
      const found = await snapshot(env, NEW, SOME_PAGES)
      expect({ k, ...found }).toEqual({ k, ...expected })
      expect(report.lost.records, `cut at call ${k}`).toBe(0)
      expect(report.guessed, `cut at call ${k}`).toEqual([])
      compared++
    }
    expect(compared).toBeGreaterThan(5)
  })
})

describe('much damage at once', () => {
  const seeds = Array.from({ length: 40 }, (_, i) => i + 1)

  test.each(seeds)('seed %i', async (seed) => {
    const env = killed(await job)
    const random = seededRandom(seed)
    const below = (n: number): number => random.uint32() % n
    for (const path of env.files.allFiles()) {
      const bytes = env.files.contents(path)
      const kind = below(6)
      if (kind === 0) env.files.unlink(path)
      else if (kind === 1) env.files.setContents(path, bytes.subarray(0, below(bytes.length + 1)))
      else if (kind === 2 && bytes.length > 0) {
        const at = below(bytes.length)
        bytes.fill(below(256), at, Math.min(bytes.length, at + below(600)))
        env.files.setContents(path, bytes)
      } else if (kind === 3) {
        for (let flips = below(9); flips > 0 && bytes.length > 0; flips--)
          env.files.corrupt(path, below(bytes.length), 4)
      }
    }
    const report = await repair(env)
    expect(report.problems.length).toBeGreaterThan(0)
    await snapshot(env, NEW)
  })

  test('every file made empty', async () => {
    const env = killed(await job)
    for (const path of env.files.allFiles()) env.files.setContents(path, new Uint8Array(0))
    const report = await repair(env)
    expect(report.jobs).toEqual({ ready: 0, delayed: 0, dead: 0 })
    expect(report.guessed).toEqual(expect.arrayContaining([expect.stringMatching(/Without active.json/)]))
  })
})

const job = makeJob()
