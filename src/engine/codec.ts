/** CBOR for the open part of payloads: self-contained messages, copied out of the codec's shared buffers both ways. */
import { Encoder } from 'cbor-x'

// useRecords: false, or a definition in one message would be needed to read the next. structuredClone: cycles survive.
const encoder = new Encoder({ useRecords: false, structuredClone: true })

/** A view into the codec's buffer: copy it before the next call. */
export function encodeValue(value: unknown): Buffer {
  return encoder.encode(value)
}

/** Typed arrays in the result are copies, never views of the input. */
export function decodeValue(bytes: Buffer): unknown {
  return encoder.decode(Buffer.from(bytes))
}
