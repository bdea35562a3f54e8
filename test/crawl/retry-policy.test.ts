import fc from 'fast-check'
import { expect, test } from 'vitest'
import {
  backoffMs,
  isOverloaded,
  isRetryableStatus,
  networkErrorLabel,
  RETRY_AFTER_MS_MAX,
  retryAfterMs,
} from '../../src/crawl/retry-policy.js'
import { seededRandom } from '../../src/env/random.js'
import { BACKOFF_MS_FIRST, BACKOFF_MS_MAX } from '../../src/limits.js'

test.each([
  [200, false],
  [301, false],
  [400, false],
  [404, false],
  [408, true],
  [410, false],
  [425, true],
  [429, true],
  [500, true],
  [503, true],
  [599, true],
])('status %i is worth another try: %s', (status, expected) => {
  expect(isRetryableStatus(status)).toBe(expected)
})

test('429 and 503 speak for the host, 500 for the page', () => {
  expect([429, 503, 500, 408].map(isOverloaded)).toEqual([true, true, false, false])
})

test('backoff doubles within a quarter, up to its bound', () => {
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 2000 }), fc.integer(), (failures, seed) => {
      const ms = backoffMs(failures, seededRandom(seed))
      const base = Math.min(BACKOFF_MS_MAX, BACKOFF_MS_FIRST * 2 ** Math.min(30, failures - 1))
      expect(ms).toBeGreaterThanOrEqual(0.75 * base)
      expect(ms).toBeLessThanOrEqual(1.25 * base)
    }),
  )
})

test('backoff is not the same for two pages', () => {
  const random = seededRandom(1)
  expect(backoffMs(1, random)).not.toBe(backoffMs(1, random))
})

const NOW = Date.parse('2025-03-01T12:00:00Z')

test.each([
  ['0', 0],
  ['5', 5000],
  [' 120 ', 120_000],
  ['Sat, 01 Mar 2025 12:00:30 GMT', 30_000],
  ['Sat, 01 Mar 2025 11:00:00 GMT', 0],
  ['999999999', RETRY_AFTER_MS_MAX],
  ['', undefined],
  ['soon', undefined],
  ['-5', undefined],
  ['1.5', undefined],
])('Retry-After "%s" is %s ms', (header, expected) => {
  expect(retryAfterMs(header, NOW)).toBe(expected)
})

test('no Retry-After', () => {
  expect(retryAfterMs(undefined, NOW)).toBeUndefined()
})

test('errors have short names', () => {
  expect(networkErrorLabel(Object.assign(new Error('x'), { code: 'ECONNREFUSED' }))).toBe('ECONNREFUSED')
  expect(networkErrorLabel(Object.assign(new Error('x'), { code: 'UND_ERR_SOCKET' }))).toBe('connection closed')
  expect(networkErrorLabel(new Error('outer', { cause: { code: 'ENOTFOUND' } }))).toBe('ENOTFOUND')
  expect(networkErrorLabel(new Error('plain'))).toBe('plain')
  expect(networkErrorLabel('text')).toBe('text')
})
