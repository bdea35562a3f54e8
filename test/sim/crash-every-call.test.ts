/** Goal: at whatever call the power goes or the process is killed, the promise holds. Method: test/support/crash-run.ts. */
import { describe, expect, test } from 'vitest'
import { crashAtEveryCall } from '../support/crash-run.js'
import { SCENARIOS } from '../support/scenario.js'

const SEED = 20250101

describe.each(Object.keys(SCENARIOS))('%s', (name) => {
  const scenario = SCENARIOS[name]

  test.each(['lost', 'kept', 'torn'] as const)('power loss at every call, unsynced data %s', async (unsynced) => {
    const calls = await crashAtEveryCall({ scenario, durability: 'power', unsynced, seed: SEED })
    expect(calls).toBeGreaterThan(20)
  })

  test('kill at every call', async () => {
    const calls = await crashAtEveryCall({ scenario, durability: 'process', unsynced: 'kept', seed: SEED })
    expect(calls).toBeGreaterThan(10)
  })

  test.each(['lost', 'torn'] as const)('and inside recovery, unsynced data %s', async (unsynced) => {
    await crashAtEveryCall({ scenario, durability: 'power', unsynced, seed: SEED + 7, inRecovery: true })
  })
})
