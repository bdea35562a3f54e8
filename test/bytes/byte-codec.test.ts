/** `ByteWriter` and `ByteReader` against each other, against bytes written by hand, and against every possible cut. */
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { ByteReader, DecodeError } from '../../src/bytes/byte-reader.js'
import { ByteWriter, putVarint } from '../../src/bytes/byte-writer.js'

const MAX = Number.MAX_SAFE_INTEGER

function bytesOf(write: (writer: ByteWriter) => void, chunkBytes = 64): Buffer {
  const writer = new ByteWriter(chunkBytes)
  write(writer)
  return Buffer.from(writer.buffer.subarray(writer.start, writer.position))
}

const hexOf = (write: (writer: ByteWriter) => void): string => bytesOf(write).toString('hex')

/** One value of each kind the formats use. */
type Item =
  | { kind: 'u8' | 'u32' | 'u64' | 'varint' | 'signedVarint' | 'f64'; value: number }
  | { kind: 'string'; value: string }
  | { kind: 'bytes'; value: Uint8Array }

function write(writer: ByteWriter, item: Item): void {
  if (item.kind === 'string') writer.string(item.value)
  else if (item.kind === 'bytes') {
    writer.varint(item.value.length)
    writer.bytes(item.value)
  } else writer[item.kind](item.value)
}

function read(reader: ByteReader, kind: Item['kind']): unknown {
  if (kind === 'string') return reader.string()
  if (kind === 'bytes') return new Uint8Array(reader.bytes(reader.varint()))
  return reader[kind]()
}

const safe = fc.oneof(
  fc.maxSafeNat(),
  fc.integer({ min: 0, max: 53 }).map((n) => Math.min(2 ** n, MAX)),
  fc.nat(300),
)
const item: fc.Arbitrary<Item> = fc.oneof(
  fc.record({ kind: fc.constant('u8' as const), value: fc.nat(255) }),
  fc.record({ kind: fc.constant('u32' as const), value: fc.nat(0xffffffff) }),
  fc.record({ kind: fc.constantFrom('u64' as const, 'varint' as const), value: safe }),
  fc.record({ kind: fc.constant('signedVarint' as const), value: fc.oneof(fc.maxSafeInteger(), safe) }),
  fc.record({ kind: fc.constant('f64' as const), value: fc.double({ noNaN: true }) }),
  fc.record({ kind: fc.constant('string' as const), value: fc.string({ unit: 'grapheme', maxLength: 60 }) }),
  fc.record({ kind: fc.constant('bytes' as const), value: fc.uint8Array({ maxLength: 100 }) }),
)

describe('exact bytes', () => {
  test.each([
    [0, '00'],
    [1, '01'],
    [127, '7f'],
    [128, '8001'],
    [300, 'ac02'],
    [16383, 'ff7f'],
    [16384, '808001'],
    [2 ** 31, '8080808008'],
    [2 ** 32 - 1, 'ffffffff0f'],
    [2 ** 32, '8080808010'],
    [2 ** 49 - 1, 'ffffffffffff7f'],
    [2 ** 49, '8080808080808001'],
    [MAX, 'ffffffffffffff0f'],
  ])('varint %d is %s', (value, hex) => {
    expect(hexOf((w) => w.varint(value))).toBe(hex)
    expect(new ByteReader(Buffer.from(hex, 'hex')).varint()).toBe(value)
    const into = new Uint8Array(10)
    expect(putVarint(into, 1, value)).toBe(1 + hex.length / 2)
    expect(Buffer.from(into.subarray(1, 1 + hex.length / 2)).toString('hex')).toBe(hex)
  })

  test.each([
    [0, '00'],
    [-1, '01'],
    [1, '02'],
    [-64, '7f'],
    [64, '8001'],
    [2 ** 51 - 1, 'feffffffffffff07'],
    [-(2 ** 51), 'ffffffffffffff07'],
    // The varint 2^52 announces a raw double.
    [2 ** 51, '80808080808080080000000000002043'],
    [-(2 ** 51) - 1, '808080808080800802000000000020c3'],
    [MAX, '8080808080808008ffffffffffff3f43'],
    [-MAX, '8080808080808008ffffffffffff3fc3'],
  ])('signed varint %d is %s', (value, hex) => {
    expect(hexOf((w) => w.signedVarint(value))).toBe(hex)
    expect(new ByteReader(Buffer.from(hex, 'hex')).signedVarint()).toBe(value)
  })

  test('fixed numbers are little endian', () => {
    expect(hexOf((w) => w.u8(0xab))).toBe('ab')
    expect(hexOf((w) => w.u32(0x01020304))).toBe('04030201')
    expect(hexOf((w) => w.u64(0x00010203 * 2 ** 32 + 0x04050607))).toBe('0706050403020100')
    expect(hexOf((w) => w.u64(MAX))).toBe('ffffffffffff1f00')
    expect(hexOf((w) => w.f64(1))).toBe('000000000000f03f')
  })

  test('a string is its length in UTF-8 bytes, then the bytes, on the short path and the long one', () => {
    expect(hexOf((w) => w.string(''))).toBe('00')
    expect(hexOf((w) => w.string('ab'))).toBe('026162')
    expect(hexOf((w) => w.string('é'))).toBe('02c3a9')
    // Falls off the short path after it has put bytes into the buffer.
    expect(hexOf((w) => w.string('abé'))).toBe('046162c3a9')
    expect(hexOf((w) => w.string('x'.repeat(39)))).toBe(`27${'78'.repeat(39)}`)
    expect(hexOf((w) => w.string('x'.repeat(40)))).toBe(`28${'78'.repeat(40)}`)
    expect(hexOf((w) => w.string('x'.repeat(128)))).toBe(`8001${'78'.repeat(128)}`)
  })
})

describe('round trips', () => {
  test('any sequence of values comes back, whatever the size of the chunk', () => {
    fc.assert(
      fc.property(fc.array(item, { maxLength: 30 }), fc.integer({ min: 1, max: 200 }), (items, chunkBytes) => {
        const bytes = bytesOf((w) => {
          for (const one of items) write(w, one)
        }, chunkBytes)
        const reader = new ByteReader(bytes)
        for (const one of items) expect(read(reader, one.kind)).toEqual(one.value)
        expect(reader.left).toBe(0)
      }),
    )
  })

  test('bytes cut anywhere give DecodeError, with an offset inside what was read', () => {
    fc.assert(
      fc.property(item, (one) => {
        const bytes = bytesOf((w) => write(w, one))
        for (let end = 0; end < bytes.length; end++) {
          let thrown: unknown
          try {
            read(new ByteReader(bytes, 0, end), one.kind)
          } catch (error) {
            thrown = error
          }
          expect(thrown).toBeInstanceOf(DecodeError)
          expect((thrown as DecodeError).offset).toBeLessThanOrEqual(end)
        }
      }),
    )
  })

  test('any bytes give a value or DecodeError, and never more bytes than there are', () => {
    const kinds: Item['kind'][] = ['u8', 'u32', 'u64', 'varint', 'signedVarint', 'f64', 'string', 'bytes']
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 40 }), fc.array(fc.constantFrom(...kinds)), (bytes, wanted) => {
        const reader = new ByteReader(Buffer.from(bytes))
        for (const kind of wanted) {
          try {
            read(reader, kind)
          } catch (error) {
            expect(error).toBeInstanceOf(DecodeError)
            return
          }
          expect(reader.position).toBeLessThanOrEqual(bytes.length)
        }
      }),
    )
  })
})

describe('what a reader refuses', () => {
  test.each([
    ['a varint of nine bytes', '808080808080808001', 'varint' as const],
    ['zero in nine bytes', '808080808080808000', 'varint' as const],
    ['a varint that never ends', 'ffffffffffffffffffffffffffffffff', 'varint' as const],
    ['a varint beyond 2^53', 'ffffffffffffff7f', 'varint' as const],
    ['a u64 beyond 2^53', '0000000000002000', 'u64' as const],
    ['the zigzag forms that stand for nothing', '81808080808080080000000000002043', 'signedVarint' as const],
    ['a raw double that is no integer', '8080808080808008000000000000e03f', 'signedVarint' as const],
    ['a raw double that is not a number', '8080808080808008000000000000f87f', 'signedVarint' as const],
    ['a string longer than what is left', '0561626364', 'string' as const],
    ['a string of a claimed petabyte', 'ffffffffffffff0f', 'string' as const],
  ])('%s', (_what, hex, kind) => {
    expect(() => new ByteReader(Buffer.from(hex, 'hex'))[kind]()).toThrow(DecodeError)
  })

  test('reading does not go past `end`, although the buffer does', () => {
    const reader = new ByteReader(Buffer.from([1, 2, 3, 4, 5, 6, 7, 8, 9, 10]), 2, 5)
    expect(reader.left).toBe(3)
    expect(() => reader.u32()).toThrow(DecodeError)
    expect(() => reader.bytes(4)).toThrow(DecodeError)
    expect(() => reader.skip(4)).toThrow(DecodeError)
    expect([...reader.bytes(3)]).toEqual([3, 4, 5])
    expect(() => reader.u8()).toThrow(DecodeError)
  })
})

describe('regions of a writer', () => {
  test('a finished region keeps its bytes when later ones move to a larger chunk', () => {
    const writer = new ByteWriter(16)
    writer.string('first')
    const first = writer.finish()
    for (let i = 0; i < 100; i++) writer.u32(i)
    expect(writer.length).toBe(400)
    const second = writer.finish()
    expect(second.buffer).not.toBe(first.buffer)
    expect(first.buffer.subarray(first.start, first.end).toString('latin1')).toBe('\x05first')
    const reader = new ByteReader(second.buffer, second.start, second.end)
    for (let i = 0; i < 100; i++) expect(reader.u32()).toBe(i)
  })

  test('regions of one chunk lie behind one another and share its memory', () => {
    const writer = new ByteWriter(64)
    writer.u8(1)
    const one = writer.finish()
    writer.u8(2)
    const two = writer.finish()
    expect(two.buffer).toBe(one.buffer)
    expect(two.start).toBe(one.end)
  })

  test('rewind forgets the tail of the open region and nothing before it', () => {
    const writer = new ByteWriter(64)
    writer.u8(9)
    writer.finish()
    writer.string('keep')
    const length = writer.length
    writer.string('drop')
    writer.rewind(length)
    writer.string('on')
    expect(writer.buffer.subarray(writer.start, writer.position).toString('latin1')).toBe('\x04keep\x02on')
    expect(() => writer.rewind(writer.length + 1)).toThrow()
  })

  test('copy moves bytes from another buffer, also over the end of the chunk', () => {
    const source = Buffer.from('0123456789')
    const bytes = bytesOf((w) => {
      for (let i = 0; i < 10; i++) w.copy(source, 2, 5)
    }, 8)
    expect(bytes.toString()).toBe('234'.repeat(10))
  })
})
