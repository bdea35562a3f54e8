/**
 * The footer of a segment: its lanes (name, how many records, lowest and highest id) and its blocks (offset, count).
 * Ordinals run through the file, lane after lane, so a lane is a range of ordinals and a block too.
 */
import { ByteReader, DecodeError } from '../bytes/byte-reader.js'
import type { ByteWriter } from '../bytes/byte-writer.js'

export interface SegmentLane {
  readonly name: string
  readonly first: number
  readonly count: number
  readonly lowestId: number
  readonly highestId: number
}

export interface SegmentIndex {
  readonly records: number
  readonly oldestAddedAt: number
  readonly lanes: readonly SegmentLane[]
  /** Offset of each block's frame, and of what follows the last. */
  readonly blockOffsets: readonly number[]
  /** First ordinal of each block, and the count of all records. */
  readonly blockFirsts: readonly number[]
}

/** Lanes as they stand in the footer: encoded as they end, since with a host for every job objects would outweigh the jobs. */
export interface EncodedLanes {
  readonly count: number
  readonly bytes: ByteWriter
}

export function writeLane(writer: ByteWriter, lane: Omit<SegmentLane, 'first'>): void {
  writer.string(lane.name)
  writer.varint(lane.count)
  writer.varint(lane.lowestId)
  writer.varint(lane.highestId - lane.lowestId)
}

export function writeSegmentIndex(writer: ByteWriter, index: Omit<SegmentIndex, 'lanes'>, lanes: EncodedLanes): void {
  const blocks = index.blockFirsts.length - 1
  writer.u32(index.records)
  writer.u32(lanes.count)
  writer.u32(blocks)
  writer.f64(index.oldestAddedAt)
  writer.copy(lanes.bytes.buffer, lanes.bytes.start, lanes.bytes.position)
  for (let i = 0; i < blocks; i++) {
    writer.varint(index.blockOffsets[i] - (i === 0 ? 0 : index.blockOffsets[i - 1]))
    writer.varint(index.blockFirsts[i + 1] - index.blockFirsts[i])
  }
}

export function readLanes(reader: ByteReader, count: number): SegmentLane[] {
  const lanes: SegmentLane[] = []
  let first = 0
  for (let i = 0; i < count; i++) {
    const name = reader.string()
    const records = reader.varint()
    const lowestId = reader.varint()
    const highestId = lowestId + reader.varint()
    lanes.push({ name, first, count: records, lowestId, highestId })
    first += records
  }
  return lanes
}

/** Throws DecodeError; also when the parts do not add up. `footerOffset` ends the last block. */
export function readSegmentIndex(buffer: Buffer, start: number, end: number, footerOffset: number): SegmentIndex {
  const reader = new ByteReader(buffer, start, end)
  const records = reader.u32()
  const laneCount = reader.u32()
  const blockCount = reader.u32()
  const oldestAddedAt = reader.f64()
  const lanes = readLanes(reader, laneCount)
  const last = lanes.at(-1)
  const first = last === undefined ? 0 : last.first + last.count
  if (first !== records) throw new DecodeError(`lanes hold ${first} records, the footer says ${records}`, start)
  const blockOffsets: number[] = []
  const blockFirsts: number[] = []
  let offset = 0
  let ordinal = 0
  for (let i = 0; i < blockCount; i++) {
    offset += reader.varint()
    blockOffsets.push(offset)
    blockFirsts.push(ordinal)
    ordinal += reader.varint()
  }
  if (ordinal !== records) throw new DecodeError(`blocks hold ${ordinal} records, the footer says ${records}`, start)
  if (offset >= footerOffset && blockCount > 0) throw new DecodeError('a block begins behind the footer', start)
  if (reader.left > 0) throw new DecodeError(`${reader.left} bytes behind the footer`, reader.position)
  blockOffsets.push(footerOffset)
  blockFirsts.push(records)
  return { records, oldestAddedAt, lanes, blockOffsets, blockFirsts }
}
