/**
 * Goal: whatever single call of the disk fails, no promise is broken. Method: let the k-th mutating call fail, for every k.
 * A call of the store that rejects while the store goes on must have left no trace and must work when made again; a
 * store that closed itself must re-open, on what was written and on what was synced, to every promise.
 */
import { describe, expect, test } from 'vitest'
import { simEnv } from '../../src/env/sim-env.js'
import { SimFileSystem } from '../../src/env/sim-file-system.js'
import { HoldfastError } from '../../src/errors.js'
import type { Frontier } from '../../src/frontier/frontier.js'
import type { Durability } from '../../src/frontier/types.js'
import { closeChecked } from '../support/checked.js'
import { DIRECTORY, openSim } from '../support/crash-run.js'
import { Oracle } from '../support/oracle.js'
import { SCENARIOS, type Scenario } from '../support/scenario.js'

const SEED = 424242
type Kind = 'EIO' | 'ENOSPC' | 'EMFILE' | 'short'

interface Outcome {
  hit: boolean
  closedItself: boolean
  rejected: number
}

async function failOnce(scenario: Scenario, durability: Durability, kind: Kind, k: number): Promise<Outcome> {
  const files = new SimFileSystem()
  const env = simEnv({ seed: SEED, files })
  const oracle = new Oracle()
  files.failAt(k, { kind, seed: SEED + k })
  let frontier: Frontier
  try {
    frontier = await openSim(env, durability)
  } catch (error) {
    expect(error).toBeInstanceOf(HoldfastError)
    expect(files.hit).toBe(true)
    // What a failed opening leaves behind is no obstacle.
    frontier = await openSim(env, durability)
  }
  oracle.goesOn = () => !frontier.closed
  let closedItself = false
  let hit = false
  try {
    await scenario(frontier, oracle, env.clock)
  } catch (error) {
    expect(error).toBeInstanceOf(HoldfastError)
    expect(frontier.closed, (error as Error).message).toBe(true)
    closedItself = true
  }
  if (closedItself || frontier.closed) {
    await frontier.close()
    hit = files.hit
    // In `process` only the kernel's word was given: what was written is there.
    for (const unsynced of durability === 'power' ? (['kept', 'lost'] as const) : (['kept'] as const)) {
      const disk = files.crash({ seed: SEED + k, unsynced })
      const later = simEnv({ seed: SEED, files: disk, clock: env.clock })
      const again = await openSim(later, durability)
      const twin = Object.assign(new Oracle(), { fates: new Map(oracle.fates), state: new Map(oracle.state) })
      twin.pending = oracle.pending
      await twin.check(again, later.clock)
      await closeChecked(again, later, DIRECTORY)
    }
  } else {
    const closing = await frontier.close().then(
      () => undefined,
      (error) => error,
    )
    if (closing !== undefined) expect(closing).toBeInstanceOf(HoldfastError)
    hit = files.hit
    files.clearFaults()
    const again = await openSim(env, durability)
    await oracle.check(again, env.clock)
    await closeChecked(again, env, DIRECTORY)
  }
  return { hit, closedItself, rejected: oracle.failures }
}

describe.each(Object.keys(SCENARIOS))('%s', (name) => {
  test.each([
    ['power', 'EIO'],
    ['process', 'EIO'],
    ['process', 'ENOSPC'],
    ['power', 'ENOSPC'],
    ['process', 'short'],
    ['process', 'EMFILE'],
  ] as const)('%s, %s at every call', async (durability, kind) => {
    let calls = 0
    for (; ; calls++) {
      try {
        const { hit } = await failOnce(SCENARIOS[name], durability, kind, calls)
        if (!hit) break
      } catch (error) {
        ;(error as Error).message = `${kind} at call ${calls}, ${durability}: ${(error as Error).message}`
        throw error
      }
    }
    expect(calls).toBeGreaterThan(10)
  })
})
