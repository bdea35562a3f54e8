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

/** What most jobs do not have while they wait: made when it is first set. */
class JobExtra {
  value: unknown = undefined
  attempt = 0
  failures = 0
  due = 0
  reason = ''
  home: Segment | undefined = undefined
  ordinal = 0
  heapIndex = -1
}

const NOTHING: Readonly<JobExtra> = Object.freeze(new JobExtra())

/** Six fields, since there are hundreds of thousands of these: the rest stands in `extra`. */
export class JobEntry {
  readonly id: number
  /** Bytes of the job record: chunk.buffer[start, end). Undefined for a memory-only job, which has `value`. */
  chunk: Chunk | undefined
  start: number
  end: number
  lane: Lane
  /** CARRY_READY, CARRY_DELAYED, CARRY_LEASED or CARRY_DEAD. */
  state = 0
  private extra: JobExtra | undefined = undefined

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

  private more(): JobExtra {
    this.extra ??= new JobExtra()
    return this.extra
  }

  get value(): unknown {
    return (this.extra ?? NOTHING).value
  }

  set value(value: unknown) {
    this.more().value = value
  }

  get attempt(): number {
    return (this.extra ?? NOTHING).attempt
  }

  set attempt(attempt: number) {
    if (attempt !== 0 || this.extra !== undefined) this.more().attempt = attempt
  }

  get failures(): number {
    return (this.extra ?? NOTHING).failures
  }

  set failures(failures: number) {
    if (failures !== 0 || this.extra !== undefined) this.more().failures = failures
  }

  /** ms since the epoch: when a delayed job is due; when a dead one was buried. 0: at once. */
  get due(): number {
    return (this.extra ?? NOTHING).due
  }

  set due(due: number) {
    if (due !== 0 || this.extra !== undefined) this.more().due = due
  }

  get reason(): string {
    return (this.extra ?? NOTHING).reason
  }

  set reason(reason: string) {
    if (reason !== '' || this.extra !== undefined) this.more().reason = reason
  }

  /** Where the job lies on disk, and is marked consumed; undefined: only the journal has it. */
  get home(): Segment | undefined {
    return (this.extra ?? NOTHING).home
  }

  set home(home: Segment | undefined) {
    if (home !== undefined || this.extra !== undefined) this.more().home = home
  }

  get ordinal(): number {
    return (this.extra ?? NOTHING).ordinal
  }

  set ordinal(ordinal: number) {
    if (ordinal !== 0 || this.extra !== undefined) this.more().ordinal = ordinal
  }

  /** Position in the delay heap. */
  get heapIndex(): number {
    return (this.extra ?? NOTHING).heapIndex
  }

  set heapIndex(index: number) {
    if (index !== -1 || this.extra !== undefined) this.more().heapIndex = index
  }
}
