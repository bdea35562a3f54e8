/** Plain values in CBOR: what one side writes the other reads, and whatever is not plain is refused, never bent. */
import { Encoder } from 'cbor-x'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { ByteWriter } from '../../src/bytes/byte-writer.js'
import { NOT_PLAIN, readPlainValue, writePlainValue } from '../../src/bytes/plain-value.js'
import { readValue, writeValue } from '../../src/engine/codec.js'

const general = new Encoder({ useRecords: false, structuredClone: true })

/** Undefined: it was refused. */
function write(value: unknown): Buffer | undefined {
  const writer = new ByteWriter(16)
  return writePlainValue(writer, value) ? Buffer.from(writer.buffer.subarray(writer.start, writer.position)) : undefined
}

const text = fc.oneof(
  fc.string(),
  fc.string({ unit: 'grapheme', maxLength: 300 }),
  fc.constantFrom(22, 23, 24, 40, 41, 127, 128, 255, 256, 70_000).map((length) => 'a'.repeat(length)),
  fc.constantFrom(23, 24, 40, 41, 85, 86, 255, 256).map((length) => 'ü'.repeat(length)),
)
const number = fc.oneof(
  fc.integer(),
  fc.double(),
  fc.constantFrom(
    0,
    -0,
    23,
    24,
    255,
    256,
    65_535,
    65_536,
    2 ** 32 - 1,
    2 ** 32,
    -(2 ** 32),
    -(2 ** 32) - 1,
    -1,
    -24,
    -25,
  ),
  fc.constantFrom(Number.MAX_SAFE_INTEGER, Number.MIN_SAFE_INTEGER, Number.NaN, Infinity, -Infinity),
)
const key = text.filter((name) => name !== '__proto__')
const plain = fc.letrec((tie) => ({
  value: fc.oneof(
    { depthSize: 'small' },
    text,
    number,
    fc.constantFrom(true, false, null, undefined),
    fc.array(tie('value'), { maxLength: 5 }),
    fc.dictionary(key, tie('value'), { maxKeys: 5, noNullPrototype: true }),
  ),
})).value

describe('plain values', () => {
  test('what is written is read as it was, here and by the general codec', () => {
    let written = 0
    fc.assert(
      fc.property(plain, (value) => {
        const bytes = write(value)
        if (bytes === undefined) return
        written++
        expect(readPlainValue(bytes, 0, bytes.length)).toEqual(value)
        expect(general.decode(bytes)).toEqual(value)
      }),
      { numRuns: 500 },
    )
    expect(written).toBeGreaterThan(250)
  })

  test('what the general codec writes is read as it reads it itself, from anywhere in a buffer', () => {
    fc.assert(
      fc.property(plain, fc.nat(9), (value, before) => {
        const bytes = Buffer.concat([Buffer.alloc(before, 0xff), general.encode(value), Buffer.alloc(3, 0xff)])
        // Itself, it makes -0 a 0.
        expect(readValue(bytes, before, bytes.length - 3)).toEqual(general.decode(general.encode(value)))
      }),
      { numRuns: 500 },
    )
  })

  class Named {
    field = 1
  }
  const shared = { a: 1 }
  const cyclic: Record<string, unknown> = {}
  cyclic['self'] = cyclic
  // biome-ignore lint/suspicious/noSparseArray: a hole is what is looked at.
  const holes = [1, , 2]
  const extra = Object.assign([1], { name: 'x' })
  test.each([
    ['a class instance', new Named()],
    ['a date', new Date(0)],
    ['a map', new Map()],
    ['bytes', new Uint8Array(1)],
    ['a bigint', 1n],
    ['a function', () => {}],
    ['a symbol', Symbol('x')],
    ['a symbol as key', { [Symbol('x')]: 1 }],
    ['the same object twice', [shared, shared]],
    ['a cycle', cyclic],
    ['a hole', holes],
    ['an array with a name', extra],
    ['no prototype', Object.create(null)],
    ['a key __proto__', JSON.parse('{"__proto__":1}')],
    ['more fields than one byte tells', Object.fromEntries(Array.from({ length: 24 }, (_, i) => [`f${i}`, i]))],
    ['one of them deep inside', { a: [{ b: new Date(0) }] }],
  ])('%s is refused', (_name, value) => {
    expect(write(value)).toBeUndefined()
  })

  test('a refused value leaves nothing in the batch but what the general codec writes', () => {
    const writer = new ByteWriter(16)
    writer.u8(7)
    const value = { a: 'x'.repeat(100), when: new Date(5) }
    expect(writeValue(writer, value, 'payload')).toBeUndefined()
    expect(writer.buffer[writer.start]).toBe(7)
    expect(readValue(writer.buffer, writer.start + 1, writer.position)).toEqual(value)
    const { length } = writer
    expect(writeValue(writer, { a: 1, onDone: () => {} }, 'payload')).toBe('payload.onDone: function')
    expect(writer.length).toBe(length)
  })

  test('cut anywhere, or with a byte behind it: not a plain value', () => {
    const bytes = write({ url: 'https://a.test/', n: [1, 300, 70_000, 1.5, -2], ok: true, name: 'ü' }) as Buffer
    for (let end = 0; end < bytes.length; end++) expect(readPlainValue(bytes, 0, end), `${end}`).toBe(NOT_PLAIN)
    expect(readPlainValue(Buffer.concat([bytes, Buffer.of(0)]), 0, bytes.length + 1)).toBe(NOT_PLAIN)
  })

  test('any bytes: an answer, never an error or a large allocation', () => {
    fc.assert(
      fc.property(
        fc.uint8Array({ maxLength: 40 }),
        (bytes) => void readPlainValue(Buffer.from(bytes), 0, bytes.length),
      ),
    )
    expect(readPlainValue(Buffer.of(0x9a, 0xff, 0xff, 0xff, 0xff), 0, 5)).toBe(NOT_PLAIN)
    expect(readPlainValue(Buffer.alloc(1000, 0x81), 0, 1000)).toBe(NOT_PLAIN)
  })

  test('names of fields that share a place in the table of names stay apart', () => {
    const names = Array.from({ length: 2000 }, (_, i) => `n${i}x`)
    for (const name of [...names, ...names]) {
      const bytes = write({ [name]: 1 }) as Buffer
      expect(Object.keys(readPlainValue(bytes, 0, bytes.length) as object)).toEqual([name])
    }
  })
})
