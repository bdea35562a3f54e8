/** The checksum: the published check value, the seed, and the short cut for one number. */
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { crc32, crc32OfUint32 } from '../../src/bytes/crc32.js'

test('it is CRC-32 of zlib and PNG', () => {
  expect(crc32(Buffer.from('123456789'), 0)).toBe(0xcbf43926)
  expect(crc32(Buffer.alloc(0), 0)).toBe(0)
  expect(crc32(Buffer.alloc(0), 0x12345678)).toBe(0x12345678)
})

test('a seed other than zero keeps a run of zeros from checking out', () => {
  for (const length of [1, 4, 9, 64, 512, 4096]) expect(crc32(Buffer.alloc(length), 0x48464c44)).not.toBe(0)
})

test('checksums chain: the first part is the seed of the second', () => {
  fc.assert(
    fc.property(fc.uint8Array(), fc.uint8Array(), fc.nat(0xffffffff), (a, b, seed) => {
      expect(crc32(b, crc32(a, seed))).toBe(crc32(Buffer.concat([a, b]), seed))
    }),
  )
})

test('the short cut for one number equals the checksum of its four bytes', () => {
  const bytes = Buffer.alloc(4)
  fc.assert(
    fc.property(fc.nat(0xffffffff), fc.nat(0xffffffff), (value, seed) => {
      bytes.writeUInt32LE(value)
      expect(crc32OfUint32(value, seed)).toBe(crc32(bytes, seed))
    }),
  )
})

test('every single flipped bit changes the checksum', () => {
  const bytes = Buffer.from('a frame of the journal')
  const whole = crc32(bytes, 7)
  for (let bit = 0; bit < bytes.length * 8; bit++) {
    bytes[bit >>> 3] ^= 1 << (bit & 7)
    expect(crc32(bytes, 7)).not.toBe(whole)
    bytes[bit >>> 3] ^= 1 << (bit & 7)
  }
})
