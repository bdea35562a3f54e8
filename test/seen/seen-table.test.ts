import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { seededRandom } from '../../src/env/random.js'
import { ABSENT, compareKeys, KEY, type KeyState, newProbe, probeBytes, TOMBSTONE } from '../../src/seen/seen-key.js'
import { runAtOnce } from '../../src/seen/seen-slices.js'
import { sortTable } from '../../src/seen/seen-sort.js'
import { SeenTable } from '../../src/seen/seen-table.js'
import { counterKey, spreadKey } from './seen-support.js'

const probe = newProbe()
const at = (key: Uint8Array): Uint32Array => {
  probeBytes(probe, key, 0)
  return probe
}

/** What the table says of every key of the pool, against the model. */
function expectSame(table: SeenTable, model: Map<number, KeyState>, pool: number): void {
  expect(table.count).toBe(model.size)
  for (let n = 0; n < pool; n++) expect(table.get(at(counterKey(n))), `key ${n}`).toBe(model.get(n) ?? ABSENT)
}

function sortedKeys(table: SeenTable): string[] {
  const { count, order, words, states } = runAtOnce(sortTable(table))
  return Array.from({ length: count }, (_, i) => {
    const key = [0, 1, 2, 3].map((w) => words[order[i] * 4 + w].toString(16).padStart(8, '0')).join('')
    return `${key}:${states[order[i]]}`
  })
}

describe('seen-table', () => {
  test('agrees with a Map through any mix of set and delete', () => {
    const pool = 600
    const step = fc.tuple(fc.nat(pool - 1), fc.constantFrom<KeyState>(KEY, KEY, TOMBSTONE, ABSENT))
    fc.assert(
      fc.property(fc.array(step, { maxLength: 1500, size: 'max' }), (steps) => {
        const table = new SeenTable(2)
        const model = new Map<number, KeyState>()
        for (const [n, state] of steps) {
          if (state === ABSENT) table.delete(at(counterKey(n)))
          else table.set(at(counterKey(n)), state)
          if (state === ABSENT) model.delete(n)
          else model.set(n, state)
        }
        expectSame(table, model, pool)
      }),
      { seed: 11, numRuns: 40 },
    )
  })

  test('the key of all zeros is a key like any other', () => {
    const table = new SeenTable()
    expect(table.get(at(Buffer.alloc(16)))).toBe(ABSENT)
    table.set(at(Buffer.alloc(16)), KEY)
    expect(table.get(at(Buffer.alloc(16)))).toBe(KEY)
    expect(sortedKeys(table)).toEqual([`${'0'.repeat(32)}:1`])
    table.delete(at(Buffer.alloc(16)))
    expect([table.get(at(Buffer.alloc(16))), table.count]).toEqual([ABSENT, 0])
  })

  test('copyOver puts the newer word over the older one', () => {
    const [older, newer] = [new SeenTable(2), new SeenTable(2)]
    for (let n = 0; n < 100; n++) older.set(at(counterKey(n)), n % 2 === 0 ? KEY : TOMBSTONE)
    for (let n = 50; n < 150; n++) newer.set(at(counterKey(n)), n % 3 === 0 ? KEY : TOMBSTONE)
    newer.copyOver(older)
    const model = new Map<number, KeyState>()
    for (let n = 0; n < 50; n++) model.set(n, n % 2 === 0 ? KEY : TOMBSTONE)
    for (let n = 50; n < 150; n++) model.set(n, n % 3 === 0 ? KEY : TOMBSTONE)
    expectSame(older, model, 200)
  })

  test('takes at most 46 bytes a key, whatever the keys look like', () => {
    for (const keyOf of [counterKey, spreadKey]) {
      const table = new SeenTable()
      for (let n = 0; n < 50_000; n++) table.set(at(keyOf(n)), KEY)
      // 17 bytes a slot, and a shard that has just doubled is three eighths full.
      expect(table.memoryBytes / table.count).toBeLessThan(46)
    }
  })
})

describe('sorting a table', () => {
  test.each([0, 1, 2, 100, 2047, 2048, 50_000])('%i spread entries come out as their bytes compare', (count) => {
    const table = new SeenTable()
    const random = seededRandom(count)
    const keys: string[] = []
    for (let n = 0; n < count; n++) {
      const key = random.bytes(16)
      const state = n % 5 === 0 ? TOMBSTONE : KEY
      table.set(at(key), state)
      keys.push(`${key.toString('hex')}:${state}`)
    }
    expect(sortedKeys(table)).toEqual(keys.sort())
  })

  test('keys that differ in one byte only, at each of the sixteen', () => {
    for (let position = 0; position < 16; position++) {
      const table = new SeenTable()
      const keys: string[] = []
      for (let n = 0; n < 2304; n++) {
        const key = Buffer.alloc(16, 0xff)
        key[position] = n & 0xff
        key[(position + 7) % 16] = n >> 8
        table.set(at(key), KEY)
        keys.push(`${key.toString('hex')}:1`)
      }
      expect(sortedKeys(table)).toEqual([...new Set(keys)].sort())
    }
  })

  test('half spread, half with a common beginning', () => {
    const table = new SeenTable()
    const random = seededRandom(3)
    const keys: string[] = []
    for (let n = 0; n < 6000; n++) {
      const key = random.bytes(16)
      if (n % 2 === 0) key.fill(0x61, 0, 3)
      table.set(at(key), KEY)
      keys.push(`${key.toString('hex')}:1`)
    }
    expect(sortedKeys(table)).toEqual(keys.sort())
  })

  test('comparing words is comparing bytes', () => {
    fc.assert(
      fc.property(fc.uint8Array({ minLength: 32, maxLength: 32 }), (bytes) => {
        const [a, b] = [newProbe(), newProbe()]
        probeBytes(a, bytes, 0)
        probeBytes(b, bytes, 16)
        expect(Math.sign(compareKeys(a, 0, b, 0))).toBe(Buffer.compare(bytes.subarray(0, 16), bytes.subarray(16)))
      }),
      { seed: 12 },
    )
  })
})
