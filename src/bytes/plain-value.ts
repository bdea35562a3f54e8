/**
 * CBOR (RFC 8949) of plain values, written straight into the batch and read straight out of it: text, numbers, booleans,
 * null, undefined, arrays and plain objects. That is what nearly every payload is made of. Anything else is refused, and
 * goes through the general codec, which reads what is written here and writes what is read here.
 *
 * Invariant: what is written here, read here or by the general codec, is deeply equal to the value. So whatever could not
 * come back as it was (class instances, shared or cyclic objects, holes, symbol keys) is refused, never approximated.
 */
import type { ByteWriter } from './byte-writer.js'

const TWO_32 = 2 ** 32
const UNSIGNED = 0x00
const NEGATIVE = 0x20
const TEXT = 0x60
const ARRAY = 0x80
const MAP = 0xa0
const FALSE = 0xf4
const TRUE = 0xf5
const NULL = 0xf6
const UNDEFINED = 0xf7
const FLOAT_64 = 0xfb

/** Up to here a loop is quicker than a call into the runtime. */
const SHORT_TEXT = 40
/** More objects than this in one value are left to the general codec, which finds shared ones without comparing each. */
const OBJECTS_MAX = 12
const objects: (object | undefined)[] = new Array(OBJECTS_MAX).fill(undefined)
let objectCount = 0

/** False, with part of it written perhaps: the value is not plain, or too large to be sure. */
export function writePlainValue(writer: ByteWriter, value: unknown): boolean {
  objectCount = 0
  const isPlain = writeValue(writer, value)
  // Nothing of a caller is kept longer than the call.
  while (objectCount > 0) objects[--objectCount] = undefined
  return isPlain
}

function writeValue(writer: ByteWriter, value: unknown): boolean {
  switch (typeof value) {
    case 'string':
      writeText(writer, value)
      return true
    case 'number':
      writeNumber(writer, value)
      return true
    case 'boolean':
      writer.u8(value ? TRUE : FALSE)
      return true
    case 'undefined':
      writer.u8(UNDEFINED)
      return true
    case 'object':
      if (value === null) {
        writer.u8(NULL)
        return true
      }
      if (objectCount === OBJECTS_MAX || isKnown(value)) return false
      objects[objectCount++] = value
      return Array.isArray(value) ? writeArray(writer, value) : writeObject(writer, value as Record<string, unknown>)
    default:
      return false
  }
}

function isKnown(value: object): boolean {
  for (let i = 0; i < objectCount; i++) if (objects[i] === value) return true
  return false
}

function writeArray(writer: ByteWriter, values: readonly unknown[]): boolean {
  const { length } = values
  writeHead(writer, ARRAY, length)
  for (let i = 0; i < length; i++) {
    const value = values[i]
    // A hole would come back as undefined, an extra property not at all.
    if (value === undefined && !(i in values)) return false
    if (!writeValue(writer, value)) return false
  }
  return Object.keys(values).length === length
}

function writeObject(writer: ByteWriter, value: Record<string, unknown>): boolean {
  const prototype = Object.getPrototypeOf(value)
  if (prototype !== Object.prototype) return false
  // Counted while it is written: a list of keys would have to be made first. Few objects have more than 23 fields.
  writer.u8(MAP)
  const headAt = writer.length - 1
  let count = 0
  for (const key in value) {
    if (key === '__proto__' || ++count > 23) return false
    writeText(writer, key)
    if (!writeValue(writer, value[key])) return false
  }
  writer.buffer[writer.start + headAt] = MAP + count
  return Object.getOwnPropertySymbols(value).length === 0
}

function writeNumber(writer: ByteWriter, value: number): void {
  if (Number.isInteger(value) && !Object.is(value, -0)) {
    if (value >= 0 && value < TWO_32) return writeHead(writer, UNSIGNED, value)
    if (value < 0 && value >= -TWO_32) return writeHead(writer, NEGATIVE, -1 - value)
  }
  writer.ensure(9)
  writer.buffer[writer.position] = FLOAT_64
  writer.position = writer.buffer.writeDoubleBE(value, writer.position + 1)
}

function writeHead(writer: ByteWriter, major: number, count: number): void {
  writer.ensure(5)
  const { buffer } = writer
  if (count < 24) buffer[writer.position++] = major + count
  else if (count < 0x100) {
    buffer[writer.position++] = major + 24
    buffer[writer.position++] = count
  } else if (count < 0x10000) {
    buffer[writer.position++] = major + 25
    buffer[writer.position++] = count >>> 8
    buffer[writer.position++] = count
  } else {
    buffer[writer.position++] = major + 26
    writer.position = buffer.writeUInt32BE(count, writer.position)
  }
}

function writeText(writer: ByteWriter, value: string): void {
  const { length } = value
  if (length <= SHORT_TEXT) {
    writer.ensure(length + 2)
    const { buffer } = writer
    const textAt = writer.position + (length < 24 ? 1 : 2)
    let i = 0
    for (; i < length; i++) {
      const code = value.charCodeAt(i)
      if (code > 0x7f) break
      buffer[textAt + i] = code
    }
    if (i === length) {
      if (length < 24) buffer[writer.position] = TEXT + length
      else {
        buffer[writer.position] = TEXT + 24
        buffer[writer.position + 1] = length
      }
      writer.position = textAt + length
      return
    }
  }
  if (length < 0x100 && length >= 24) {
    // ASCII, most likely: then the length takes the byte that was left for it.
    writer.ensure(2 + 3 * length)
    const written = writer.buffer.utf8Write(value, writer.position + 2, 3 * length)
    if (written === length) {
      writer.buffer[writer.position] = TEXT + 24
      writer.buffer[writer.position + 1] = length
      writer.position += 2 + length
      return
    }
  }
  const bytes = Buffer.byteLength(value, 'utf8')
  writeHead(writer, TEXT, bytes)
  writer.ensure(bytes)
  writer.position += writer.buffer.utf8Write(value, writer.position, bytes)
}

/** What `readPlainValue` gives for anything but a plain value. */
export const NOT_PLAIN: unique symbol = Symbol('not plain')

// Where the reader stands. Reading never re-enters, and an object for it would cost as much as a small value.
let bytes: Buffer = Buffer.alloc(0)
let at = 0
let end = 0
let depth = 0
/** Deeper than this is left to the general codec, as is whatever is damaged: it knows what to say of it. */
const DEPTH_MAX = 64

/** The value in `buffer[from, to)`, or NOT_PLAIN when that is not exactly one plain value. */
export function readPlainValue(buffer: Buffer, from: number, to: number): unknown {
  bytes = buffer
  at = from
  end = to
  depth = 0
  const value = readValue()
  return at === end ? value : NOT_PLAIN
}

function readValue(): unknown {
  if (at >= end) return NOT_PLAIN
  const head = bytes[at++]
  switch (head) {
    case FALSE:
      return false
    case TRUE:
      return true
    case NULL:
      return null
    case UNDEFINED:
      return undefined
    case FLOAT_64:
      at += 8
      return at > end ? NOT_PLAIN : bytes.readDoubleBE(at - 8)
  }
  const major = head & 0xe0
  if (major !== UNSIGNED && major !== NEGATIVE && major !== TEXT && major !== ARRAY && major !== MAP) return NOT_PLAIN
  const count = readCount(head & 0x1f)
  if (count < 0) return NOT_PLAIN
  if (major === TEXT) return readText(count)
  if (major === MAP) return readMap(count)
  if (major === UNSIGNED) return count
  if (major === NEGATIVE) return -1 - count
  return readArray(count)
}

/** -1: cut short, or a width that is not written here. */
function readCount(info: number): number {
  if (info < 24) return info
  if (info === 24) return at < end ? bytes[at++] : -1
  if (info === 25) {
    at += 2
    return at > end ? -1 : (bytes[at - 2] << 8) | bytes[at - 1]
  }
  if (info !== 26) return -1
  at += 4
  return at > end ? -1 : bytes.readUInt32BE(at - 4)
}

function readText(length: number): unknown {
  if (length > end - at) return NOT_PLAIN
  at += length
  return length === 0 ? '' : bytes.utf8Slice(at - length, at)
}

function readArray(count: number): unknown {
  if (count > end - at || ++depth > DEPTH_MAX) return NOT_PLAIN
  const values = new Array<unknown>(count)
  for (let i = 0; i < count; i++) {
    const value = readValue()
    if (value === NOT_PLAIN) return NOT_PLAIN
    values[i] = value
  }
  depth--
  return values
}

function readMap(count: number): unknown {
  if (count > end - at || ++depth > DEPTH_MAX) return NOT_PLAIN
  const object: Record<string, unknown> = {}
  for (let i = 0; i < count; i++) {
    const key = readKey()
    if (key === undefined || key === '__proto__') return NOT_PLAIN
    const value = readValue()
    if (value === NOT_PLAIN) return NOT_PLAIN
    object[key] = value
  }
  depth--
  return object
}

/** Names of fields come again and again: the last one at each place of this table is kept as a string. */
const KEYS_KEPT = 256
const KEY_BYTES_KEPT = 32
const keys: string[] = new Array(KEYS_KEPT).fill('')

function readKey(): string | undefined {
  if (at >= end) return undefined
  const head = bytes[at++]
  if ((head & 0xe0) !== TEXT) return undefined
  const length = readCount(head & 0x1f)
  if (length < 0 || length > end - at) return undefined
  const from = at
  at += length
  if (length === 0 || length > KEY_BYTES_KEPT) return bytes.utf8Slice(from, at)
  const place = (bytes[from] * 31 + bytes[at - 1] * 7 + length) & (KEYS_KEPT - 1)
  const kept = keys[place]
  if (kept.length === length) {
    let i = 0
    while (i < length && kept.charCodeAt(i) === bytes[from + i]) i++
    // Only ASCII is kept, where a character is a byte.
    if (i === length) return kept
  }
  const key = bytes.utf8Slice(from, at)
  if (key.length === length) keys[place] = key
  return key
}
