/** The records of a batch: every one comes back, alone and in company, and a batch that is not whole is never half believed. */
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import {
  batchRegion,
  JOURNAL,
  type RecordMeaning,
  readRecords,
  writeRecord,
} from '../../fixtures/formats/journal-fixture.js'
import { DecodeError } from '../../src/bytes/byte-reader.js'
import { ByteWriter } from '../../src/bytes/byte-writer.js'
import { BATCH_HEADER_BYTES, FRAME_HEADER_BYTES } from '../../src/store/format.js'
import { readBatchHeader } from '../../src/store/records.js'
import { recordOf } from './arbitraries.js'

/** A batch as the reader gets it: without the frame's header, with the batch's. */
function batch(records: readonly RecordMeaning[], count = records.length): Buffer {
  const { buffer, start, end } = batchRegion(records)
  const bytes = Buffer.from(buffer.subarray(start + FRAME_HEADER_BYTES, end))
  bytes.writeBigUInt64LE(7n, 0)
  bytes.writeBigUInt64LE(5n, 8)
  bytes.writeDoubleLE(1234.5, 16)
  bytes.writeUInt32LE(9, 24)
  bytes.writeUInt32LE(count, 28)
  return bytes
}

const read = (bytes: Buffer): RecordMeaning[] => readRecords(bytes, 0, bytes.length)
const mixed = JOURNAL.batches[JOURNAL.batches.length - 1].records

test('the header of a batch', () => {
  expect(readBatchHeader(batch(mixed), 0, BATCH_HEADER_BYTES)).toEqual({
    sequence: 7,
    synced: 5,
    time: 1234.5,
    epoch: 9,
    records: mixed.length,
  })
  for (let end = 0; end < BATCH_HEADER_BYTES; end++) {
    expect(() => readBatchHeader(batch(mixed), 0, end)).toThrow(DecodeError)
  }
})

test('any records come back, in their order', () => {
  fc.assert(
    fc.property(fc.array(recordOf, { maxLength: 12 }), (records) => {
      expect(read(batch(records))).toEqual(records)
    }),
  )
})

describe('a batch that does not fit its count', () => {
  test('fewer records than bytes', () => {
    expect(() => read(batch(mixed, mixed.length - 1))).toThrow(/bytes? behind the last record/)
  })

  test('more records than bytes', () => {
    expect(() => read(batch(mixed, mixed.length + 1))).toThrow(DecodeError)
    expect(() => read(batch(mixed, 0xffffffff))).toThrow(DecodeError)
  })
})

test('cut at any byte', () => {
  const bytes = batch(mixed)
  for (let end = BATCH_HEADER_BYTES; end < bytes.length; end++) {
    expect(() => readRecords(bytes, 0, end), `${end}`).toThrow(DecodeError)
  }
})

describe('what no version writes', () => {
  const spoiled = (record: RecordMeaning, at: number, byte: number): Buffer => {
    const bytes = batch([record])
    bytes[BATCH_HEADER_BYTES + at] = byte
    return bytes
  }

  test('unknown types', () => {
    for (const type of [0, 18, 99, 255]) {
      expect(() => read(spoiled({ type: 'close' }, 0, type))).toThrow(`unknown record type ${type}`)
    }
  })

  test('an unknown state of a carried job', () => {
    const carry = mixed.find((record) => record.type === 'carry') as RecordMeaning
    for (const state of [4, 255]) expect(() => read(spoiled(carry, 1, state))).toThrow('unknown carried state')
  })

  test('an unknown reason of a release', () => {
    const release: RecordMeaning = { type: 'release', id: 1, segment: 0, ordinal: 0, attempt: 1, expired: false }
    expect(() => read(spoiled(release, 4, 2))).toThrow('unknown release reason 2')
  })
})

test('no home has no ordinal: three bytes for an ack of a job that only the journal has', () => {
  const writer = new ByteWriter(64)
  writeRecord(writer, { type: 'ack', id: 1, segment: 0, ordinal: 0 })
  expect(writer.length).toBe(3)
})
