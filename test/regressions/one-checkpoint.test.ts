/**
 * A checkpoint commits while it begins (it moves the last jobs of thin segments forward), and every commit asks whether a
 * checkpoint is due. Once, that began a second one inside the first, which closed the journal in use.
 */
import { expect, test } from 'vitest'
import { simEnv } from '../../src/env/sim-env.js'
import { closeChecked } from '../support/checked.js'
import { DIRECTORY, openSim } from '../support/crash-run.js'
import { pages } from '../support/scenario.js'

test('a checkpoint that is due at every commit is begun once', async () => {
  const env = simEnv({ seed: 1 })
  const frontier = await openSim(env, 'process', { memoryBytes: 1 })
  const warnings: string[] = []
  frontier.on('warning', ({ code, message }) => warnings.push(`${code}: ${message}`))
  for (let round = 0; round < 6; round++) {
    await frontier.add(pages(1, round * 40, round * 40 + 40))
    await frontier.checkpoint()
    for (const visit of await frontier.take({ max: 36 })) await visit.ack()
    await frontier.checkpoint()
  }
  expect(warnings).toEqual([])
  expect((await frontier.stats()).ready).toBe(24)
  await closeChecked(frontier, env, DIRECTORY)
})
