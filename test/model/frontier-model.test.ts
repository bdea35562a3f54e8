/**
 * Goal: whatever is done in whatever order, crashes between any two calls included, the frontier does what a map and an
 * array say. A found case prints its seed and path; give them to `fc.assert` and `replayPath` to see it again.
 */
import fc from 'fast-check'
import { describe, test } from 'vitest'
import { closeChecked } from '../support/checked.js'
import { commands, DIRECTORY, Real } from './commands.js'
import { Model } from './model.js'

const seed = Number(process.env['HOLDFAST_SEED'] ?? 20250102)
const numRuns = Number(process.env['HOLDFAST_RUNS'] ?? 150)

describe.each(['process', 'power'] as const)('%s', (durability) => {
  test(`random runs agree with the model (seed ${seed}, ${numRuns} runs)`, async () => {
    await fc.assert(
      fc.asyncProperty(commands, async (run) => {
        const model = new Model()
        const real = new Real(durability, 1)
        await real.open()
        await fc.asyncModelRun(() => ({ model, real }), run)
        await closeChecked(real.frontier, real.env, DIRECTORY)
      }),
      { seed, numRuns, endOnFailure: false },
    )
  })
})
