/**
 * CBOR for payloads. Plain values go straight into the batch and come straight out of it; the rest goes through cbor-x, as
 * self-contained messages, copied out of the codec's shared buffers both ways.
 */
import { Encoder } from 'cbor-x'
import type { ByteWriter } from '../bytes/byte-writer.js'
import { NOT_PLAIN, readPlainValue, writePlainValue } from '../bytes/plain-value.js'
import { unserializableField } from './payload-check.js'

// useRecords: false, or a definition in one message would be needed to read the next. structuredClone: cycles survive.
const encoder = new Encoder({ useRecords: false, structuredClone: true })

/** A view into the codec's buffer: copy it before the next call. */
export function encodeValue(value: unknown): Buffer {
  return encoder.encode(value)
}

/**
 * Writes the value; `path` names it in what is returned when it cannot be written (nothing is, then): the path of the
 * first field the codec would not bring back and what it is, e.g. `meta.onDone: function`.
 */
export function writeValue(writer: ByteWriter, value: unknown, path: string): string | undefined {
  const { length } = writer
  if (writePlainValue(writer, value)) return undefined
  writer.rewind(length)
  const found = unserializableField(value, path)
  if (found === undefined) writer.bytes(encodeValue(value))
  return found
}

/** Typed arrays in the result are copies, never views of the input. Throws what cbor-x throws when it is damaged. */
export function readValue(buffer: Buffer, start: number, end: number): unknown {
  const plain = readPlainValue(buffer, start, end)
  return plain === NOT_PLAIN ? encoder.decode(Buffer.from(buffer.subarray(start, end))) : plain
}

export function decodeValue(bytes: Buffer): unknown {
  return readValue(bytes, 0, bytes.length)
}
