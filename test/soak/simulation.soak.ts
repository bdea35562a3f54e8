/**
 * The long form of the simulated runs: every scenario cut at every call, inside recovery as well, and random workloads from
 * many seeds. `HOLDFAST_SEED=91 HOLDFAST_RUNS=500 npm run sim`.
 */
import { describe, expect, test } from 'vitest'
import { crashAtEveryCall } from '../support/crash-run.js'
import { randomScenario } from '../support/random-scenario.js'
import { SCENARIOS } from '../support/scenario.js'

const seed = Number(process.env['HOLDFAST_SEED'] ?? 1)
const runs = Number(process.env['HOLDFAST_RUNS'] ?? 100)
console.log(`HOLDFAST_SEED=${seed} HOLDFAST_RUNS=${runs}`)

describe.each(Object.keys(SCENARIOS))('%s', (name) => {
  test.each(['lost', 'kept', 'torn'] as const)('cut at every call and inside recovery, %s', async (unsynced) => {
    const scenario = SCENARIOS[name]
    expect(await crashAtEveryCall({ scenario, durability: 'power', unsynced, seed, inRecovery: true })).toBeGreaterThan(
      20,
    )
  })
})

test(`random workloads cut at every call: ${runs} seeds from ${seed}`, async () => {
  let cuts = 0
  for (let i = seed; i < seed + runs; i++) {
    const scenario = randomScenario(i)
    const unsynced = (['lost', 'kept', 'torn'] as const)[i % 3]
    cuts += await crashAtEveryCall({ scenario, durability: 'power', unsynced, seed: i })
    cuts += await crashAtEveryCall({ scenario, durability: 'process', unsynced: 'kept', seed: i })
  }
  console.log(`${cuts} cuts`)
})
