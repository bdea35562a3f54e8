/**
 * Every number and name that is on disk, written down a second time. This fails when one is changed or given a second
 * meaning; it asks for a new format number instead. Adding one means adding it here and to docs/format.md.
 */
import { expect, test } from 'vitest'
import { FORMAT, FRAME_PAYLOAD_BYTES_MAX, JOB_PAYLOAD_BYTES_MAX } from '../../src/limits.js'
import * as names from '../../src/store/file-names.js'
import * as format from '../../src/store/format.js'
import { SEGMENT_TRAILER_BYTES } from '../../src/store/segment-writer.js'
import { golden } from './fixtures.js'

const constantsOf = (module: object): object =>
  Object.fromEntries(Object.entries(module).filter(([, value]) => typeof value !== 'function'))

test('format.ts', () => {
  expect(constantsOf(format)).toEqual({
    JOURNAL_MAGIC: 'HFJRNL\r\n',
    SEGMENT_MAGIC: 'HFSEGM\r\n',
    FILE_HEADER_BYTES: 64,
    HEADER_CRC_SEED: 0x48464c44,
    FRAME_HEADER_BYTES: 9,
    FRAME_UNWRITTEN: 0,
    FRAME_BATCH: 1,
    FRAME_BLOCK: 2,
    FRAME_FOOTER: 3,
    BATCH_HEADER_BYTES: 32,
    RECORD_ADD: 1,
    RECORD_CARRY: 2,
    RECORD_TAKE: 3,
    RECORD_ACK: 4,
    RECORD_RETRY: 5,
    RECORD_BURY: 6,
    RECORD_REQUEUE: 7,
    RECORD_RELEASE: 8,
    RECORD_DROP: 9,
    RECORD_SEEN: 10,
    RECORD_FORGET: 11,
    RECORD_SET: 12,
    RECORD_UNSET: 13,
    RECORD_SLOT: 14,
    RECORD_OPEN: 15,
    RECORD_DUPLICATES: 16,
    RECORD_CLOSE: 17,
    CARRY_READY: 0,
    CARRY_DELAYED: 1,
    CARRY_LEASED: 2,
    CARRY_DEAD: 3,
    JOB_START: 1,
    JOB_HAS_FINGERPRINT: 2,
    JOB_SEEN: 4,
    FINGERPRINT_BYTES: 16,
  })
})

test('file-names.ts', () => {
  expect(constantsOf(names)).toEqual({
    ACTIVE_FILE: 'active.json',
    INFO_FILE: 'info.json',
    RESERVE_FILE: 'reserve',
    TEMPORARY_SUFFIX: '.tmp',
    DELAYED_BUCKET: 'delayed',
    DEAD_BUCKET: 'dead',
  })
})

test('sizes, and limits that a reader of older files must not lower', () => {
  expect(FORMAT).toBe(1)
  expect(SEGMENT_TRAILER_BYTES).toBe(16)
  expect(FRAME_PAYLOAD_BYTES_MAX).toBeGreaterThanOrEqual(64 * 1024 * 1024)
  expect(JOB_PAYLOAD_BYTES_MAX).toBeGreaterThanOrEqual(16 * 1024 * 1024)
})

test('the golden files begin with these', () => {
  for (const [name, magic] of [
    ['journal.bin', format.JOURNAL_MAGIC],
    ['segment.bin', format.SEGMENT_MAGIC],
  ] as const) {
    const bytes = golden(name)
    expect(bytes.toString('latin1', 0, 8)).toBe(magic)
    expect(bytes.readUInt32LE(8)).toBe(FORMAT)
    expect(bytes.readUInt32LE(12)).toBe(format.FILE_HEADER_BYTES)
  }
})
