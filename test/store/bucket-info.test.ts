/** `info.json` and its marks: two generations, of which the committed one counts, and sets of used-up records as runs. */
import fc from 'fast-check'
import { beforeEach, describe, expect, test } from 'vitest'
import { SimFileSystem } from '../../src/env/sim-file-system.js'
import {
  type BucketGeneration,
  ConsumedSet,
  EMPTY_GENERATION,
  readBucketInfo,
  writeBucketInfo,
} from '../../src/store/bucket-info.js'
import { encodeJson } from '../../src/store/json-file.js'
import { refusal } from './support.js'

const DIRECTORY = '/bucket'
const PATH = '/bucket/info.json'
const segment = { file: 'q00000', id: 1, records: 3, bytes: 500, footerCrc: 9, live: 3, consumed: '' }
const generation = (number: number): BucketGeneration => ({
  generation: number,
  nextFile: number,
  segments: [{ ...segment, id: number }],
})

let files: SimFileSystem

beforeEach(() => {
  files = new SimFileSystem()
  files.makeDirectory(DIRECTORY)
})

describe('generations', () => {
  test('the current one once it is committed, the previous one before', async () => {
    await writeBucketInfo(files, DIRECTORY, '0', generation(5), generation(3))
    for (const committed of [5, 6, 100]) {
      expect(readBucketInfo(files, DIRECTORY, '0', committed)).toEqual({ state: generation(5), highest: 5 })
    }
    for (const committed of [3, 4]) {
      // The number of the one that was never committed is told, so that it is not used again.
      expect(readBucketInfo(files, DIRECTORY, '0', committed)).toEqual({ state: generation(3), highest: 5 })
    }
  })

  test('a first generation has an empty one before it', async () => {
    await writeBucketInfo(files, DIRECTORY, '0', generation(1), EMPTY_GENERATION)
    expect(readBucketInfo(files, DIRECTORY, '0', 0).state).toEqual(EMPTY_GENERATION)
  })

  test('both newer than what is committed: not of this manifest', async () => {
    await writeBucketInfo(files, DIRECTORY, '0', generation(5), generation(3))
    expect(refusal(() => readBucketInfo(files, DIRECTORY, '0', 2))).toMatchObject({
      code: 'HOLDFAST_CORRUPT',
      path: PATH,
    })
  })

  test('more than is to be kept is not carried along', async () => {
    const extra = { ...generation(3), previous: generation(1) }
    await writeBucketInfo(files, DIRECTORY, '0', generation(5), extra)
    expect(
      files
        .contents(PATH)
        .toString()
        .match(/previous/g),
    ).toHaveLength(1)
  })
})

describe('refused', () => {
  test('a missing file, and one of another bucket', async () => {
    expect(refusal(() => readBucketInfo(files, DIRECTORY, '0', 1)).message).toContain('missing')
    await writeBucketInfo(files, DIRECTORY, '0', generation(1), EMPTY_GENERATION)
    expect(refusal(() => readBucketInfo(files, DIRECTORY, '-5', 1)).message).toContain('belongs to bucket "0"')
  })

  test.each<[string, (fields: Record<string, unknown>) => void]>([
    ['generation', (f) => (f['generation'] = -1)],
    ['generation', (f) => (f['generation'] = '1')],
    ['nextFile', (f) => delete f['nextFile']],
    ['segments', (f) => (f['segments'] = {})],
    ['segments', (f) => (f['segments'] = [null])],
    ...['file', 'id', 'records', 'bytes', 'footerCrc', 'live', 'consumed'].flatMap(
      (name): [string, (fields: Record<string, unknown>) => void][] => [
        [name, (f) => (f['segments'] = [{ ...segment, [name]: undefined }])],
        [name, (f) => (f['segments'] = [{ ...segment, [name]: -1.5 }])],
      ],
    ),
    ['file', (f) => (f['segments'] = [{ ...segment, file: '../../etc/q00000' }])],
  ])('a %s of the wrong kind', (_name, spoil) => {
    const fields = { format: 1, bucket: '0', ...generation(1), previous: EMPTY_GENERATION }
    spoil(fields as unknown as Record<string, unknown>)
    files.setContents(PATH, encodeJson(fields))
    expect(refusal(() => readBucketInfo(files, DIRECTORY, '0', 1))).toMatchObject({
      code: 'HOLDFAST_CORRUPT',
      path: PATH,
    })
  })

  test('a previous generation of the wrong kind, when it is the one that counts', () => {
    for (const previous of [undefined, null, 1, {}, { ...generation(1), nextFile: 'x' }]) {
      files.setContents(PATH, encodeJson({ format: 1, bucket: '0', ...generation(5), previous }))
      expect(refusal(() => readBucketInfo(files, DIRECTORY, '0', 4)).code).toBe('HOLDFAST_CORRUPT')
      expect(readBucketInfo(files, DIRECTORY, '0', 5).state).toEqual(generation(5))
    }
  })
})

describe('ConsumedSet', () => {
  const of = (records: number, ordinals: Iterable<number>): ConsumedSet => {
    const set = new ConsumedSet(records)
    for (const ordinal of ordinals) set.add(ordinal)
    return set
  }
  const decode = (text: string, records: number, live: number): ConsumedSet =>
    ConsumedSet.decode(text, records, live, PATH)

  test('marks and unmarks, each once', () => {
    const set = new ConsumedSet(20)
    expect(set.live).toBe(20)
    for (const ordinal of [0, 7, 8, 19, 8]) set.add(ordinal)
    expect(set.live).toBe(16)
    expect(Array.from({ length: 20 }, (_, i) => i).filter((i) => set.has(i))).toEqual([0, 7, 8, 19])
    set.delete(8)
    set.delete(8)
    expect(set.has(8)).toBe(false)
    expect(set.live).toBe(17)
  })

  test('a copy goes its own way', () => {
    const set = of(10, [1])
    const copy = set.copy()
    copy.add(2)
    set.add(3)
    expect([set.has(2), set.has(3), set.live]).toEqual([false, true, 8])
    expect([copy.has(2), copy.has(3), copy.live]).toEqual([true, false, 8])
  })

  test.each<[string, number, number[], number[]]>([
    ['nothing', 10, [], []],
    ['everything', 10, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9], [0, 10]],
    ['the first', 10, [0], [0, 1]],
    ['the last', 10, [9], [9, 1]],
    ['every other', 6, [1, 3, 5], [1, 1, 1, 1, 1, 1]],
    ['a long run', 400, Array.from({ length: 300 }, (_, i) => i + 1), [1, 0xac, 0x02]],
    ['no records', 0, [], []],
  ])('%s is written as runs, live first, without the live tail', (_name, records, ordinals, bytes) => {
    expect([...Buffer.from(of(records, ordinals).encode(), 'base64')]).toEqual(bytes)
  })

  test('any set comes back', () => {
    const sets = fc
      .integer({ min: 0, max: 2000 })
      .chain((n) => fc.tuple(fc.constant(n), fc.uniqueArray(fc.nat(Math.max(0, n - 1)), { maxLength: n })))
    fc.assert(
      fc.property(sets, ([records, ordinals]) => {
        const set = of(records, ordinals)
        const back = decode(set.encode(), records, records - ordinals.length)
        for (let i = 0; i < records; i++) if (back.has(i) !== set.has(i)) throw new Error(`ordinal ${i} differs`)
        expect(back.live).toBe(set.live)
        expect(back.encode()).toBe(set.encode())
      }),
    )
  })

  test('marks beyond the records, and a count that does not fit, are damage', () => {
    const base64 = (...bytes: number[]): string => Buffer.from(bytes).toString('base64')
    expect(refusal(() => decode(base64(0, 11), 10, 0))).toMatchObject({ code: 'HOLDFAST_CORRUPT', path: PATH })
    expect(refusal(() => decode(base64(11), 10, 10)).code).toBe('HOLDFAST_CORRUPT')
    expect(refusal(() => decode(base64(0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x0f), 10, 0)).code).toBe(
      'HOLDFAST_CORRUPT',
    )
    expect(refusal(() => decode(base64(0, 1), 10, 10)).message).toContain('9 records are live, info.json says 10')
  })
})
