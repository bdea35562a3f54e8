/**
 * `active.json` and every `info.json` of a job, with each bit flipped, cut at each byte, and gone: the job is refused, naming
 * the file, and never opened as something else.
 */
import { beforeAll, describe, expect, test } from 'vitest'
import type { SimFileSystem } from '../../src/env/sim-file-system.js'
import { encodeJson } from '../../src/store/json-file.js'
import { closedJob, DIRECTORY, damage, flip, outcomeOf, QUEUE } from './job-world.js'

const FILES = [
  `${QUEUE}/active.json`,
  `${QUEUE}/-5/info.json`,
  `${QUEUE}/0/info.json`,
  `${QUEUE}/0s/info.json`,
  `${QUEUE}/delayed/info.json`,
  `${DIRECTORY}/dead/info.json`,
]

let files: SimFileSystem

beforeAll(async () => {
  files = await closedJob()
})

async function expectRefusal(path: string, what: string, change: (bytes: Buffer) => Buffer | undefined): Promise<void> {
  const outcome = await outcomeOf(damage(files, path, change))
  if (outcome.kind !== 'refused') throw new Error(`${path}, ${what}: opened, with ${outcome.content}`)
  const { code, path: named } = outcome.error
  if (code !== 'HOLDFAST_CORRUPT' || named !== path) throw new Error(`${path}, ${what}: ${code} names ${named}`)
}

test('these are all the JSON files of the job, and undamaged it opens', async () => {
  expect(files.allFiles().filter((path) => path.endsWith('.json'))).toEqual([...FILES].sort())
  expect(await outcomeOf(damage(files, '', (bytes) => bytes))).toMatchObject({ kind: 'open', tornBytes: 0 })
})

describe.each(FILES)('%s', (path) => {
  test('any flipped bit', async () => {
    const bits = files.contents(path).length * 8
    for (let bit = 0; bit < bits; bit++) await expectRefusal(path, `bit ${bit}`, (bytes) => flip(bytes, bit))
  })

  test('cut at any byte', async () => {
    const size = files.contents(path).length
    for (let length = 0; length < size; length++) {
      await expectRefusal(path, `cut at ${length}`, (bytes) => bytes.subarray(0, length))
    }
  })

  test('gone, zeroed, doubled', async () => {
    await expectRefusal(path, 'gone', () => undefined)
    await expectRefusal(path, 'zeroed', (bytes) => bytes.fill(0))
    await expectRefusal(path, 'doubled', (bytes) => Buffer.concat([bytes, bytes]))
  })

  test('of a newer format', async () => {
    const newer = damage(files, path, () => encodeJson({ format: 2 }))
    expect(await outcomeOf(newer)).toMatchObject({
      kind: 'refused',
      error: { code: 'HOLDFAST_UNSUPPORTED_FORMAT', path },
    })
    // Nothing was changed.
    for (const one of files.allFiles()) if (one !== path) expect(newer.contents(one)).toEqual(files.contents(one))
  })
})

test('the info.json of another bucket in the place of this one', async () => {
  const other = files.contents(`${QUEUE}/0/info.json`)
  await expectRefusal(`${QUEUE}/0s/info.json`, 'swapped', () => other)
})
