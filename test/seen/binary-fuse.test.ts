import { describe, expect, test } from 'vitest'
import { seededRandom } from '../../src/env/random.js'
import { type BinaryFuse, buildBinaryFuse, fuseMayHold } from '../../src/seen/binary-fuse.js'
import { hashHigh, hashLow, newProbe, probeBytes } from '../../src/seen/seen-key.js'
import { runAtOnce } from '../../src/seen/seen-slices.js'
import { counterKey } from './seen-support.js'

interface Hashes {
  readonly high: Uint32Array
  readonly low: Uint32Array
}

function hashesOf(count: number, keyOf: (n: number) => Uint8Array): Hashes {
  const hashes = { high: new Uint32Array(count), low: new Uint32Array(count) }
  const probe = newProbe()
  for (let i = 0; i < count; i++) {
    probeBytes(probe, keyOf(i), 0)
    hashes.high[i] = hashHigh(probe)
    hashes.low[i] = hashLow(probe)
  }
  return hashes
}

function build({ high, low }: Hashes, seed = 1): BinaryFuse {
  const filter = runAtOnce(buildBinaryFuse(high, low, high.length, seed))
  if (filter === undefined) throw new Error(`no filter for ${high.length} keys, seed ${seed}`)
  return filter
}

function countHeld(filter: BinaryFuse, { high, low }: Hashes): number {
  let held = 0
  for (let i = 0; i < high.length; i++) if (fuseMayHold(filter, filter.fingerprints, high[i], low[i])) held++
  return held
}

const random = seededRandom(20)
const spread = (): Uint8Array => random.bytes(16)

describe('binary fuse filter', () => {
  test('never denies a key it was built from, at every small size', () => {
    for (let count = 1; count <= 300; count++) {
      const hashes = hashesOf(count, spread)
      expect(countHeld(build(hashes, count), hashes), `${count} keys`).toBe(count)
    }
  })

  test.each([1000, 4095, 30_000, 100_000])('%i keys: none denied, under 1 %% false, near 9 bits a key', (count) => {
    const hashes = hashesOf(count, spread)
    const filter = build(hashes)
    expect(countHeld(filter, hashes)).toBe(count)
    const falseRate = countHeld(filter, hashesOf(50_000, spread)) / 50_000
    expect(falseRate).toBeLessThan(0.01)
    // Not "no" to everything either: a filter that never errs is not this one.
    expect(falseRate).toBeGreaterThan(0.001)
    if (count >= 30_000) expect((filter.fingerprints.length * 8) / count).toBeLessThan(9.9)
  })

  test('counters for keys are as good as random bytes', () => {
    const hashes = hashesOf(50_000, counterKey)
    const filter = build(hashes)
    expect(countHeld(filter, hashes)).toBe(50_000)
    expect(
      countHeld(
        filter,
        hashesOf(50_000, (n) => counterKey(n + 50_000)),
      ) / 50_000,
    ).toBeLessThan(0.01)
  })

  test('two keys with the same hash cannot be built from, at any size, and that is said', () => {
    for (const count of [2, 3, 100]) {
      const { high, low } = hashesOf(count, spread)
      high[count - 1] = high[0]
      low[count - 1] = low[0]
      expect(runAtOnce(buildBinaryFuse(high, low, count, 1))).toBeUndefined()
    }
  })

  test('many times the same key does not overflow a count unnoticed', () => {
    const high = new Uint32Array(64).fill(5)
    expect(runAtOnce(buildBinaryFuse(high, high, 64, 1))).toBeUndefined()
  })

  test('the same keys and seed give the same bytes', () => {
    const hashes = hashesOf(500, counterKey)
    expect(build(hashes, 7)).toEqual(build(hashes, 7))
  })
})
