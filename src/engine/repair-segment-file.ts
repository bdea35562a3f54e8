/**
 * Reads what is left of one segment: block after block from the header on, past what is damaged, with or without a footer.
 * Each block names its first ordinal, so records keep their numbers whatever is gone before them.
 */
import { ByteReader, DecodeError } from '../bytes/byte-reader.js'
import { crc32 } from '../bytes/crc32.js'
import type { FileSystem } from '../env/file-system.js'
import type { SegmentInfo } from '../store/bucket-info.js'
import {
  decodeFileHeader,
  FILE_HEADER_BYTES,
  FRAME_BLOCK,
  FRAME_FOOTER,
  SEGMENT_MAGIC,
  unsupportedFormat,
} from '../store/format.js'
import { readSegmentIndex } from '../store/segment-index.js'
import { SEGMENT_TRAILER_BYTES } from '../store/segment-writer.js'
import { type Findings, type RepairProblem, readTolerant } from './repair-findings.js'
import { findSalt, type Piece, readPieces } from './repair-frames.js'

const TYPES = [FRAME_BLOCK, FRAME_FOOTER]

export interface FoundRecord {
  readonly ordinal: number
  readonly attempt: number
  readonly failures: number
  readonly due: number
  readonly reason: string
  /** The job record. */
  readonly buffer: Buffer
  readonly start: number
  readonly end: number
}

/** What is known once a segment was read to its end. */
export interface SegmentSummary {
  missing: boolean
  /** Records it had, as far as anything tells. */
  records: number
  /** The last damage found in it, to which what it cost can be added. */
  wound: RepairProblem | undefined
}

export const newSummary = (): SegmentSummary => ({ missing: false, records: 0, wound: undefined })

/** Every record that checks out. `summary` is filled in on the way. */
export function* readSegment(
  files: FileSystem,
  path: string,
  info: SegmentInfo | undefined,
  jobId: Buffer,
  findings: Findings,
  summary: SegmentSummary,
): Generator<FoundRecord> {
  const bytes = readTolerant(files, path, findings)
  summary.records = info?.records ?? 0
  summary.missing = bytes === undefined
  if (bytes === undefined) return
  const salt = saltOf(path, bytes, jobId, findings, summary)
  if (salt === undefined) return
  if (info !== undefined && info.bytes !== bytes.length) {
    summary.wound = findings.problem(path, `${bytes.length} bytes, info.json says ${info.bytes}`)
  }
  const content = trailerFits(bytes, salt) ? bytes.subarray(0, -SEGMENT_TRAILER_BYTES) : bytes
  let footer = false
  for (const piece of readPieces(content, FILE_HEADER_BYTES, salt, TYPES)) {
    if (piece.kind !== 'frame') {
      const reason = piece.kind === 'gap' ? piece.reason : 'nothing but zeros'
      summary.wound = findings.gap(path, piece.at, piece.end - piece.at, reason)
    } else if (piece.type === FRAME_FOOTER) {
      footer = true
      readFooter(path, bytes, piece, info, findings, summary)
    } else yield* readBlock(path, bytes, piece, findings, summary)
  }
  if (!footer) summary.wound ??= findings.problem(path, 'the footer is gone', bytes.length)
  else if (content.length === bytes.length)
    summary.wound ??= findings.problem(path, 'the trailer is gone', bytes.length)
}

type FramePiece = Extract<Piece, { kind: 'frame' }>

function saltOf(
  path: string,
  bytes: Buffer,
  jobId: Buffer,
  findings: Findings,
  summary: SegmentSummary,
): number | undefined {
  const read = decodeFileHeader(bytes, SEGMENT_MAGIC)
  if (read.kind === 'newer') throw unsupportedFormat(path, read.format)
  if (read.kind === 'header') {
    const { header } = read
    if (header.jobId.equals(jobId)) return header.salt
    const other = header.jobId.toString('hex')
    summary.wound = findings.problem(path, `belongs to another job (${other}): left out`, 16)
    return undefined
  }
  const salt = findSalt(bytes, SEGMENT_MAGIC, TYPES, (candidate) => trailerFits(bytes, candidate))
  summary.wound =
    salt === undefined
      ? findings.gap(path, 0, bytes.length, `${read.reason}, and no block checks out`)
      : findings.problem(path, `${read.reason}; its blocks were read all the same`, 0)
  return salt
}

function trailerFits(bytes: Buffer, salt: number): boolean {
  const at = bytes.length - SEGMENT_TRAILER_BYTES
  return at >= FILE_HEADER_BYTES && crc32(bytes.subarray(at, at + 12), salt) === bytes.readUInt32LE(at + 12)
}

function readFooter(
  path: string,
  bytes: Buffer,
  { at, start, end }: FramePiece,
  info: SegmentInfo | undefined,
  findings: Findings,
  summary: SegmentSummary,
): void {
  try {
    const { records } = readSegmentIndex(bytes, start, end, at)
    summary.records = Math.max(summary.records, records)
  } catch (error) {
    if (!(error instanceof DecodeError)) throw error
    summary.wound = findings.problem(path, `the footer does not add up: ${error.message}`, at)
  }
  if (info !== undefined && bytes.readUInt32LE(at + 4) !== info.footerCrc) {
    summary.wound = findings.problem(path, 'is another version of this segment than info.json names', at)
  }
}

function* readBlock(
  path: string,
  bytes: Buffer,
  { at, start, end }: FramePiece,
  findings: Findings,
  summary: SegmentSummary,
): Generator<FoundRecord> {
  const reader = new ByteReader(bytes, start, end)
  try {
    const first = reader.u32()
    const count = reader.u32()
    summary.records = Math.max(summary.records, first + count)
    for (let i = 0; i < count; i++) {
      const length = reader.varint()
      const recordAt = reader.position
      reader.skip(length)
      yield readRecord(bytes, recordAt, reader.position, first + i)
    }
  } catch (error) {
    if (!(error instanceof DecodeError)) throw error
    summary.wound = findings.problem(path, `a block could be read in part only: ${error.message}`, at)
  }
}

function readRecord(buffer: Buffer, at: number, end: number, ordinal: number): FoundRecord {
  const reader = new ByteReader(buffer, at, end)
  const attempt = reader.varint()
  const failures = reader.varint()
  const due = reader.varint()
  const reason = reader.string()
  return { ordinal, attempt, failures, due, reason, buffer, start: reader.position, end }
}
