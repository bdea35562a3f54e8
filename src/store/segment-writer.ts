/**
 * Writes one sealed segment: header, blocks of records grouped by lane, footer, trailer. The file is real only once a
 * manifest names it; until then it can be thrown away.
 */
import { assert } from '../assert.js'
import { ByteReader } from '../bytes/byte-reader.js'
import { ByteWriter } from '../bytes/byte-writer.js'
import { crc32 } from '../bytes/crc32.js'
import type { FileHandle, FileSystem } from '../env/file-system.js'
import { ioError } from '../errors.js'
import { SEGMENT_BLOCK_BYTES } from '../limits.js'
import {
  encodeFileHeader,
  FILE_HEADER_BYTES,
  FRAME_BLOCK,
  FRAME_FOOTER,
  FRAME_HEADER_BYTES,
  SEGMENT_MAGIC,
} from './format.js'
import { beginFrame, sealFrame } from './frame.js'
import { closeQuietly, writeFully } from './json-file.js'
import { readLanes, type SegmentIndex, type SegmentLane, writeLane, writeSegmentIndex } from './segment-index.js'

export const SEGMENT_TRAILER_BYTES = 16
const BLOCK_HEADER_BYTES = 8
/** Attempt, failures, due and the length of the reason, of a job that has not been out: each is a zero. */
const FRESH_BYTES = 4

/** What of a job can change, as it was when the segment was written. */
export interface RecordState {
  readonly attempt: number
  readonly failures: number
  readonly due: number
  readonly reason: string
}

export interface SealedSegment {
  readonly bytes: number
  readonly footerCrc: number
  readonly index: Omit<SegmentIndex, 'lanes'>
  readonly lanes?: readonly SegmentLane[]
}

export class SegmentWriter {
  readonly path: string
  readonly id: number
  private readonly salt: number
  private readonly handle: FileHandle
  private readonly out = new ByteWriter(4 * SEGMENT_BLOCK_BYTES)
  private readonly scratch = new ByteWriter(1024)
  /** The lane whose records come now, and those before it. */
  private readonly lane = { name: '', count: 0, lowestId: 0, highestId: 0 }
  private readonly laneBytes = new ByteWriter(1024)
  private laneCount = 0
  private readonly blockOffsets: number[] = []
  private readonly blockFirsts: number[] = []
  private records = 0
  private oldestAddedAt = Infinity
  private offset = FILE_HEADER_BYTES

  constructor(files: FileSystem, path: string, jobId: Buffer, id: number, salt: number) {
    this.path = path
    this.id = id
    this.salt = salt
    try {
      this.handle = files.open(path, 'create')
    } catch (error) {
      throw ioError('creating', path, error)
    }
    const header = encodeFileHeader({
      magic: SEGMENT_MAGIC,
      jobId,
      number: id,
      salt,
      firstSequence: 0,
      syncedSequence: 0,
    })
    try {
      this.write(header, 0)
    } catch (error) {
      this.abandon()
      throw error
    }
    beginFrame(this.out)
    this.out.position += BLOCK_HEADER_BYTES
  }

  /** Records that follow belong to this lane. */
  beginLane(name: string): void {
    this.endLane()
    this.lane.name = name
  }

  private endLane(): void {
    const { lane } = this
    if (lane.count === 0) return
    writeLane(this.laneBytes, lane)
    this.laneCount++
    lane.count = 0
  }

  /** Ids rise inside a lane. `addedAt` and `id` are those of the record in `buffer[start, end)`. */
  add(state: RecordState, id: number, addedAt: number, buffer: Buffer, start: number, end: number): void {
    const { lane } = this
    assert(lane.count === 0 || id > lane.highestId, 'ids rise inside a lane')
    if (lane.count === 0) lane.lowestId = id
    lane.highestId = id
    lane.count++
    if (addedAt < this.oldestAddedAt) this.oldestAddedAt = addedAt
    const { scratch, out } = this
    if (state.attempt === 0 && state.failures === 0 && state.due === 0 && state.reason === '') {
      out.varint(FRESH_BYTES + (end - start))
      out.zeros(FRESH_BYTES)
      out.copy(buffer, start, end)
      this.records++
      if (out.length >= SEGMENT_BLOCK_BYTES) this.flushBlock()
      return
    }
    scratch.rewind(0)
    scratch.varint(state.attempt)
    scratch.varint(state.failures)
    scratch.varint(state.due)
    scratch.string(state.reason)
    out.varint(scratch.length + (end - start))
    out.copy(scratch.buffer, scratch.start, scratch.position)
    out.copy(buffer, start, end)
    this.records++
    if (out.length >= SEGMENT_BLOCK_BYTES) this.flushBlock()
  }

  /** Bytes written so far, for cutting segments to size. */
  get bytes(): number {
    return this.offset + this.out.length
  }

  private flushBlock(): void {
    const { out } = this
    const first = this.blockFirsts.length === 0 ? 0 : this.nextFirst
    const count = this.records - first
    if (count === 0) return
    const { buffer, start, position } = out
    buffer.writeUInt32LE(first, start + FRAME_HEADER_BYTES)
    buffer.writeUInt32LE(count, start + FRAME_HEADER_BYTES + 4)
    sealFrame(buffer, start, position, FRAME_BLOCK, this.salt)
    this.write(buffer.subarray(start, position), this.offset)
    this.blockOffsets.push(this.offset)
    this.blockFirsts.push(first)
    this.nextFirst = this.records
    this.offset += position - start
    out.rewind(0)
    beginFrame(out)
    out.position += BLOCK_HEADER_BYTES
  }

  private nextFirst = 0

  /** Writes footer and trailer and syncs the file. The name is not yet durable. `withLanes`: the caller wants to know them. */
  async finish(withLanes: boolean): Promise<SealedSegment> {
    this.endLane()
    this.flushBlock()
    const footerOffset = this.offset
    const index = {
      records: this.records,
      oldestAddedAt: this.records === 0 ? 0 : this.oldestAddedAt,
      blockOffsets: [...this.blockOffsets, footerOffset],
      blockFirsts: [...this.blockFirsts, this.records],
    }
    const footer = new ByteWriter(SEGMENT_BLOCK_BYTES)
    beginFrame(footer)
    const { laneBytes, laneCount } = this
    writeSegmentIndex(footer, index, { count: laneCount, bytes: laneBytes })
    const footerBytes = footer.length
    sealFrame(footer.buffer, footer.start, footer.position, FRAME_FOOTER, this.salt)
    const footerCrc = footer.buffer.readUInt32LE(footer.start + 4)
    const trailer = Buffer.alloc(SEGMENT_TRAILER_BYTES)
    trailer.writeBigUInt64LE(BigInt(footerOffset), 0)
    trailer.writeUInt32LE(footerBytes, 8)
    trailer.writeUInt32LE(crc32(trailer.subarray(0, 12), this.salt), 12)
    this.write(footer.buffer.subarray(footer.start, footer.position), footerOffset)
    this.write(trailer, footerOffset + footerBytes)
    try {
      await this.handle.sync()
    } catch (error) {
      throw ioError('syncing', this.path, error)
    }
    this.handle.close()
    const bytes = footerOffset + footerBytes + SEGMENT_TRAILER_BYTES
    if (!withLanes) return { bytes, footerCrc, index }
    const reader = new ByteReader(laneBytes.buffer, laneBytes.start, laneBytes.position)
    return { bytes, footerCrc, index, lanes: readLanes(reader, laneCount) }
  }

  /** Closes the file without finishing it; the caller removes it. */
  abandon(): void {
    closeQuietly(this.handle)
  }

  private write(bytes: Uint8Array, position: number): void {
    try {
      writeFully(this.handle, bytes, position)
    } catch (error) {
      throw ioError('writing', this.path, error)
    }
  }
}
