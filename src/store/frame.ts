/**
 * One frame in and out: `length u32 | crc32 u32 | type u8 | payload`. The reader says only what the bytes say; whether a
 * bad frame is a torn tail or corruption depends on what was promised durable, which its caller knows and this does not.
 */
import { assert } from '../assert.js'
import type { ByteWriter } from '../bytes/byte-writer.js'
import { crc32, crc32OfUint32 } from '../bytes/crc32.js'
import { FRAME_PAYLOAD_BYTES_MAX } from '../limits.js'
import { FRAME_HEADER_BYTES, FRAME_UNWRITTEN } from './format.js'

export type FrameRead =
  | { readonly kind: 'frame'; readonly type: number; readonly start: number; readonly end: number }
  /** Nothing more: the end of the buffer, or zeros to its end. */
  | { readonly kind: 'end' }
  | { readonly kind: 'bad'; readonly reason: string }

/** Begins a frame in the writer's open region: leaves room for the header. */
export function beginFrame(writer: ByteWriter): void {
  assert(writer.length === 0, 'a frame starts its region')
  writer.ensure(FRAME_HEADER_BYTES)
  writer.position += FRAME_HEADER_BYTES
}

/** Fills in the header of the frame that fills `buffer` from `start` to `end`. */
export function sealFrame(buffer: Buffer, start: number, end: number, type: number, salt: number): void {
  const length = end - start - FRAME_HEADER_BYTES
  assert(length >= 0 && length <= FRAME_PAYLOAD_BYTES_MAX, 'frame within its limit')
  buffer.writeUInt32LE(length, start)
  buffer[start + 8] = type
  buffer.writeUInt32LE(frameChecksum(buffer, start, end, length, salt), start + 4)
}

function frameChecksum(buffer: Buffer, start: number, end: number, length: number, salt: number): number {
  return crc32(buffer.subarray(start + 8, end), crc32OfUint32(length, salt))
}

const bad = (reason: string): FrameRead => ({ kind: 'bad', reason })

/** Reads the frame at `offset`. `end` of the result is where the next one begins; `start` is that of the payload. */
export function readFrame(bytes: Buffer, offset: number, salt: number): FrameRead {
  if (offset >= bytes.length) return { kind: 'end' }
  if (bytes.length - offset < FRAME_HEADER_BYTES) {
    return isZero(bytes, offset) ? { kind: 'end' } : bad('frame header cut short')
  }
  const length = bytes.readUInt32LE(offset)
  const type = bytes[offset + 8]
  if (type === FRAME_UNWRITTEN) return isZero(bytes, offset) ? { kind: 'end' } : bad('frame of type 0 with content')
  // Checked before slicing: a damaged length must not choose how much memory we touch.
  if (length > FRAME_PAYLOAD_BYTES_MAX) {
    return bad(`frame claims ${length} bytes, the limit is ${FRAME_PAYLOAD_BYTES_MAX}`)
  }
  const end = offset + FRAME_HEADER_BYTES + length
  if (end > bytes.length) return bad(`frame of ${length} bytes cut short`)
  if (frameChecksum(bytes, offset, end, length, salt) !== bytes.readUInt32LE(offset + 4)) {
    return bad('frame checksum mismatch')
  }
  return { kind: 'frame', type, start: offset + FRAME_HEADER_BYTES, end }
}

function isZero(bytes: Buffer, from: number): boolean {
  for (let i = from; i < bytes.length; i++) if (bytes[i] !== 0) return false
  return true
}
