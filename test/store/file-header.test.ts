/** The 64 bytes in front of journals and segments: damage and a newer format are told apart, whatever the newer header is. */
import { describe, expect, test } from 'vitest'
import { crc32 } from '../../src/bytes/crc32.js'
import {
  corrupt,
  decodeFileHeader,
  encodeFileHeader,
  FILE_HEADER_BYTES,
  type FileHeader,
  HEADER_CRC_SEED,
  JOURNAL_MAGIC,
  SEGMENT_MAGIC,
  unsupportedFormat,
} from '../../src/store/format.js'
import { flipped, JOB_ID, SALT } from './support.js'

const header: FileHeader = {
  magic: JOURNAL_MAGIC,
  jobId: JOB_ID,
  number: 0xfffffffe,
  salt: SALT,
  firstSequence: Number.MAX_SAFE_INTEGER,
  syncedSequence: 2 ** 40,
}
const bytes = encodeFileHeader(header)

/** A header of another format or length that checks out. */
function foreign(format: number, headerBytes: number): Buffer {
  const out = Buffer.alloc(Math.max(headerBytes, FILE_HEADER_BYTES))
  bytes.copy(out, 0, 0, 60)
  out.writeUInt32LE(format, 8)
  out.writeUInt32LE(headerBytes, 12)
  out.writeUInt32LE(crc32(out.subarray(0, headerBytes - 4), HEADER_CRC_SEED), headerBytes - 4)
  return out
}

test('comes back as it was', () => {
  expect(bytes).toHaveLength(FILE_HEADER_BYTES)
  expect(decodeFileHeader(bytes, JOURNAL_MAGIC)).toEqual({ kind: 'header', header })
})

test('what follows it does not matter', () => {
  expect(decodeFileHeader(Buffer.concat([bytes, Buffer.alloc(100, 7)]), JOURNAL_MAGIC).kind).toBe('header')
})

test('the job id is a copy: the buffer it was read from may be used again', () => {
  const buffer = Buffer.from(bytes)
  const read = decodeFileHeader(buffer, JOURNAL_MAGIC)
  buffer.fill(0)
  expect(read.kind === 'header' && read.header.jobId.equals(JOB_ID)).toBe(true)
})

describe('damage', () => {
  test('any flipped bit', () => {
    for (let bit = 0; bit < bytes.length * 8; bit++) {
      expect(decodeFileHeader(flipped(bytes, bit), JOURNAL_MAGIC).kind, `bit ${bit}`).toBe('bad')
    }
  })

  test('any length that is too short', () => {
    for (let length = 0; length < bytes.length; length++) {
      const read = decodeFileHeader(bytes.subarray(0, length), JOURNAL_MAGIC)
      expect(read).toEqual({ kind: 'bad', reason: `header cut short: ${length} bytes` })
    }
  })

  test('zeros', () => {
    expect(decodeFileHeader(Buffer.alloc(4096), JOURNAL_MAGIC).kind).toBe('bad')
  })

  test('the header of another kind of file', () => {
    expect(decodeFileHeader(bytes, SEGMENT_MAGIC)).toEqual({
      kind: 'bad',
      reason: 'magic is "HFJRNL\\r\\n", not "HFSEGM\\r\\n"',
    })
  })

  test('a higher format number under a checksum that does not fit is damage, not a newer format', () => {
    const damaged = Buffer.from(bytes)
    damaged.writeUInt32LE(2, 8)
    expect(decodeFileHeader(damaged, JOURNAL_MAGIC).kind).toBe('bad')
  })

  test('a header of format 1 that is longer than format 1 says', () => {
    expect(decodeFileHeader(foreign(1, 128), JOURNAL_MAGIC).kind).toBe('bad')
  })

  test('a length that no header has, however much there is to read', () => {
    for (const headerBytes of [0, 60, 4097, 0xffffffff]) {
      const damaged = Buffer.concat([bytes, Buffer.alloc(8192)])
      damaged.writeUInt32LE(headerBytes, 12)
      expect(decodeFileHeader(damaged, JOURNAL_MAGIC).kind).toBe('bad')
    }
  })
})

test('a newer format that checks out is told as such, whatever the length of its header', () => {
  for (const headerBytes of [64, 128, 4096]) {
    expect(decodeFileHeader(foreign(2, headerBytes), JOURNAL_MAGIC)).toEqual({ kind: 'newer', format: 2 })
  }
})

test('a salt of zero is never written', () => {
  expect(() => encodeFileHeader({ ...header, salt: 0 })).toThrow()
})

test('errors say where, and carry it', () => {
  expect(corrupt('/job/x', 'torn', 17)).toMatchObject({ code: 'HOLDFAST_CORRUPT', path: '/job/x', offset: 17 })
  expect(corrupt('/job/x', 'torn', 17).message).toContain('/job/x at 17: torn')
  expect(corrupt('/job/x', 'gone').offset).toBeUndefined()
  expect(unsupportedFormat('/job/x', 2)).toMatchObject({ code: 'HOLDFAST_UNSUPPORTED_FORMAT', path: '/job/x' })
  expect(unsupportedFormat('/job/x', 2).message).toContain('format 2; this version reads up to 1')
})
