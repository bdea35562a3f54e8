/**
 * The segments of a job, with each bit flipped and cut at each byte: the job is refused, when it is opened or when what is
 * damaged is read, naming the file; or it holds exactly what it held.
 */
import { beforeAll, describe, expect, test } from 'vitest'
import type { SimFileSystem } from '../../src/env/sim-file-system.js'
import { closedJob, DIRECTORY, damage, flip, outcomeOf, QUEUE } from './job-world.js'

/** A lane of ready jobs, slices of delayed ones, dead letters: each is read on another way. */
const EVERY_BIT = [`${QUEUE}/-5/q00000`, `${QUEUE}/delayed/q00000`, `${DIRECTORY}/dead/q00000`]
/** Of the same kind as the first: one bit of each byte. */
const EVERY_BYTE = [`${QUEUE}/0/q00000`, `${QUEUE}/0s/q00000`]

let files: SimFileSystem

beforeAll(async () => {
  files = await closedJob()
})

async function expectRefusal(path: string, what: string, change: (bytes: Buffer) => Buffer | undefined): Promise<void> {
  const outcome = await outcomeOf(damage(files, path, change))
  // Every byte of a segment is under a checksum, and every block of these is read: nothing may go by.
  if (outcome.kind !== 'refused') throw new Error(`${path}, ${what}: opened, with ${outcome.content}`)
  const { code, path: named } = outcome.error
  if (code !== 'HOLDFAST_CORRUPT' || named !== path) throw new Error(`${path}, ${what}: ${code} names ${named}`)
}

test('these are all the segments of the job, and undamaged it opens', async () => {
  expect(files.allFiles().filter((path) => /\/q\d+$/.test(path))).toEqual([...EVERY_BIT, ...EVERY_BYTE].sort())
  expect(await outcomeOf(damage(files, '', (bytes) => bytes))).toMatchObject({ kind: 'open', tornBytes: 0 })
})

describe.each([...EVERY_BIT.map((path) => [path, 1] as const), ...EVERY_BYTE.map((path) => [path, 9] as const)])(
  '%s',
  (path, step) => {
    test(`flipped bits, each ${step}. of them`, async () => {
      const bits = files.contents(path).length * 8
      for (let bit = 0; bit < bits; bit += step) await expectRefusal(path, `bit ${bit}`, (bytes) => flip(bytes, bit))
    })

    test('cut at any byte, gone, zeroed, longer', async () => {
      const size = files.contents(path).length
      for (let length = 0; length < size; length++) {
        await expectRefusal(path, `cut at ${length}`, (bytes) => bytes.subarray(0, length))
      }
      await expectRefusal(path, 'gone', () => undefined)
      await expectRefusal(path, 'zeroed', (bytes) => bytes.fill(0))
      await expectRefusal(path, 'longer', (bytes) => Buffer.concat([bytes, Buffer.alloc(1)]))
    })
  },
)

test('the segment of another bucket in the place of this one', async () => {
  const other = files.contents(`${QUEUE}/0s/q00000`)
  await expectRefusal(`${QUEUE}/0/q00000`, 'swapped', () => other)
})
