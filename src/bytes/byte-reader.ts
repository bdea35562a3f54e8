/**
 * Reads what `ByteWriter` wrote, checking every bound: damaged bytes give a `DecodeError`, never a wild read, a hang or a
 * large allocation. Who reads promised bytes turns it into HOLDFAST_CORRUPT with the file's name.
 */
const TWO_32 = 2 ** 32

/** These bytes are not what they should be. Carries the offset inside the buffer that was read. */
export class DecodeError extends Error {
  readonly offset: number
  constructor(message: string, offset: number) {
    super(message)
    this.name = 'DecodeError'
    this.offset = offset
  }
}

export class ByteReader {
  buffer: Buffer
  position: number
  end: number

  constructor(buffer: Buffer, position = 0, end = buffer.length) {
    this.buffer = buffer
    this.position = position
    this.end = end
  }

  get left(): number {
    return this.end - this.position
  }

  private need(bytes: number): void {
    if (bytes > this.end - this.position) {
      throw new DecodeError(`${bytes} bytes wanted, ${this.end - this.position} left`, this.position)
    }
  }

  u8(): number {
    this.need(1)
    return this.buffer[this.position++]
  }

  u32(): number {
    this.need(4)
    const value = this.buffer.readUInt32LE(this.position)
    this.position += 4
    return value
  }

  u64(): number {
    this.need(8)
    const low = this.buffer.readUInt32LE(this.position)
    const high = this.buffer.readUInt32LE(this.position + 4)
    if (high >= 0x200000) throw new DecodeError('number beyond 2^53', this.position)
    this.position += 8
    return high * TWO_32 + low
  }

  f64(): number {
    this.need(8)
    const value = this.buffer.readDoubleLE(this.position)
    this.position += 8
    return value
  }

  varint(): number {
    const { buffer, end } = this
    let position = this.position
    if (position >= end) throw new DecodeError('varint cut short', position)
    let byte = buffer[position++]
    if (byte < 0x80) {
      this.position = position
      return byte
    }
    let value = byte & 0x7f
    let scale = 0x80
    for (;;) {
      if (position >= end) throw new DecodeError('varint cut short', this.position)
      byte = buffer[position++]
      value += (byte & 0x7f) * scale
      if (byte < 0x80) break
      scale *= 0x80
      if (scale > 2 ** 49) throw new DecodeError('varint too long', this.position)
    }
    if (value > Number.MAX_SAFE_INTEGER) throw new DecodeError('number beyond 2^53', this.position)
    this.position = position
    return value
  }

  signedVarint(): number {
    const value = this.varint()
    if (value < 2 ** 52) return value % 2 === 0 ? value / 2 : -(value + 1) / 2
    const at = this.position
    const raw = this.f64()
    if (value !== 2 ** 52 || !Number.isSafeInteger(raw)) throw new DecodeError('not a safe integer', at)
    return raw
  }

  string(): string {
    const length = this.varint()
    this.need(length)
    const value = this.buffer.utf8Slice(this.position, this.position + length)
    this.position += length
    return value
  }

  /** A view, not a copy. */
  bytes(length: number): Buffer {
    this.need(length)
    const value = this.buffer.subarray(this.position, this.position + length)
    this.position += length
    return value
  }

  skip(length: number): void {
    this.need(length)
    this.position += length
  }
}
