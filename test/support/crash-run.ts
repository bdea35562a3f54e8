/**
 * Runs a scenario and cuts it at the k-th mutating call, for k = 0, 1, 2 … until a run is not hit; re-opens on what the
 * disk may hold then, and asks the oracle. With `inRecovery` the re-opening is cut at each of its calls as well.
 */
import { expect } from 'vitest'
import { SimClock } from '../../src/env/sim-clock.js'
import { simEnv } from '../../src/env/sim-env.js'
import { SimFileSystem, type Unsynced } from '../../src/env/sim-file-system.js'
import { type Frontier, openFrontier } from '../../src/frontier/frontier.js'
import type { Durability, FrontierOptions } from '../../src/frontier/types.js'
import { closeChecked, TINY } from './checked.js'
import { Oracle } from './oracle.js'
import type { Scenario } from './scenario.js'

export const DIRECTORY = '/job'
const FOREVER_MS = 1e12

export function openSim(
  env: ReturnType<typeof simEnv>,
  durability: Durability,
  more: FrontierOptions = {},
  // Above 0 every sync but the first is on the calling thread: the simulated disk takes no time.
  syncOnThreadMs = 0,
): Promise<Frontier> {
  return openFrontier(DIRECTORY, {
    env,
    durability,
    tuning: { ...TINY, syncOnThreadMs },
    leaseMs: FOREVER_MS,
    maxAttempts: 1000,
    syncEveryMs: 30_000,
    ...more,
  })
}

export interface CrashRun {
  readonly scenario: Scenario
  readonly durability: Durability
  readonly unsynced: Unsynced
  readonly seed: number
  readonly inRecovery?: boolean
  /** Cut at each n-th call only; default each. */
  readonly every?: number
}

/** Returns how many calls the whole scenario makes. */
export async function crashAtEveryCall(run: CrashRun): Promise<number> {
  for (let k = 0; ; k += run.every ?? 1) {
    const files = new SimFileSystem()
    const env = simEnv({ seed: run.seed, files })
    const oracle = new Oracle()
    files.failAt(k, { kind: 'crash', seed: run.seed + k })
    let frontier: Frontier | undefined
    try {
      frontier = await openSim(env, run.durability, {}, run.seed % 2)
      await run.scenario(frontier, oracle, env.clock)
      await frontier.close()
    } catch (error) {
      if (!files.crashed) throw error
    }
    const label = `cut at call ${k}, seed ${run.seed}, unsynced ${run.unsynced}, durability ${run.durability}`
    try {
      const disk = files.crash({ seed: run.seed + k, unsynced: run.unsynced })
      if (run.inRecovery) await cutRecovery(run, disk, oracle, k)
      await reopenAndCheck(run, disk, oracle, env.clock)
    } catch (error) {
      ;(error as Error).message = `${label}: ${(error as Error).message}`
      throw error
    }
    if (!files.crashed) return k
  }
}

/** Cuts the opening at each of its calls; what is left must open to the same. */
async function cutRecovery(run: CrashRun, disk: SimFileSystem, oracle: Oracle, k: number): Promise<void> {
  for (let j = 0; ; j++) {
    const copy = disk.crash({ seed: 0, unsynced: 'kept' })
    copy.failAt(j, { kind: 'crash', seed: run.seed + j })
    const env = simEnv({ seed: run.seed + j, files: copy })
    await openSim(env, run.durability, {}, run.seed % 2).catch((error) => {
      if (!copy.crashed) throw error
    })
    if (!copy.crashed) return
    const after = copy.crash({ seed: run.seed + 31 * k + j, unsynced: run.unsynced })
    const again = simEnv({ seed: run.seed, files: after })
    const frontier = await openSim(again, run.durability, {}, run.seed % 2)
    const twin = Object.assign(new Oracle(), {
      fates: new Map(oracle.fates),
      state: new Map(oracle.state),
      pending: oracle.pending,
    })
    await twin.check(frontier, again.clock)
    await frontier.close()
  }
}

async function reopenAndCheck(run: CrashRun, disk: SimFileSystem, oracle: Oracle, clock: SimClock): Promise<void> {
  const later = new SimClock({ wallMs: clock.now() })
  const env = simEnv({ seed: run.seed + 1, files: disk, clock: later })
  const frontier = await openSim(env, run.durability)
  await oracle.check(frontier, later)
  await closeChecked(frontier, env, DIRECTORY)
  // Once more, and on with the work: what is appended after a repair must be found again.
  const env2 = simEnv({ seed: run.seed + 2, files: disk, clock: new SimClock({ wallMs: later.now() }) })
  const again = await openSim(env2, run.durability)
  await oracle.add(again, ['http://after.test/1', 'http://after.test/2'])
  await again.checkpoint()
  await oracle.check(again, env2.clock)
  await closeChecked(again, env2, DIRECTORY)
  expect(oracle.pending).toBeUndefined()
}
