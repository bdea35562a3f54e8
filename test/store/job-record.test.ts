/** The part of a job that never changes: written once, copied byte by byte, read from wherever it lies. */
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { readJob, writeJob } from '../../fixtures/formats/journal-fixture.js'
import { DecodeError } from '../../src/bytes/byte-reader.js'
import { ByteWriter } from '../../src/bytes/byte-writer.js'
import { JOB_HAS_FINGERPRINT, JOB_START } from '../../src/store/format.js'
import { emptyJobHeader, readJobHeader, writeJobHeader } from '../../src/store/job-record.js'
import { jobOf } from './arbitraries.js'

function header(fingerprint: Uint8Array | undefined): Buffer {
  const writer = new ByteWriter(64)
  writeJobHeader(writer, JOB_START, 300, -5, 1000, 'slot', fingerprint)
  return Buffer.from(writer.buffer.subarray(writer.start, writer.position))
}

test('any job comes back, also from the middle of a buffer', () => {
  fc.assert(
    fc.property(jobOf, fc.nat(20), (job, before) => {
      const writer = new ByteWriter(64)
      writer.bytes(new Uint8Array(before).fill(0xff))
      writeJob(writer, job)
      const end = writer.position
      writer.u32(0xffffffff)
      expect(readJob(writer.buffer, writer.start + before, writer.start + end)).toEqual(job)
    }),
  )
})

test('the payload begins behind the fingerprint, or behind the slot when there is none', () => {
  const into = emptyJobHeader()
  const key = new Uint8Array(16).fill(9)
  const withKey = header(key)
  expect(readJobHeader(withKey, 0, withKey.length, into)).toEqual({
    flags: JOB_START | JOB_HAS_FINGERPRINT,
    id: 300,
    priority: -5,
    addedAt: 1000,
    slotAt: withKey.length - 20,
    slotEnd: withKey.length - 16,
    fingerprintAt: withKey.length - 16,
    payloadAt: withKey.length,
  })
  const without = header(undefined)
  // The same object again: nothing of the job before stays in it.
  expect(readJobHeader(without, 0, without.length, into)).toMatchObject({
    flags: JOB_START,
    fingerprintAt: -1,
    payloadAt: without.length,
  })
})

test('cut at any byte', () => {
  const bytes = header(new Uint8Array(16))
  for (let end = 0; end < bytes.length; end++) {
    expect(() => readJobHeader(bytes, 0, end, emptyJobHeader())).toThrow(DecodeError)
  }
})

test('flags that no version writes', () => {
  const bytes = header(undefined)
  for (const flags of [8, 16, 0x80, 0xff]) {
    bytes[0] = flags
    expect(() => readJobHeader(bytes, 0, bytes.length, emptyJobHeader())).toThrow(`unknown job flags ${flags}`)
  }
})
