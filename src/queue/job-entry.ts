/**
 * A live job that is out of the waiting lists: leased, delayed, dead, or come back. Its encoded bytes are a place in a
 * shared chunk, not a copy. Invariant: an entry with a home is marked consumed there, so the job exists once; a
 * checkpoint gives every entry a new place.
 */
import type { Segment } from '../store/segment.js'
import type { Bucket } from './bucket.js'

/** A buffer many jobs point into. Counted in memory until none does. */
export interface Chunk {
  readonly buffer: Buffer
  readonly bytes: number
  /** Jobs that point into it. */
  live: number
  /** Waiting jobs among them, and the number by which they name this chunk; -1 while there are none. */
  waiting: number
  number: number
}

export function newChunk(buffer: Buffer, bytes: number = buffer.length): Chunk {
  return { buffer, bytes, live: 0, waiting: 0, number: -1 }
}

export class JobEntry {
  readonly id: number
  readonly bucket: Bucket
  /** Number of its lane, which exists as long as an entry in memory or a commit under way holds it. */
  readonly lane: number
  /** Bytes of the job record: chunk.buffer[start, end). Undefined for a memory-only job, which has `value`. */
  chunk: Chunk | undefined
  start: number
  end: number
  /** CARRY_READY, CARRY_DELAYED, CARRY_LEASED or CARRY_DEAD. */
  state = 0
  attempt = 0
  failures = 0
  /** ms since the epoch: when a delayed job is due; when a dead one was buried. 0: at once. */
  due = 0
  reason = ''
  /** Where the job lies on disk, and is marked consumed; undefined: only the journal has it. */
  home: Segment | undefined = undefined
  ordinal = 0
  /** Position in the delay heap. */
  heapIndex = -1
  value: unknown = undefined

  constructor(id: number, bucket: Bucket, lane: number, chunk: Chunk | undefined, start: number, end: number) {
    this.id = id
    this.bucket = bucket
    this.lane = lane
    this.chunk = chunk
    this.start = start
    this.end = end
  }

  get memoryOnly(): boolean {
    return this.chunk === undefined
  }

  get length(): number {
    return this.end - this.start
  }
}
