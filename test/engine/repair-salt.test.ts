/** The seed of a checksum, found backwards, is the one it was made with. */
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { crc32 } from '../../src/bytes/crc32.js'
import { seedOf } from '../../src/engine/repair-salt.js'

test('undoes crc32, whatever lies around the bytes', () => {
  const seed = fc.nat({ max: 0xffffffff })
  fc.assert(
    fc.property(
      fc.uint8Array({ minLength: 41, maxLength: 200 }),
      seed,
      fc.nat({ max: 20 }),
      fc.nat({ max: 20 }),
      (bytes, salt, a, b) => {
        const start = a
        const end = bytes.length - b
        const checksum = crc32(bytes.subarray(start, end), salt)
        expect(seedOf(bytes, start, end, checksum)).toBe(salt)
      },
    ),
  )
})
