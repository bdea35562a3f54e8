/** Names on disk: each is made and parsed by one pair of functions, and what is not ours is not taken for ours. */
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import {
  bucketDirectory,
  bucketName,
  jobPaths,
  join,
  journalName,
  parseBucketName,
  parseJournalName,
  parseSegmentName,
  segmentName,
} from '../../src/store/file-names.js'

describe('buckets', () => {
  test.each([
    [0, false, '0'],
    [0, true, '0s'],
    [5, false, '-5'],
    [-5, true, '5s'],
    [Number.MAX_SAFE_INTEGER, false, '-9007199254740991'],
    [Number.MIN_SAFE_INTEGER, true, '9007199254740991s'],
  ])('priority %d (start %s) is %s', (priority, start, name) => {
    expect(bucketName(priority, start)).toBe(name)
    expect(parseBucketName(name)).toEqual({ priority, start })
  })

  test('any priority comes back, and zero is never negative', () => {
    fc.assert(
      fc.property(fc.maxSafeInteger(), fc.boolean(), (priority, start) => {
        const parsed = parseBucketName(bucketName(priority, start))
        expect(parsed).toEqual({ priority, start })
        expect(Object.is(parsed?.priority, -0)).toBe(false)
      }),
    )
    expect(bucketName(-0, false)).toBe('0')
  })

  test.each([
    '',
    's',
    '-0',
    '-0s',
    '00',
    '05',
    '-05',
    '+5',
    '5S',
    '5ss',
    '5 ',
    ' 5',
    '1e3',
    '0x1',
    '9007199254740992',
    'journal',
    'delayed',
    'dead',
    '5.tmp',
    '--5',
  ])('%j is no bucket', (name) => {
    expect(parseBucketName(name)).toBeUndefined()
  })
})

describe('journals and segments', () => {
  test('are numbered with a least width', () => {
    expect([1, 99_999_999, 100_000_000].map(journalName)).toEqual(['00000001.log', '99999999.log', '100000000.log'])
    expect([0, 99_999, 100_000].map(segmentName)).toEqual(['q00000', 'q99999', 'q100000'])
    for (const n of [0, 1, 99_999, 100_000, 99_999_999, 100_000_000]) {
      expect(parseJournalName(journalName(n))).toBe(n)
      expect(parseSegmentName(segmentName(n))).toBe(n)
    }
  })

  test.each([
    '1.log',
    '00000001.log.tmp',
    '00000001.LOG',
    '00000001',
    'x0000001.log',
    '../00000001.log',
    '-0000001.log',
  ])('%j is no journal', (name) => expect(parseJournalName(name)).toBeUndefined())

  test.each(['q', 'q1', 'q0000', 'Q00000', 'q00000.tmp', 'q0000x', 'r00000', '../q00000', 'q-0001'])(
    '%j is no segment',
    (name) => expect(parseSegmentName(name)).toBeUndefined(),
  )
})

describe('paths', () => {
  test('of a job', () => {
    expect(jobPaths('/data/job')).toEqual({
      root: '/data/job',
      queue: '/data/job/requests.queue',
      journal: '/data/job/requests.queue/journal',
      seen: '/data/job/requests.seen',
      active: '/data/job/requests.queue/active.json',
      reserve: '/data/job/requests.queue/reserve',
    })
  })

  test('dead letters lie beside the queue, every other bucket in it', () => {
    const paths = jobPaths('/job')
    expect(bucketDirectory(paths, 'dead')).toBe('/job/dead')
    expect(bucketDirectory(paths, 'delayed')).toBe('/job/requests.queue/delayed')
    expect(bucketDirectory(paths, '-5')).toBe('/job/requests.queue/-5')
  })

  test('joining does not double a slash', () => {
    expect(join('/a/', 'b', 'c')).toBe('/a/b/c')
    expect(join('/a//', 'b')).toBe('/a/b')
    expect(join('/', 'b')).toBe('/b')
    expect(join('a', 'b')).toBe('a/b')
  })
})
