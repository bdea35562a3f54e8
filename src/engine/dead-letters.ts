/**
 * Jobs that were given up, with the reason. They wait for a person: `requeue` brings them back, `drop` ends them. Few are
 * kept in memory; a checkpoint moves many into a segment of their own, which is read when somebody looks.
 */
import type { JobEntry } from '../queue/job-entry.js'
import { CARRY_DEAD } from '../store/format.js'
import type { Segment } from '../store/segment.js'
import type { SegmentSet } from '../store/segment-set.js'
import type { StoreState } from './store-state.js'

export class DeadLetters {
  readonly store: SegmentSet
  private readonly state: StoreState
  private readonly memory = new Map<number, JobEntry>()
  private readonly sealed: Segment[] = []

  constructor(state: StoreState, store: SegmentSet) {
    this.state = state
    this.store = store
  }

  get count(): number {
    let count = this.memory.size
    for (const segment of this.sealed) count += segment.live
    return count
  }

  put(job: JobEntry): void {
    job.state = CARRY_DEAD
    this.memory.set(job.id, job)
  }

  inMemory(): IterableIterator<JobEntry> {
    return this.memory.values()
  }

  get memoryCount(): number {
    return this.memory.size
  }

  addSegment(segment: Segment): void {
    this.sealed.push(segment)
  }

  /** All of them; those in segments are read for the occasion and stay there. */
  *entries(): Generator<JobEntry> {
    const { state } = this
    // As of now: what a checkpoint moves meanwhile lies in a segment that this listing does not know.
    const inMemory = [...this.memory.values()]
    for (const segment of [...this.sealed]) {
      for (let ordinal = 0; ordinal < segment.index.records; ordinal++) {
        if (segment.consumed.has(ordinal)) continue
        const job = state.load(segment, ordinal)
        state.drop(job)
        job.state = CARRY_DEAD
        yield job
      }
    }
    for (const job of inMemory) {
      const moved = job.home !== undefined && !job.home.consumed.has(job.ordinal)
      if (moved || this.memory.get(job.id) === job) yield job
    }
  }

  /** Takes the entries that `wanted` names out of the dead letters: into memory, marked consumed at home. */
  take(wanted: (id: number) => boolean): JobEntry[] {
    const { state } = this
    const taken: JobEntry[] = []
    for (const job of this.entries()) {
      if (!wanted(job.id)) continue
      if (this.memory.delete(job.id)) {
        // A running checkpoint may be giving it a place: it is taken out there as well.
        state.homeOf(job)?.consume(job.ordinal)
      } else {
        state.retain(job)
        state.own(job)
        job.home?.consume(job.ordinal)
      }
      taken.push(job)
    }
    return taken
  }

  /** Everything that is live in the segment comes into memory. */
  loadSegment(segment: Segment): void {
    const { state } = this
    for (let ordinal = 0; ordinal < segment.index.records; ordinal++) {
      if (segment.consumed.has(ordinal)) continue
      const job = state.load(segment, ordinal)
      segment.consume(ordinal)
      state.own(job)
      this.put(job)
    }
  }

  thaw(segments: readonly Segment[]): void {
    const moved = new Set(segments)
    for (const job of [...this.memory.values()]) {
      if (job.home === undefined || !moved.has(job.home) || job.home.consumed.has(job.ordinal)) continue
      this.memory.delete(job.id)
      this.state.drop(job)
    }
    this.sealed.push(...segments)
  }

  forgetEmpty(): void {
    for (let i = this.sealed.length - 1; i >= 0; i--) if (this.sealed[i].live === 0) this.sealed.splice(i, 1)
  }
}
