/**
 * Real processes, SIGKILL at random: the small size of `npm run soak:kill`, and the demo's crawl. Both check themselves and say
 * so by their exit code; `npm test` has compiled them.
 */
import { execFile } from 'node:child_process'
import { existsSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { beforeAll, expect, test } from 'vitest'

const run = promisify(execFile)
const built = (name: string): string => fileURLToPath(new URL(`../../build/bench/${name}.js`, import.meta.url))

beforeAll(() => {
  expect(existsSync(built('soak-kill')), 'compiled by `npm run build:bench`').toBe(true)
})

test.each(['process', 'power'])(
  'a crawl killed ten times loses nothing and doubles nothing: %s',
  async (durability) => {
    const { stdout } = await run(process.execPath, [
      built('soak-kill'),
      '--rounds',
      '10',
      '--seed',
      '5',
      '--durability',
      durability,
    ])
    expect(stdout).toContain('nothing lost, nothing twice')
  },
  180_000,
)

test('holdfast crawl, killed five times, has every page once', async () => {
  const { stdout } = await run(process.execPath, [built('demo'), '--seed', '7'])
  expect(stdout).toContain('Nothing lost, nothing twice.')
}, 180_000)
