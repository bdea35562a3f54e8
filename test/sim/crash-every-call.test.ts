/**
 * Goal: at whatever call the power goes or the process is killed, the promise holds. Method: test/support/crash-run.ts. This
 * is the small size; `npm run sim` cuts every recovery at every call too and runs hundreds of random workloads.
 */
import { describe, expect, test } from 'vitest'
import { crashAtEveryCall } from '../support/crash-run.js'
import { randomScenario } from '../support/random-scenario.js'
import { SCENARIOS } from '../support/scenario.js'

const SEED = 20250101

describe.each(Object.keys(SCENARIOS))('%s', (name) => {
  const scenario = SCENARIOS[name]

  test.each(['lost', 'torn'] as const)('power loss at every call, unsynced data %s', async (unsynced) => {
    const calls = await crashAtEveryCall({ scenario, durability: 'power', unsynced, seed: SEED })
    expect(calls).toBeGreaterThan(20)
  })

  test('kill at every call', async () => {
    const calls = await crashAtEveryCall({ scenario, durability: 'process', unsynced: 'kept', seed: SEED })
    expect(calls).toBeGreaterThan(10)
  })

  test('and at every call of the recovery that follows', async () => {
    const run = { scenario, durability: 'power', unsynced: 'torn', seed: SEED + 7, inRecovery: true } as const
    expect(await crashAtEveryCall({ ...run, every: 5 })).toBeGreaterThan(20)
  })
})

test.each([1, 2, 3, 4, 5, 6])('a random workload, seed %i, cut at every call', async (seed) => {
  const scenario = randomScenario(seed)
  await crashAtEveryCall({ scenario, durability: 'power', unsynced: 'torn', seed })
  await crashAtEveryCall({ scenario, durability: 'process', unsynced: 'kept', seed })
})
