/** One frame: what goes in comes out, and of anything else the reader says what it saw. */
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { ByteWriter } from '../../src/bytes/byte-writer.js'
import { FRAME_PAYLOAD_BYTES_MAX } from '../../src/limits.js'
import { FRAME_BATCH, FRAME_FOOTER, FRAME_HEADER_BYTES } from '../../src/store/format.js'
import { beginFrame, readFrame, sealFrame } from '../../src/store/frame.js'
import { flipped, SALT } from './support.js'

function frame(payload: Uint8Array, type = FRAME_BATCH, salt = SALT): Buffer {
  const writer = new ByteWriter(64)
  beginFrame(writer)
  writer.bytes(payload)
  sealFrame(writer.buffer, writer.start, writer.position, type, salt)
  return Buffer.from(writer.buffer.subarray(writer.start, writer.position))
}

const hello = frame(Buffer.from('hello'))

test('a frame is length, checksum, type and payload', () => {
  expect(hello.toString('hex')).toBe(`05000000${hello.toString('hex', 4, 8)}0168656c6c6f`)
})

test('any payload comes back, also of frames that stand behind one another', () => {
  const one = fc.tuple(fc.uint8Array({ maxLength: 200 }), fc.integer({ min: 1, max: 255 }))
  fc.assert(
    fc.property(fc.array(one, { maxLength: 5 }), fc.integer({ min: 1, max: 0xffffffff }), (frames, salt) => {
      const bytes = Buffer.concat(frames.map(([payload, type]) => frame(payload, type, salt)))
      let at = 0
      for (const [payload, type] of frames) {
        const read = readFrame(bytes, at, salt)
        if (read.kind !== 'frame') throw new Error(read.kind)
        expect(read.type).toBe(type)
        expect(new Uint8Array(bytes.subarray(read.start, read.end))).toEqual(payload)
        at = read.end
      }
      expect(readFrame(bytes, at, salt)).toEqual({ kind: 'end' })
    }),
  )
})

describe('the end', () => {
  test('of the buffer', () => {
    expect(readFrame(hello, hello.length, SALT)).toEqual({ kind: 'end' })
    expect(readFrame(Buffer.alloc(0), 0, SALT)).toEqual({ kind: 'end' })
  })

  test('zeros of any length', () => {
    for (let zeros = 1; zeros <= 40; zeros++) {
      expect(readFrame(Buffer.concat([hello, Buffer.alloc(zeros)]), hello.length, SALT)).toEqual({ kind: 'end' })
    }
  })

  test('is not zeros with something behind them', () => {
    for (let zeros = 1; zeros <= 40; zeros++) {
      const bytes = Buffer.concat([Buffer.alloc(zeros), Buffer.from([1])])
      expect(readFrame(bytes, 0, SALT).kind).toBe('bad')
    }
  })
})

describe('a bad frame', () => {
  const reasonOf = (bytes: Buffer, salt = SALT): string => {
    const read = readFrame(bytes, 0, salt)
    return read.kind === 'bad' ? read.reason : read.kind
  }

  test('cut at any byte', () => {
    for (let length = 1; length < hello.length; length++) {
      expect(reasonOf(hello.subarray(0, length))).toBe(
        length < FRAME_HEADER_BYTES ? 'frame header cut short' : 'frame of 5 bytes cut short',
      )
    }
  })

  test('with any bit flipped', () => {
    for (let bit = 0; bit < hello.length * 8; bit++) expect(readFrame(flipped(hello, bit), 0, SALT).kind).toBe('bad')
  })

  test('that claims more than the limit is refused for that, before its bytes are asked for', () => {
    const bytes = Buffer.from(hello)
    bytes.writeUInt32LE(FRAME_PAYLOAD_BYTES_MAX + 1, 0)
    expect(reasonOf(bytes)).toBe('frame claims 67108865 bytes, the limit is 67108864')
    bytes.writeUInt32LE(FRAME_PAYLOAD_BYTES_MAX, 0)
    expect(reasonOf(bytes)).toBe('frame of 67108864 bytes cut short')
  })

  test('of another file: the salt is not that of this one', () => {
    expect(reasonOf(frame(Buffer.from('hello'), FRAME_BATCH, SALT + 1))).toBe('frame checksum mismatch')
  })

  test('of type 0 with content', () => {
    expect(reasonOf(frame(Buffer.from('hello'), 0))).toBe('frame of type 0 with content')
  })
})

test('a frame over the limit is never sealed', () => {
  const bytes = Buffer.alloc(16)
  expect(() => sealFrame(bytes, 0, FRAME_HEADER_BYTES + FRAME_PAYLOAD_BYTES_MAX + 1, FRAME_FOOTER, SALT)).toThrow()
  expect(() => sealFrame(bytes, 0, FRAME_HEADER_BYTES - 1, FRAME_FOOTER, SALT)).toThrow()
})

test('a frame starts its region', () => {
  const writer = new ByteWriter(64)
  writer.u8(1)
  expect(() => beginFrame(writer)).toThrow()
})
