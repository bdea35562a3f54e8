/**
 * The bytes of one job that never change: written once into the journal's batch, copied as they are into segments and new
 * journals. What changes (attempts, delay, reason) stands beside them.
 */
import { ByteReader, DecodeError } from '../bytes/byte-reader.js'
import type { ByteWriter } from '../bytes/byte-writer.js'
import { FINGERPRINT_BYTES, JOB_HAS_FINGERPRINT, JOB_SEEN, JOB_START } from './format.js'

export interface JobHeader {
  flags: number
  id: number
  priority: number
  addedAt: number
  slot: string
  /** Offset of the 16 bytes in the buffer, or -1. */
  fingerprintAt: number
  payloadAt: number
}

/** Writes all but the payload, which the caller writes behind it. */
export function writeJobHeader(
  writer: ByteWriter,
  flags: number,
  id: number,
  priority: number,
  addedAt: number,
  slot: string,
  fingerprint: Uint8Array | undefined,
): void {
  writer.u8(fingerprint === undefined ? flags : flags | JOB_HAS_FINGERPRINT)
  writer.varint(id)
  writer.signedVarint(priority)
  writer.varint(addedAt)
  writer.string(slot)
  if (fingerprint !== undefined) writer.bytes(fingerprint)
}

/** Reused: a header is read for every job that is replayed or taken, and reading never re-enters. */
const READER = new ByteReader(Buffer.alloc(0))

const KNOWN_FLAGS = JOB_START | JOB_HAS_FINGERPRINT | JOB_SEEN

/** Fills `into` from the record in `buffer[start, end)`. Throws DecodeError. */
export function readJobHeader(buffer: Buffer, start: number, end: number, into: JobHeader): JobHeader {
  const reader = READER
  reader.buffer = buffer
  reader.position = start
  reader.end = end
  into.flags = reader.u8()
  if ((into.flags & ~KNOWN_FLAGS) !== 0) throw new DecodeError(`unknown job flags ${into.flags}`, start)
  into.id = reader.varint()
  into.priority = reader.signedVarint()
  into.addedAt = reader.varint()
  into.slot = reader.string()
  if (into.flags & JOB_HAS_FINGERPRINT) {
    into.fingerprintAt = reader.position
    reader.skip(FINGERPRINT_BYTES)
  } else into.fingerprintAt = -1
  into.payloadAt = reader.position
  return into
}

export function emptyJobHeader(): JobHeader {
  return { flags: 0, id: 0, priority: 0, addedAt: 0, slot: '', fingerprintAt: -1, payloadAt: 0 }
}

/** Added-at of a job record, without decoding the rest. */
export function readAddedAt(buffer: Buffer, start: number, end: number): number {
  const reader = new ByteReader(buffer, start, end)
  reader.u8()
  reader.varint()
  reader.signedVarint()
  return reader.varint()
}
