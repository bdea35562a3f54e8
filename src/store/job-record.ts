/**
 * The bytes of one job that never change: written once into the journal's batch, copied as they are into segments and new
 * journals. What changes (attempts, delay, reason) stands beside them.
 */
import { ByteReader, DecodeError } from '../bytes/byte-reader.js'
import { type ByteWriter, putVarint } from '../bytes/byte-writer.js'
import { FINGERPRINT_BYTES, JOB_HAS_FINGERPRINT, JOB_SEEN, JOB_START } from './format.js'

export interface JobHeader {
  flags: number
  id: number
  priority: number
  addedAt: number
  /** The slot's name: UTF-8 in [slotAt, slotEnd) of the buffer. Not made a string: most often nobody asks. */
  slotAt: number
  slotEnd: number
  /** Offset of the 16 bytes in the buffer, or -1. */
  fingerprintAt: number
  payloadAt: number
}

/** What of a job is written before its payload, besides its number. */
export interface JobIdentity {
  readonly priority: number
  /** The slot's name is `slotText[slotStart, slotEnd)`: a host is a part of its URL, and no string is made of it. */
  readonly slotText: string
  readonly slotStart: number
  readonly slotEnd: number
  /** 16 bytes or more, of which 16 count; undefined: no identity. */
  readonly fingerprint: Uint8Array | undefined
}

/** Flags, two varints of at most eight bytes, the longer form of a priority, a length of five, the fingerprint. */
const HEADER_BYTES_MAX = 1 + 2 * 8 + 16 + 5 + FINGERPRINT_BYTES

/** Writes all but the payload, which the caller writes behind it. The slot's name is `slot[slotStart, slotEnd)`. */
export function writeJobHeader(
  writer: ByteWriter,
  flags: number,
  id: number,
  priority: number,
  addedAt: number,
  slot: string,
  fingerprint: Uint8Array | undefined,
  slotStart = 0,
  slotEnd: number = slot.length,
): void {
  writer.ensure(HEADER_BYTES_MAX + 3 * (slotEnd - slotStart))
  writer.buffer[writer.position++] = fingerprint === undefined ? flags : flags | JOB_HAS_FINGERPRINT
  writer.position = putVarint(writer.buffer, writer.position, id)
  writer.signedVarint(priority)
  writer.position = putVarint(writer.buffer, writer.position, addedAt)
  writer.stringPart(slot, slotStart, slotEnd)
  if (fingerprint !== undefined) writer.bytesPart(fingerprint, FINGERPRINT_BYTES)
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
  const slotBytes = reader.varint()
  into.slotAt = reader.position
  reader.skip(slotBytes)
  into.slotEnd = reader.position
  if (into.flags & JOB_HAS_FINGERPRINT) {
    into.fingerprintAt = reader.position
    reader.skip(FINGERPRINT_BYTES)
  } else into.fingerprintAt = -1
  into.payloadAt = reader.position
  return into
}

export function emptyJobHeader(): JobHeader {
  return { flags: 0, id: 0, priority: 0, addedAt: 0, slotAt: 0, slotEnd: 0, fingerprintAt: -1, payloadAt: 0 }
}

/** Added-at of a job record, without decoding the rest. */
export function readAddedAt(buffer: Buffer, start: number, end: number): number {
  const reader = READER
  reader.buffer = buffer
  reader.position = start + 1
  reader.end = end
  reader.varint()
  reader.signedVarint()
  return reader.varint()
}
