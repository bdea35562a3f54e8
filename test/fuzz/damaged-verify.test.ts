/**
 * The full check over a job in which one bit of each byte of each file is flipped in turn: it names the file. The check is
 * what everything else is tested with, so it must not be the one that looks away.
 */
import { beforeAll, describe, expect, test } from 'vitest'
import { verifyDirectory } from '../../src/engine/verify.js'
import { simEnv } from '../../src/env/sim-env.js'
import type { SimFileSystem } from '../../src/env/sim-file-system.js'
import { closedJob, DIRECTORY, damage, flip, QUEUE } from './job-world.js'

let files: SimFileSystem

beforeAll(async () => {
  files = await closedJob()
})

const check = (disk: SimFileSystem) => verifyDirectory(DIRECTORY, simEnv({ seed: 1, files: disk }))

test('undamaged, it is whole', async () => {
  expect(await check(files)).toMatchObject({
    ok: true,
    problems: [],
    tornBytes: 0,
    jobs: { ready: 4, delayed: 3, leased: 0, dead: 2 },
    seen: 10,
  })
})

describe.each([
  `${QUEUE}/active.json`,
  `${QUEUE}/-5/info.json`,
  `${QUEUE}/-5/q00000`,
  `${QUEUE}/0/q00000`,
  `${QUEUE}/0s/q00000`,
  `${QUEUE}/delayed/info.json`,
  `${QUEUE}/delayed/q00000`,
  `${QUEUE}/journal/00000003.log`,
  `${DIRECTORY}/dead/info.json`,
  `${DIRECTORY}/dead/q00000`,
])('%s', (path) => {
  test('one flipped bit of any byte is told, naming the file, and nothing is changed', async () => {
    const size = files.contents(path).length
    for (let byte = 0; byte < size; byte++) {
      const bit = byte * 8 + (byte % 8)
      const damaged = damage(files, path, (bytes) => flip(bytes, bit))
      const { ok, problems } = await check(damaged)
      expect(ok, `bit ${bit}`).toBe(false)
      expect(problems, `bit ${bit}`).toMatchObject([{ code: 'HOLDFAST_CORRUPT', path }])
      expect(damaged.mutations, 'mutating calls').toBe(0)
      expect(damaged.openHandles()).toBe(0)
    }
  })
})
