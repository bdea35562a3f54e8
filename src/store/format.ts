/**
 * Magic numbers, frame and record types, and the 64-byte header of journals and segments. The numbers are on disk:
 * never change one, add new ones beside it. docs/format.md is the text to this.
 */
import { assert } from '../assert.js'
import { crc32 } from '../bytes/crc32.js'
import { HoldfastError } from '../errors.js'
import { FORMAT } from '../limits.js'

export const JOURNAL_MAGIC = 'HFJRNL\r\n'
export const SEGMENT_MAGIC = 'HFSEGM\r\n'
export const FILE_HEADER_BYTES = 64
/** Seeds the checksums that come before a file's salt is known. */
export const HEADER_CRC_SEED = 0x48464c44

export const FRAME_HEADER_BYTES = 9
export const FRAME_UNWRITTEN = 0
export const FRAME_BATCH = 1
export const FRAME_BLOCK = 2
export const FRAME_FOOTER = 3

/** sequence u64, synced u64, time f64, epoch u32, record count u32 */
export const BATCH_HEADER_BYTES = 32

export const RECORD_ADD = 1
export const RECORD_CARRY = 2
export const RECORD_TAKE = 3
export const RECORD_ACK = 4
export const RECORD_RETRY = 5
export const RECORD_BURY = 6
export const RECORD_REQUEUE = 7
export const RECORD_RELEASE = 8
export const RECORD_DROP = 9
export const RECORD_SEEN = 10
export const RECORD_FORGET = 11
export const RECORD_SET = 12
export const RECORD_UNSET = 13
export const RECORD_SLOT = 14
export const RECORD_OPEN = 15
export const RECORD_DUPLICATES = 16
export const RECORD_CLOSE = 17

export const CARRY_READY = 0
export const CARRY_DELAYED = 1
export const CARRY_LEASED = 2
export const CARRY_DEAD = 3

export const JOB_START = 1
export const JOB_HAS_FINGERPRINT = 2
export const JOB_SEEN = 4
export const FINGERPRINT_BYTES = 16

export interface FileHeader {
  readonly magic: string
  readonly jobId: Buffer
  readonly number: number
  readonly salt: number
  readonly firstSequence: number
  readonly syncedSequence: number
}

export function encodeFileHeader(header: FileHeader): Buffer {
  assert(header.salt !== 0, 'a salt of zero would let zeros pass')
  const bytes = Buffer.alloc(FILE_HEADER_BYTES)
  bytes.write(header.magic, 0, 'latin1')
  bytes.writeUInt32LE(FORMAT, 8)
  bytes.writeUInt32LE(FILE_HEADER_BYTES, 12)
  header.jobId.copy(bytes, 16)
  bytes.writeUInt32LE(header.number, 32)
  bytes.writeUInt32LE(header.salt, 36)
  bytes.writeBigUInt64LE(BigInt(header.firstSequence), 40)
  bytes.writeBigUInt64LE(BigInt(header.syncedSequence), 48)
  bytes.writeUInt32LE(crc32(bytes.subarray(0, 60), HEADER_CRC_SEED), 60)
  return bytes
}

export type HeaderRead =
  | { readonly kind: 'header'; readonly header: FileHeader }
  | { readonly kind: 'newer'; readonly format: number }
  | { readonly kind: 'bad'; readonly reason: string }

/** Says what the bytes say. A checksum that fits is asked for before the format number is believed. */
export function decodeFileHeader(bytes: Buffer, magic: string): HeaderRead {
  if (bytes.length < 16) return { kind: 'bad', reason: `header cut short: ${bytes.length} bytes` }
  const found = bytes.latin1Slice(0, 8)
  if (found !== magic) return { kind: 'bad', reason: `magic is ${JSON.stringify(found)}, not ${JSON.stringify(magic)}` }
  const format = bytes.readUInt32LE(8)
  const headerBytes = bytes.readUInt32LE(12)
  if (headerBytes < FILE_HEADER_BYTES || headerBytes > 4096) {
    return { kind: 'bad', reason: `header claims ${headerBytes} bytes, expected ${FILE_HEADER_BYTES}` }
  }
  if (bytes.length < headerBytes) return { kind: 'bad', reason: `header cut short: ${bytes.length} bytes` }
  const expected = bytes.readUInt32LE(headerBytes - 4)
  if (crc32(bytes.subarray(0, headerBytes - 4), HEADER_CRC_SEED) !== expected) {
    return { kind: 'bad', reason: 'header checksum mismatch' }
  }
  if (format > FORMAT) return { kind: 'newer', format }
  if (headerBytes !== FILE_HEADER_BYTES) return { kind: 'bad', reason: `header claims ${headerBytes} bytes` }
  const firstSequence = bytes.readBigUInt64LE(40)
  const syncedSequence = bytes.readBigUInt64LE(48)
  return {
    kind: 'header',
    header: {
      magic,
      jobId: Buffer.from(bytes.subarray(16, 32)),
      number: bytes.readUInt32LE(32),
      salt: bytes.readUInt32LE(36),
      firstSequence: Number(firstSequence),
      syncedSequence: Number(syncedSequence),
    },
  }
}

export function unsupportedFormat(path: string, format: unknown): HoldfastError {
  return new HoldfastError(
    'HOLDFAST_UNSUPPORTED_FORMAT',
    `${path} has format ${format}; this version reads up to ${FORMAT}. Nothing was changed.`,
    { path },
  )
}

export function corrupt(path: string, message: string, offset?: number, cause?: unknown): HoldfastError {
  const where = offset === undefined ? path : `${path} at ${offset}`
  return new HoldfastError('HOLDFAST_CORRUPT', `${where}: ${message} (holdfast repair can salvage the rest)`, {
    path,
    ...(offset === undefined ? {} : { offset }),
    ...(cause === undefined ? {} : { cause }),
  })
}
