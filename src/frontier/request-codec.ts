/**
 * The payload of a request: what every request has stands positionally, only the open part (headers, meta) is CBOR.
 * Smaller and quicker than any map, and a request that is just a URL is just its URL.
 */

import { ByteReader, DecodeError } from '../bytes/byte-reader.js'
import type { ByteWriter } from '../bytes/byte-writer.js'
import { readValue, writeValue } from '../engine/codec.js'

export interface RequestParts {
  url: string
  method: string
  body: Uint8Array | undefined
  headers: Record<string, string> | undefined
  meta: Record<string, unknown> | undefined
}

const HAS_METHOD = 1
const HAS_BODY = 2
const HAS_OPEN_PART = 4

/** Returns what `writeValue` returns: when a field cannot be written, what was written before it is the caller's to undo. */
export function writeRequest(writer: ByteWriter, request: RequestParts): string | undefined {
  const { url, method, body, headers, meta } = request
  const open = headers !== undefined || meta !== undefined
  writer.u8((method === 'GET' ? 0 : HAS_METHOD) | (body === undefined ? 0 : HAS_BODY) | (open ? HAS_OPEN_PART : 0))
  writer.string(url)
  if (method !== 'GET') writer.string(method)
  if (body !== undefined) {
    writer.varint(body.length)
    writer.bytes(body)
  }
  if (!open) return undefined
  const part = headers === undefined ? { m: meta } : meta === undefined ? { h: headers } : { h: headers, m: meta }
  const found = writeValue(writer, part, '')
  // Named as the caller knows it, not as it is written.
  return found === undefined ? undefined : found.replace(/^\.[hm]/, (name) => (name === '.h' ? 'headers' : 'meta'))
}

/** Throws DecodeError, or what the codec throws. */
export function readRequest(buffer: Buffer, start: number, end: number): RequestParts {
  const reader = new ByteReader(buffer, start, end)
  const shape = reader.u8()
  if (shape > (HAS_METHOD | HAS_BODY | HAS_OPEN_PART)) throw new DecodeError(`unknown request shape ${shape}`, start)
  const url = reader.string()
  const method = shape & HAS_METHOD ? reader.string() : 'GET'
  const body = shape & HAS_BODY ? new Uint8Array(reader.bytes(reader.varint())) : undefined
  if ((shape & HAS_OPEN_PART) === 0) {
    if (reader.left > 0) throw new DecodeError(`${reader.left} bytes behind the request`, reader.position)
    return { url, method, body, headers: undefined, meta: undefined }
  }
  const open = readValue(buffer, reader.position, end)
  if (typeof open !== 'object' || open === null) throw new DecodeError('the open part is not an object', start)
  const { h, m } = open as { h?: Record<string, string>; m?: Record<string, unknown> }
  return { url, method, body, headers: h, meta: m }
}
