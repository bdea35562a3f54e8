import { describe, expect, test } from 'vitest'
import { count, formatProgress, ratesOf, seconds } from '../../src/cli/progress.js'

const STATS = { ready: 1200, leased: 16, delayed: 0, seen: 5000 }

test('reads as a sentence of numbers', () => {
  expect(formatProgress({ lines: 3784, pagesPerSecond: 412.4, errors: 2, stats: STATS, etaMs: 3000 })).toBe(
    '3,784 pages · 412/s · 1,200 ready · 16 in flight · 0 delayed · 5,000 seen · 2 errors · about 3.0 s left',
  )
  expect(formatProgress({ lines: 1, pagesPerSecond: 0.5, errors: 0, stats: STATS, etaMs: undefined })).toMatch(
    /^1 pages · 0\.5\/s · .* 0 errors$/,
  )
})

describe('rates', () => {
  const sample = (atMs: number, pages: number, waiting: number) => ({ atMs, pages, waiting })

  test('need two samples', () => {
    expect(ratesOf([], Infinity)).toEqual({ pagesPerSecond: 0, etaMs: undefined })
    expect(ratesOf([sample(0, 0, 5)], Infinity)).toEqual({ pagesPerSecond: 0, etaMs: undefined })
  })

  test('no time is promised while the frontier grows', () => {
    expect(ratesOf([sample(0, 0, 100), sample(1000, 50, 400)], Infinity)).toEqual({
      pagesPerSecond: 50,
      etaMs: undefined,
    })
  })

  test('it is when it shrinks', () => {
    expect(ratesOf([sample(0, 0, 100), sample(1000, 50, 60)], Infinity)).toEqual({ pagesPerSecond: 50, etaMs: 1500 })
  })

  test('a limit on pages is one too', () => {
    expect(ratesOf([sample(0, 0, 100), sample(1000, 50, 400)], 100)).toEqual({ pagesPerSecond: 50, etaMs: 2000 })
  })
})

test('numbers', () => {
  expect(count(1234567)).toBe('1,234,567')
  expect([940, 9949, 42_400, 600_000, 3 * 3600_000].map(seconds)).toEqual(['0.9 s', '9.9 s', '42 s', '10 min', '3.0 h'])
})
