/** The option `seenMemoryBytes`: checked at the door, and what the table may hold follows from it. */
import { expect, test } from 'vitest'
import { resolveOptions } from '../../src/engine/engine-options.js'
import { SEEN_MEMORY_BYTES_DEFAULT, SEEN_MEMORY_BYTES_MIN } from '../../src/limits.js'

const resolve = (options: { seenMemoryBytes?: number; tuning?: { seenTableKeys: number } }) =>
  resolveOptions('frontier', options, () => ({ concurrency: Infinity, delayMs: 0 }))

test('has a default, and a least value', () => {
  expect(resolve({}).seenMemoryBytes).toBe(SEEN_MEMORY_BYTES_DEFAULT)
  expect(resolve({ seenMemoryBytes: SEEN_MEMORY_BYTES_MIN }).seenMemoryBytes).toBe(SEEN_MEMORY_BYTES_MIN)
  for (const wrong of [0, -1, Number.NaN, SEEN_MEMORY_BYTES_MIN - 1, '9000000' as unknown as number]) {
    expect(() => resolve({ seenMemoryBytes: wrong })).toThrow(TypeError)
  }
})

test('more of it is a larger table, up to a limit', () => {
  const keysOf = (seenMemoryBytes: number): number => resolve({ seenMemoryBytes }).tuning.seenTableKeys
  const keys = [8, 32, 128, 512].map((mib) => keysOf(mib * 2 ** 20))
  expect(keys).toEqual([...keys].sort((a, b) => a - b))
  expect(keys[0]).toBeLessThan(keys[3])
  expect(keysOf(2 ** 40)).toBeLessThanOrEqual(1_000_000)
  expect(resolve({ tuning: { seenTableKeys: 5 } }).tuning.seenTableKeys).toBe(5)
})
