/**
 * One sealed segment, as readers see it: its index in memory, its records read block by block, each block checked when it
 * comes from the disk. Which records are used up is a mark beside the file, never a change to it.
 */
import { assert } from '../assert.js'
import { ByteReader, DecodeError } from '../bytes/byte-reader.js'
import { crc32 } from '../bytes/crc32.js'
import { HoldfastError, ioError } from '../errors.js'
import { BLOCK_CACHE_COUNT } from '../limits.js'
import { ConsumedSet, type SegmentInfo } from './bucket-info.js'
import type { FileCache } from './file-cache.js'
import {
  corrupt,
  decodeFileHeader,
  FILE_HEADER_BYTES,
  FRAME_BLOCK,
  FRAME_FOOTER,
  SEGMENT_MAGIC,
  unsupportedFormat,
} from './format.js'
import { readFrame } from './frame.js'
import { readSegmentIndex, type SegmentIndex, type SegmentLane } from './segment-index.js'
import { SEGMENT_TRAILER_BYTES, type SealedSegment } from './segment-writer.js'

interface Block {
  readonly buffer: Buffer
  readonly first: number
  /** Start of each record's content in `buffer`, and of what follows the last. */
  readonly starts: Uint32Array
  readonly ends: Uint32Array
}

/** One record: its changeable part decoded, its job record as a place in a block's buffer. */
export interface SegmentRecord {
  buffer: Buffer
  start: number
  end: number
  attempt: number
  failures: number
  due: number
  reason: string
}

/** Some records in a row, copied out of their block. */
export interface RecordSpan {
  readonly first: number
  readonly buffer: Buffer
  readonly starts: Uint32Array
  readonly ends: Uint32Array
}

/** Decoded blocks of all segments, least recently used dropped first. */
export class BlockCache {
  private readonly blocks = new Map<string, Block>()

  get(key: string): Block | undefined {
    const block = this.blocks.get(key)
    if (block !== undefined) {
      this.blocks.delete(key)
      this.blocks.set(key, block)
    }
    return block
  }

  put(key: string, block: Block): void {
    if (this.blocks.size >= BLOCK_CACHE_COUNT) this.blocks.delete(this.blocks.keys().next().value as string)
    this.blocks.set(key, block)
  }
}

export class Segment {
  readonly path: string
  readonly file: string
  readonly id: number
  bytes = 0
  footerCrc = 0
  /** Undefined while a checkpoint still writes it. */
  private sealedIndex: Omit<SegmentIndex, 'lanes'> | undefined
  private knownLanes: readonly SegmentLane[] | undefined
  readonly consumed: ConsumedSet
  /** The checkpoint that was to make it real failed: a home in it counts for nothing. */
  abandoned = false
  /** Set when `consumed` changed since info.json last held it. */
  dirty = false
  private readonly salt: number
  private readonly handles: FileCache
  private readonly cache: BlockCache
  /** The block read last: a lane is read in order, so this is nearly always the next one too. */
  private lastBlock: Block | undefined

  constructor(fields: {
    path: string
    file: string
    id: number
    consumed: ConsumedSet
    salt: number
    handles: FileCache
    cache: BlockCache
  }) {
    this.path = fields.path
    this.file = fields.file
    this.id = fields.id
    this.consumed = fields.consumed
    this.salt = fields.salt
    this.handles = fields.handles
    this.cache = fields.cache
  }

  get live(): number {
    return this.consumed.live
  }

  get index(): Omit<SegmentIndex, 'lanes'> {
    assert(this.sealedIndex !== undefined, 'the segment is sealed')
    return this.sealedIndex
  }

  seal(sealed: SealedSegment): void {
    this.bytes = sealed.bytes
    this.footerCrc = sealed.footerCrc
    this.sealedIndex = sealed.index
    this.knownLanes = sealed.lanes
  }

  /** The lanes as the footer lists them; read again when they are not in memory. */
  lanes(): readonly SegmentLane[] {
    if (this.knownLanes !== undefined) return this.knownLanes
    const { blockOffsets } = this.index
    const footerOffset = blockOffsets[blockOffsets.length - 1]
    const footer = readAt(this.handles, this.path, footerOffset, this.bytes - footerOffset - SEGMENT_TRAILER_BYTES)
    const frame = readFrame(footer, 0, this.salt)
    if (frame.kind !== 'frame') throw corrupt(this.path, 'no footer here', footerOffset)
    return readSegmentIndex(footer, frame.start, frame.end, footerOffset).lanes
  }

  /** Its runs are known to the lanes of the queue: with a host for every few jobs this list is larger than all else. */
  dropLanes(): void {
    this.knownLanes = undefined
  }

  consume(ordinal: number): void {
    if (this.consumed.has(ordinal)) return
    this.consumed.add(ordinal)
    this.dirty = true
    if (this.consumed.live === 0) this.lastBlock = undefined
  }

  read(ordinal: number): SegmentRecord {
    const block = this.blockWith(ordinal)
    const i = ordinal - block.first
    return this.decode(ordinal, block.buffer, block.starts[i], block.ends[i])
  }

  private blockWith(ordinal: number): Block {
    let block = this.lastBlock
    if (block === undefined || ordinal < block.first || ordinal >= block.first + block.starts.length) {
      block = this.loadBlock(this.blockOf(ordinal))
      this.lastBlock = block
    }
    return block
  }

  private decode(ordinal: number, buffer: Buffer, start: number, end: number): SegmentRecord {
    const reader = new ByteReader(buffer, start, end)
    try {
      const attempt = reader.varint()
      const failures = reader.varint()
      const due = reader.varint()
      const reason = reader.string()
      return { buffer, start: reader.position, end, attempt, failures, due, reason }
    } catch (error) {
      throw corrupt(this.path, `record ${ordinal}: ${(error as Error).message}`, undefined, error)
    }
  }

  /**
   * Copies records of [low, high) that lie in the block of `ordinal`, from it on upwards or downwards, about `bytesMax` of
   * them: for a lane that comes back for the next one only after many others were served.
   */
  readAhead(ordinal: number, low: number, high: number, downwards: boolean, bytesMax: number): RecordSpan {
    const block = this.blockWith(ordinal)
    const { starts, ends } = block
    let from = ordinal - block.first
    let to = from + 1
    if (downwards) {
      const floor = Math.max(0, low - block.first)
      while (from > floor && ends[to - 1] - starts[from - 1] <= bytesMax) from--
    } else {
      const ceiling = Math.min(starts.length, high - block.first)
      while (to < ceiling && ends[to] - starts[from] <= bytesMax) to++
    }
    const base = starts[from]
    const buffer = Buffer.allocUnsafeSlow(ends[to - 1] - base)
    block.buffer.copy(buffer, 0, base, ends[to - 1])
    return {
      first: block.first + from,
      buffer,
      starts: starts.slice(from, to).map((at) => at - base),
      ends: ends.slice(from, to).map((at) => at - base),
    }
  }

  /** A record of a span that `readAhead` gave; undefined when it is not in it. */
  fromSpan(span: RecordSpan | undefined, ordinal: number): SegmentRecord | undefined {
    if (span === undefined) return undefined
    const i = ordinal - span.first
    if (i < 0 || i >= span.starts.length) return undefined
    return this.decode(ordinal, span.buffer, span.starts[i], span.ends[i])
  }

  /** A record of the block that was read last; undefined when it is not in it. */
  fromLastBlock(ordinal: number): SegmentRecord | undefined {
    const block = this.lastBlock
    if (block === undefined) return undefined
    const i = ordinal - block.first
    if (i < 0 || i >= block.starts.length) return undefined
    return this.decode(ordinal, block.buffer, block.starts[i], block.ends[i])
  }

  private blockOf(ordinal: number): number {
    const firsts = this.index.blockFirsts
    let low = 0
    let high = firsts.length - 2
    while (low < high) {
      const middle = (low + high + 1) >>> 1
      if (firsts[middle] <= ordinal) low = middle
      else high = middle - 1
    }
    return low
  }

  private loadBlock(number: number): Block {
    const key = `${this.id}:${number}`
    const cached = this.cache.get(key)
    if (cached !== undefined) return cached
    const block = this.readBlock(number)
    this.cache.put(key, block)
    return block
  }

  private readBlock(number: number): Block {
    const offset = this.index.blockOffsets[number]
    const bytes = readAt(this.handles, this.path, offset, this.index.blockOffsets[number + 1] - offset)
    const frame = readFrame(bytes, 0, this.salt)
    if (frame.kind !== 'frame' || frame.type !== FRAME_BLOCK || frame.end !== bytes.length) {
      throw corrupt(this.path, frame.kind === 'bad' ? frame.reason : 'no block here', offset)
    }
    const reader = new ByteReader(bytes, frame.start, frame.end)
    try {
      const first = reader.u32()
      const count = reader.u32()
      const expectedFirst = this.index.blockFirsts[number]
      const expectedCount = this.index.blockFirsts[number + 1] - expectedFirst
      if (first !== expectedFirst || count !== expectedCount) {
        throw new DecodeError(`block of records ${first}+${count}, expected ${expectedFirst}+${expectedCount}`, 0)
      }
      const starts = new Uint32Array(count)
      const ends = new Uint32Array(count)
      for (let i = 0; i < count; i++) {
        const length = reader.varint()
        starts[i] = reader.position
        reader.skip(length)
        ends[i] = reader.position
      }
      if (reader.left > 0) throw new DecodeError(`${reader.left} bytes behind the last record`, reader.position)
      return { buffer: bytes, first, starts, ends }
    } catch (error) {
      throw corrupt(this.path, (error as Error).message, offset, error)
    }
  }

  /** Reads and checks every block, without disturbing the cache. `visit` gets each record that is live. */
  checkBlocks(visit: (record: SegmentRecord, ordinal: number) => void): void {
    for (let number = 0; number + 1 < this.index.blockFirsts.length; number++) {
      const block = this.readBlock(number)
      this.lastBlock = block
      for (let i = 0; i < block.starts.length; i++) {
        if (!this.consumed.has(block.first + i)) visit(this.read(block.first + i), block.first + i)
      }
    }
    this.lastBlock = undefined
  }

  info(consumed: ConsumedSet): SegmentInfo {
    return {
      file: this.file,
      id: this.id,
      records: this.index.records,
      bytes: this.bytes,
      footerCrc: this.footerCrc,
      live: consumed.live,
      consumed: consumed.encode(),
    }
  }
}

function readAt(handles: FileCache, path: string, offset: number, length: number): Buffer {
  const bytes = Buffer.allocUnsafeSlow(length)
  let read: number
  try {
    read = handles.get(path).read(bytes, offset)
  } catch (error) {
    if (error instanceof HoldfastError) throw error
    throw ioError('reading', path, error)
  }
  if (read !== length) throw corrupt(path, `${read} of ${length} bytes are there`, offset)
  return bytes
}

/** Opens a segment that info.json names: reads header and footer, compares both with what is said of them. */
export function openSegment(
  path: string,
  info: SegmentInfo,
  jobId: Buffer,
  handles: FileCache,
  cache: BlockCache,
): Segment {
  let size: number
  try {
    size = handles.get(path).size()
  } catch (error) {
    throw ioError('opening', path, error)
  }
  if (size !== info.bytes) throw corrupt(path, `${size} bytes, info.json says ${info.bytes}`)
  const read = decodeFileHeader(readAt(handles, path, 0, Math.min(size, FILE_HEADER_BYTES)), SEGMENT_MAGIC)
  if (read.kind === 'newer') throw unsupportedFormat(path, read.format)
  if (read.kind === 'bad') throw corrupt(path, read.reason, 0)
  if (!read.header.jobId.equals(jobId)) throw corrupt(path, 'belongs to another job', 0)
  if (read.header.number !== info.id) throw corrupt(path, `is segment ${read.header.number}, expected ${info.id}`, 0)
  const { salt } = read.header
  const trailer = readAt(handles, path, size - SEGMENT_TRAILER_BYTES, SEGMENT_TRAILER_BYTES)
  const footerOffset = Number(trailer.readBigUInt64LE(0))
  const footerBytes = trailer.readUInt32LE(8)
  if (
    crc32(trailer.subarray(0, 12), salt) !== trailer.readUInt32LE(12) ||
    footerOffset + footerBytes + SEGMENT_TRAILER_BYTES !== size
  ) {
    throw corrupt(path, 'trailer does not check out', size - SEGMENT_TRAILER_BYTES)
  }
  const footer = readAt(handles, path, footerOffset, footerBytes)
  const frame = readFrame(footer, 0, salt)
  if (frame.kind !== 'frame' || frame.type !== FRAME_FOOTER || frame.end !== footer.length) {
    throw corrupt(path, frame.kind === 'bad' ? frame.reason : 'no footer here', footerOffset)
  }
  if (footer.readUInt32LE(4) !== info.footerCrc) throw corrupt(path, 'is another version of this segment', footerOffset)
  let index: SegmentIndex
  try {
    index = readSegmentIndex(footer, frame.start, frame.end, footerOffset)
  } catch (error) {
    throw corrupt(path, (error as Error).message, footerOffset, error)
  }
  if (index.records !== info.records) {
    throw corrupt(path, `${index.records} records, info.json says ${info.records}`, footerOffset)
  }
  const consumed = ConsumedSet.decode(info.consumed, info.records, info.live, path)
  const segment = new Segment({ path, file: info.file, id: info.id, consumed, salt, handles, cache })
  const { lanes, ...sealed } = index
  segment.seal({ bytes: info.bytes, footerCrc: info.footerCrc, index: sealed, lanes })
  return segment
}
