import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { EXIT_DAMAGED, EXIT_FAILED, EXIT_LOCKED, EXIT_USAGE, exitCodeOf } from '../../src/cli/exit-codes.js'
import { packageVersion, runProgram } from '../../src/cli/program.js'
import { HoldfastError, type HoldfastErrorCode } from '../../src/errors.js'
import { openFrontier } from '../../src/frontier/frontier.js'
import { tempDirectory } from '../support/crawl-world.js'
import { testIo } from '../support/test-io.js'

async function run(...args: string[]) {
  const io = testIo()
  return { code: await runProgram(args, io), out: io.out, err: io.err }
}

test('--version is that of the package', async () => {
  expect(await run('--version')).toEqual({ code: 0, out: `${packageVersion()}\n`, err: '' })
  expect(packageVersion()).toMatch(/^\d+\.\d+\.\d+/)
})

test('--help shows the commands and how to use them', async () => {
  const { code, out, err } = await run('--help')
  expect({ code, err }).toEqual({ code: 0, err: '' })
  for (const word of ['crawl', 'verify', 'repair', 'Examples:', 'Exit codes:']) expect(out).toContain(word)
})

test('crawl --help names every flag with its default', async () => {
  const { code, out } = await run('crawl', '--help')
  expect(code).toBe(0)
  for (const flag of [
    '--job',
    '--out',
    '--scope',
    '--max-depth',
    '--max-pages',
    '--concurrency',
    '--per-host',
    '--delay',
  ]) {
    expect(out).toContain(flag)
  }
  expect(out.replace(/\s+/g, ' ')).toContain('pages at once (default: 16)')
})

test.each([[[]], [['fly']], [['verify']], [['repair', 'one']], [['--nonsense']]])(
  '%j is a usage error',
  async (args) => {
    const { code, out, err } = await run(...args)
    expect({ code, out }).toEqual({ code: 2, out: '' })
    expect(err).not.toBe('')
  },
)

test.each<[HoldfastErrorCode, number]>([
  ['HOLDFAST_LOCKED', EXIT_LOCKED],
  ['HOLDFAST_CORRUPT', EXIT_DAMAGED],
  ['HOLDFAST_UNSUPPORTED_FORMAT', EXIT_DAMAGED],
  ['HOLDFAST_MISMATCH', EXIT_USAGE],
  ['HOLDFAST_NOT_FOUND', EXIT_USAGE],
  ['HOLDFAST_IO', EXIT_FAILED],
  ['HOLDFAST_DISK_FULL', EXIT_FAILED],
  ['HOLDFAST_LOCK_LOST', EXIT_FAILED],
])('%s is exit code %i', (code, expected) => {
  expect(exitCodeOf(new HoldfastError(code, 'x'))).toBe(expected)
})

test('a bug is exit code 1', () => {
  expect(exitCodeOf(new Error('x'))).toBe(EXIT_FAILED)
})

describe('verify', () => {
  test('a sound job, a damaged one, and none', async () => {
    const temp = tempDirectory()
    try {
      const job = join(temp.path, 'job')
      const frontier = await openFrontier(job)
      await frontier.add(['http://site.example/a', 'http://site.example/b'])
      await frontier.close()
      expect(await run('verify', job)).toMatchObject({ code: 0, out: '', err: expect.stringContaining('2 ready') })
      const json = await run('verify', job, '--json')
      expect(json).toMatchObject({ code: 0, err: '' })
      expect(JSON.parse(json.out)).toMatchObject({ ok: true, problems: [], jobs: { ready: 2 }, seen: 2 })

      writeFileSync(join(job, 'requests.queue/active.json'), '{"format":')
      const damaged = await run('verify', job)
      expect(damaged).toMatchObject({ code: 4, err: expect.stringContaining('damaged: ') })
      expect(damaged.err).toContain('active.json')

      const empty = join(temp.path, 'empty')
      mkdirSync(empty)
      expect(await run('verify', empty)).toMatchObject({ code: 2, out: '' })
    } finally {
      temp.remove()
    }
  })
})
