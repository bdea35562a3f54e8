/**
 * Writes little-endian numbers, varints and strings into chunks. A region (one batch, one segment) is contiguous: when
 * it outgrows its chunk it moves to a larger one, so offsets inside a region are relative to its start until `finish`.
 * Finished regions stay where they are: jobs keep pointing into the chunk, which makes the encoded bytes the only copy.
 */
import { assert } from '../assert.js'

const TWO_32 = 2 ** 32
/** Up to here a loop is quicker than a call into the runtime. */
const SHORT_BYTES = 32
const SHORT_TEXT = 40

export class ByteWriter {
  /** The chunk that holds the open region. Changes when the region moves. */
  buffer: Buffer
  /** Absolute position in `buffer` of the next byte. */
  position = 0
  /** Absolute position in `buffer` where the open region starts. */
  start = 0
  private readonly chunkBytes: number

  constructor(chunkBytes: number) {
    this.chunkBytes = chunkBytes
    this.buffer = Buffer.allocUnsafeSlow(chunkBytes)
  }

  /** Bytes in the open region. */
  get length(): number {
    return this.position - this.start
  }

  /** Ends the open region and begins the next behind it. The result shares memory with the chunk. */
  finish(): { buffer: Buffer; start: number; end: number } {
    const region = { buffer: this.buffer, start: this.start, end: this.position }
    this.start = this.position
    return region
  }

  /** Forgets what was written after `length` bytes of the open region. */
  rewind(length: number): void {
    assert(length <= this.length)
    this.position = this.start + length
  }

  ensure(bytes: number): void {
    if (this.position + bytes > this.buffer.length) this.grow(bytes)
  }

  private grow(bytes: number): void {
    const used = this.length
    const needed = used + bytes
    const next = Buffer.allocUnsafeSlow(Math.max(needed * 2, this.chunkBytes))
    this.buffer.copy(next, 0, this.start, this.position)
    this.buffer = next
    this.start = 0
    this.position = used
  }

  u8(value: number): void {
    this.ensure(1)
    this.buffer[this.position++] = value
  }

  zeros(count: number): void {
    this.ensure(count)
    for (let i = 0; i < count; i++) this.buffer[this.position++] = 0
  }

  u32(value: number): void {
    this.ensure(4)
    this.position = this.buffer.writeUInt32LE(value >>> 0, this.position)
  }

  /** A non-negative safe integer in eight bytes. */
  u64(value: number): void {
    this.ensure(8)
    this.position = this.buffer.writeUInt32LE(value % TWO_32, this.position)
    this.position = this.buffer.writeUInt32LE(Math.floor(value / TWO_32), this.position)
  }

  f64(value: number): void {
    this.ensure(8)
    this.position = this.buffer.writeDoubleLE(value, this.position)
  }

  /** LEB128 of a non-negative safe integer: 1 to 8 bytes. */
  varint(value: number): void {
    this.ensure(8)
    this.position = putVarint(this.buffer, this.position, value)
  }

  /** Zigzag LEB128 of a safe integer of either sign. */
  signedVarint(value: number): void {
    // The top of the range would lose a bit when doubled: large magnitudes are written as their own case.
    if (value >= -(2 ** 51) && value < 2 ** 51) this.varint(value >= 0 ? value * 2 : -value * 2 - 1)
    else {
      // 2^52 and 2^52 + 1 cannot come from the branch above; they announce a raw double.
      this.varint(2 ** 52)
      this.f64(value)
    }
  }

  bytes(value: Uint8Array): void {
    const { length } = value
    this.ensure(length)
    if (length <= SHORT_BYTES) {
      const { buffer, position } = this
      for (let i = 0; i < length; i++) buffer[position + i] = value[i]
    } else this.buffer.set(value, this.position)
    this.position += length
  }

  /** The first `length` bytes of `value`: few, so no view and no call into the runtime. */
  bytesPart(value: Uint8Array, length: number): void {
    this.ensure(length)
    const { buffer, position } = this
    for (let i = 0; i < length; i++) buffer[position + i] = value[i]
    this.position += length
  }

  /** Bytes copied from another place without making a view. */
  copy(source: Buffer, start: number, end: number): void {
    this.ensure(end - start)
    source.copy(this.buffer, this.position, start, end)
    this.position += end - start
  }

  /** Length as a varint, then UTF-8. */
  string(value: string): void {
    this.stringPart(value, 0, value.length)
  }

  /** As `string`, of `text[from, to)`. */
  stringPart(text: string, from: number, to: number): void {
    const length = to - from
    if (length <= SHORT_TEXT) {
      // ASCII with a length of one byte (hosts, keys): one pass without a call into the runtime.
      this.ensure(length + 1)
      const { buffer, position } = this
      let i = 0
      for (; i < length; i++) {
        const code = text.charCodeAt(from + i)
        if (code > 0x7f) break
        buffer[position + 1 + i] = code
      }
      if (i === length) {
        buffer[position] = length
        this.position = position + 1 + length
        return
      }
    }
    const value = length === text.length ? text : text.slice(from, to)
    if (length < 0x80) {
      // ASCII, most likely: then the length takes the one byte that was left for it.
      this.ensure(1 + 3 * length)
      const written = this.buffer.utf8Write(value, this.position + 1, 3 * length)
      if (written === length) {
        this.buffer[this.position] = length
        this.position += 1 + length
        return
      }
    }
    const bytes = Buffer.byteLength(value, 'utf8')
    this.varint(bytes)
    this.ensure(bytes)
    this.position += this.buffer.utf8Write(value, this.position, bytes)
  }
}

/** Writes a varint at `at` (8 bytes of room needed) and returns the position behind it. */
export function putVarint(buffer: Uint8Array, at: number, value: number): number {
  let v = value
  let position = at
  while (v >= 0x80) {
    if (v < TWO_32) {
      buffer[position++] = (v & 0x7f) | 0x80
      v >>>= 7
    } else {
      buffer[position++] = (v % 0x80) | 0x80
      v = Math.floor(v / 0x80)
    }
  }
  buffer[position++] = v
  return position
}

declare global {
  interface Buffer {
    /** Present in every supported Node; the types leave it out. */
    utf8Write(value: string, offset?: number, length?: number): number
    utf8Slice(start?: number, end?: number): string
    latin1Slice(start?: number, end?: number): string
    latin1Write(value: string, offset?: number, length?: number): number
  }
}
