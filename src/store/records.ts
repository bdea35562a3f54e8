/**
 * The records of a journal batch, one function each to write, one visitor to read. Writing and reading stand side by side
 * so that they cannot drift apart; docs/format.md has the table.
 */
import { ByteReader, DecodeError } from '../bytes/byte-reader.js'
import type { ByteWriter } from '../bytes/byte-writer.js'
import * as F from './format.js'
import { beginFrame } from './frame.js'
import { type JobIdentity, writeJobHeader } from './job-record.js'

/** Where a job lies in a sealed segment; `segment` 0 means nowhere. */
export interface Home {
  segment: number
  ordinal: number
}

export interface CarryFields {
  state: number
  segment: number
  ordinal: number
  attempt: number
  failures: number
  due: number
  reason: string
}

function writeHome(writer: ByteWriter, segment: number, ordinal: number): void {
  writer.varint(segment)
  if (segment !== 0) writer.varint(ordinal)
}

/** Begins a batch in the writer's open region: leaves room for the headers, which the journal fills in. */
export function beginBatch(writer: ByteWriter): void {
  beginFrame(writer)
  writer.ensure(F.BATCH_HEADER_BYTES)
  writer.position += F.BATCH_HEADER_BYTES
}

/** The length of an added job is a varint of this width whatever it is: it is known only once the payload is written. */
const ADD_LENGTH_BYTES = 4

/** All of an add up to the payload, which the caller writes behind it. Returns the offset at which the job record begins. */
export function writeAddHeader(
  writer: ByteWriter,
  due: number,
  flags: number,
  id: number,
  addedAt: number,
  job: JobIdentity,
): number {
  writer.ensure(1 + 8 + ADD_LENGTH_BYTES)
  writer.buffer[writer.position++] = F.RECORD_ADD
  writer.varint(due)
  writer.position += ADD_LENGTH_BYTES
  const start = writer.length
  writeJobHeader(writer, flags, id, job.priority, addedAt, job.slotText, job.fingerprint, job.slotStart, job.slotEnd)
  return start
}

export function writeAddLength(writer: ByteWriter, recordStart: number, length: number): void {
  const at = writer.start + recordStart - ADD_LENGTH_BYTES
  const { buffer } = writer
  buffer[at] = (length & 0x7f) | 0x80
  buffer[at + 1] = ((length >>> 7) & 0x7f) | 0x80
  buffer[at + 2] = ((length >>> 14) & 0x7f) | 0x80
  buffer[at + 3] = (length >>> 21) & 0x7f
}

export function writeCarry(writer: ByteWriter, fields: CarryFields, buffer: Buffer, start: number, end: number): void {
  writer.u8(F.RECORD_CARRY)
  writer.u8(fields.state)
  writeHome(writer, fields.segment, fields.ordinal)
  writer.varint(fields.attempt)
  writer.varint(fields.failures)
  writer.varint(fields.due)
  writer.string(fields.reason)
  writer.varint(end - start)
  writer.copy(buffer, start, end)
}

/** take, ack, requeue and drop; take adds the attempt. */
export function writeById(writer: ByteWriter, type: number, id: number, segment: number, ordinal: number): void {
  writer.u8(type)
  writer.varint(id)
  writeHome(writer, segment, ordinal)
}

/** Everything a batch can hold, in the order it was written. `home` and `fields` are reused: copy what you keep. */
export interface RecordVisitor {
  add(due: number, buffer: Buffer, start: number, end: number): void
  carry(fields: CarryFields, buffer: Buffer, start: number, end: number): void
  take(id: number, home: Home, attempt: number): void
  ack(id: number, home: Home): void
  retry(id: number, home: Home, attempt: number, failures: number, due: number, reason: string): void
  bury(id: number, home: Home, attempt: number, failures: number, reason: string): void
  requeue(id: number, home: Home): void
  release(id: number, home: Home, attempt: number, expired: boolean): void
  drop(id: number, home: Home): void
  seen(buffer: Buffer, at: number): void
  forget(buffer: Buffer, at: number): void
  set(key: string, value: Buffer): void
  unset(key: string): void
  slot(name: string, notBefore: number): void
  open(recovered: number): void
  duplicates(count: number): void
  close(): void
}

export interface BatchHeader {
  sequence: number
  synced: number
  time: number
  epoch: number
  records: number
}

export function readBatchHeader(buffer: Buffer, start: number, end: number): BatchHeader {
  const reader = new ByteReader(buffer, start, end)
  return {
    sequence: reader.u64(),
    synced: reader.u64(),
    time: reader.f64(),
    epoch: reader.u32(),
    records: reader.u32(),
  }
}

/** Hands every record of the batch in `buffer[start, end)` to `visitor`. Throws DecodeError. */
export function visitBatch(buffer: Buffer, start: number, end: number, visitor: RecordVisitor): void {
  const header = readBatchHeader(buffer, start, end)
  const reader = new ByteReader(buffer, start + F.BATCH_HEADER_BYTES, end)
  const home: Home = { segment: 0, ordinal: 0 }
  for (let i = 0; i < header.records; i++) visitRecord(reader, home, visitor)
  if (reader.left > 0) throw new DecodeError(`${reader.left} bytes behind the last record`, reader.position)
}

function readHome(reader: ByteReader, home: Home): Home {
  home.segment = reader.varint()
  home.ordinal = home.segment === 0 ? 0 : reader.varint()
  return home
}

function visitRecord(reader: ByteReader, home: Home, visitor: RecordVisitor): void {
  const at = reader.position
  const type = reader.u8()
  switch (type) {
    case F.RECORD_ADD: {
      const due = reader.varint()
      const length = reader.varint()
      const start = reader.position
      reader.skip(length)
      return visitor.add(due, reader.buffer, start, reader.position)
    }
    case F.RECORD_CARRY: {
      const state = reader.u8()
      if (state > F.CARRY_DEAD) throw new DecodeError(`unknown carried state ${state}`, at)
      readHome(reader, home)
      const attempt = reader.varint()
      const failures = reader.varint()
      const due = reader.varint()
      const reason = reader.string()
      const length = reader.varint()
      const start = reader.position
      reader.skip(length)
      const fields = { state, segment: home.segment, ordinal: home.ordinal, attempt, failures, due, reason }
      return visitor.carry(fields, reader.buffer, start, reader.position)
    }
    case F.RECORD_TAKE:
      return visitor.take(reader.varint(), readHome(reader, home), reader.varint())
    case F.RECORD_ACK:
      return visitor.ack(reader.varint(), readHome(reader, home))
    case F.RECORD_RETRY: {
      const id = reader.varint()
      readHome(reader, home)
      return visitor.retry(id, home, reader.varint(), reader.varint(), reader.varint(), reader.string())
    }
    case F.RECORD_BURY: {
      const id = reader.varint()
      readHome(reader, home)
      return visitor.bury(id, home, reader.varint(), reader.varint(), reader.string())
    }
    case F.RECORD_REQUEUE:
      return visitor.requeue(reader.varint(), readHome(reader, home))
    case F.RECORD_RELEASE: {
      const id = reader.varint()
      readHome(reader, home)
      const attempt = reader.varint()
      const why = reader.u8()
      if (why > 1) throw new DecodeError(`unknown release reason ${why}`, at)
      return visitor.release(id, home, attempt, why === 1)
    }
    case F.RECORD_DROP:
      return visitor.drop(reader.varint(), readHome(reader, home))
    case F.RECORD_SEEN:
    case F.RECORD_FORGET: {
      const position = reader.position
      reader.skip(F.FINGERPRINT_BYTES)
      return type === F.RECORD_SEEN ? visitor.seen(reader.buffer, position) : visitor.forget(reader.buffer, position)
    }
    case F.RECORD_SET: {
      const key = reader.string()
      return visitor.set(key, reader.bytes(reader.varint()))
    }
    case F.RECORD_UNSET:
      return visitor.unset(reader.string())
    case F.RECORD_SLOT: {
      const name = reader.string()
      return visitor.slot(name, reader.varint())
    }
    case F.RECORD_OPEN:
      return visitor.open(reader.varint())
    case F.RECORD_DUPLICATES:
      return visitor.duplicates(reader.varint())
    case F.RECORD_CLOSE:
      return visitor.close()
    default:
      throw new DecodeError(`unknown record type ${type}`, at)
  }
}
