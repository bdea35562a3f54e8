/** `active.json`: the shape that is asked for. What its bytes look like is pinned by the golden files. */
import { expect, test } from 'vitest'
import { ACTIVE } from '../../fixtures/formats/json-fixtures.js'
import { SimFileSystem } from '../../src/env/sim-file-system.js'
import { jobPaths } from '../../src/store/file-names.js'
import { encodeJson } from '../../src/store/json-file.js'
import { readManifest, writeManifest, zeroCounters } from '../../src/store/manifest.js'
import { refusal } from './support.js'

const paths = jobPaths('/job')

test('comes back, and is undefined where there is none', async () => {
  const files = new SimFileSystem()
  files.makeDirectory(paths.queue)
  expect(readManifest(files, paths)).toBeUndefined()
  await writeManifest(files, paths, ACTIVE)
  expect(readManifest(files, paths)).toEqual({ format: 1, ...ACTIVE })
})

test('counters begin at zero and are those the shape asks for', () => {
  expect(zeroCounters()).toEqual(Object.fromEntries(Object.keys(ACTIVE.counters).map((name) => [name, 0])))
})

test.each<[string, object]>([
  ...Object.keys(ACTIVE)
    .filter((name) => name !== 'startprios')
    .map((name): [string, object] => [`no ${name}`, { [name]: undefined }]),
  ...Object.keys(ACTIVE.counters).map((name): [string, object] => [
    `no counter ${name}`,
    { counters: { ...ACTIVE.counters, [name]: undefined } },
  ]),
  ['a job id of the wrong length', { jobId: '00' }],
  ['an unknown kind', { kind: 'stack' }],
  ['an unknown order', { order: 'random' }],
  ['a generation below zero', { generation: -1 }],
  ['a bucket that is no name of ours', { buckets: ['../..'] }],
  ['a journal without a number', { journal: { first: 1, last: 'x', sequence: 0 } }],
  ['a seen-set without runs', { seen: { size: 1 } }],
  ['a next id that is no safe integer', { nextId: 2 ** 53 }],
])('%s is refused, although the checksum is right', (_what, change) => {
  const files = new SimFileSystem()
  files.setContents(paths.active, encodeJson({ format: 1, ...ACTIVE, ...change }))
  expect(refusal(() => readManifest(files, paths))).toMatchObject({ code: 'HOLDFAST_CORRUPT', path: paths.active })
})
