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

export function writeSegmentIndex(writer: ByteWriter, index: SegmentIndex): void {
  const blocks = index.blockFirsts.length - 1
  writer.u32(index.records)
  writer.u32(index.lanes.length)
  writer.u32(blocks)
  writer.f64(index.oldestAddedAt)
  for (const lane of index.lanes) {
    writer.string(lane.name)
    writer.varint(lane.count)
    writer.varint(lane.lowestId)
    writer.varint(lane.highestId - lane.lowestId)
  }
  for (let i = 0; i < blocks; i++) {
    writer.varint(index.blockOffsets[i] - (i === 0 ? 0 : index.blockOffsets[i - 1]))
    writer.varint(index.blockFirsts[i + 1] - index.blockFirsts[i])
  }
}

/** Throws DecodeError; also when the parts do not add up. `footerOffset` ends the last block. */
export function readSegmentIndex(buffer: Buffer, start: number, end: number, footerOffset: number): SegmentIndex {
  const reader = new ByteReader(buffer, start, end)
  const records = reader.u32()
  const laneCount = reader.u32()
  const blockCount = reader.u32()
  const oldestAddedAt = reader.f64()
  const lanes: SegmentLane[] = []
  let first = 0
  for (let i = 0; i < laneCount; i++) {
    const name = reader.string()
    const count = reader.varint()
    const lowestId = reader.varint()
    const highestId = lowestId + reader.varint()
    lanes.push({ name, first, count, lowestId, highestId })
    first += count
  }
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
