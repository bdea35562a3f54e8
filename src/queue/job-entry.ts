/**
 * A live job that is in memory: its encoded bytes (a place in a shared chunk, not a copy), what can change about it, and
 * its home if it came from a segment. Invariant: an entry with a home is marked consumed there, so the job exists once;
 * a checkpoint gives every entry a new place.
 */
import type { Segment } from '../store/segment.js'
import type { Lane } from './lane.js'

/** A buffer many jobs point into. Counted in memory until none does. */
export interface Chunk {
  readonly buffer: Buffer
  readonly bytes: number
  live: number
}

export class JobEntry {
  readonly id: number
  /** Bytes of the job record: chunk.buffer[start, end). Undefined for a memory-only job, which has `value`. */
  chunk: Chunk | undefined
  start: number
  end: number
  value: unknown
  attempt = 0
  failures = 0
  /** ms since the epoch: when a delayed job is due; when a dead one was buried. 0: at once. */
  due = 0
  reason = ''
  /** Where the job lies on disk, and is marked consumed; undefined: only the journal has it. */
  home: Segment | undefined = undefined
  ordinal = 0
  lane: Lane
  /** CARRY_READY, CARRY_DELAYED, CARRY_LEASED or CARRY_DEAD. */
  state = 0
  /** Position in the delay heap. */
  heapIndex = -1

  constructor(id: number, lane: Lane, chunk: Chunk | undefined, start: number, end: number) {
    this.id = id
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
