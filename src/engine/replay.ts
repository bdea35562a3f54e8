/**
 * Applies the records of the journal to the state, in order (R6). Lanes are filled only at the end, from what survived:
 * most jobs of a journal are finished in it, and a lane wants its jobs by rising id.
 */
import { assert } from '../assert.js'
import { DecodeError } from '../bytes/byte-reader.js'
import { laterClock } from '../priority/ready-queue.js'
import { type Chunk, type JobEntry, newChunk } from '../queue/job-entry.js'
import { CARRY_DEAD, CARRY_DELAYED, CARRY_LEASED, CARRY_READY, corrupt, JOB_SEEN } from '../store/format.js'
import { emptyJobHeader, readJobHeader } from '../store/job-record.js'
import { type BatchHeader, type CarryFields, type Home, type RecordVisitor, visitBatch } from '../store/records.js'
import type { Segment } from '../store/segment.js'
import { ReplayedJobs } from './replayed-jobs.js'
import type { StoreState } from './store-state.js'

export class Replayer implements RecordVisitor {
  private readonly state: StoreState
  private readonly jobs: ReplayedJobs
  private readonly leased = new Set<number>()
  private readonly segments = new Map<number, Segment>()
  private chunk: Chunk = newChunk(Buffer.alloc(0))
  private time = 0
  private offset = 0
  highestSegmentId = 0
  private places: Map<number, { segment: Segment; ordinal: number }> | undefined

  constructor(state: StoreState) {
    this.state = state
    this.jobs = new ReplayedJobs(state.nextId)
    for (const set of state.segmentSets()) for (const segment of set.segments) this.segments.set(segment.id, segment)
  }

  readonly batch = (
    header: BatchHeader,
    buffer: Buffer,
    start: number,
    end: number,
    _path: string,
    at: number,
  ): void => {
    if (this.chunk.buffer !== buffer) this.chunk = newChunk(buffer)
    this.time = header.time
    this.offset = at
    this.state.epoch = Math.max(this.state.epoch, header.epoch)
    visitBatch(buffer, start, end, this)
  }

  add(due: number, _buffer: Buffer, start: number, end: number): void {
    const { state } = this
    state.counters.added++
    const header = state.readHeaderOf(this.chunk, start, end)
    if (header.flags & JOB_SEEN) state.seen.insertNew(this.chunk.buffer, header.fingerprintAt)
    if (due === 0 && this.jobs.isRecent(header.id)) {
      // Most jobs of a journal are added, wait, and end: none of them becomes an object.
      const node = state.jobs.add(header.id, 0, start, end)
      state.jobs.settle(node, this.chunk, 0)
      this.jobs.setNode(header.id, node, state.laneOf(header, this.chunk.buffer))
      if (header.addedAt < state.oldestInMemory) state.oldestInMemory = header.addedAt
      if (header.id >= state.nextId) state.nextId = header.id + 1
      return
    }
    const entry = state.entryFrom(this.chunk, start, end)
    entry.due = due
    entry.state = due > 0 ? CARRY_DELAYED : CARRY_READY
    this.put(entry)
  }

  carry(fields: CarryFields, _buffer: Buffer, start: number, end: number): void {
    const { state } = this
    const entry = state.entryFrom(this.chunk, start, end)
    if (this.jobs.has(entry.id)) this.end(entry.id)
    else if (fields.segment !== 0) {
      this.note(fields.segment)
      const segment = this.segments.get(fields.segment)
      // Absent: its checkpoint never became real, or it is used up and gone.
      if (segment !== undefined && fields.ordinal < segment.index.records) segment.consume(fields.ordinal)
    }
    entry.attempt = fields.attempt
    entry.failures = fields.failures
    entry.due = fields.due
    entry.reason = fields.reason
    this.put(entry)
    this.setState(entry, fields.state)
  }

  private put(entry: JobEntry): void {
    this.jobs.set(entry.id, entry)
    if (entry.id >= this.state.nextId) this.state.nextId = entry.id + 1
  }

  private setState(entry: JobEntry, state: number): void {
    entry.state = state
    if (state === CARRY_LEASED) this.leased.add(entry.id)
    else this.leased.delete(entry.id)
  }

  private end(id: number): void {
    const node = this.jobs.nodeOf(id)
    if (node >= 0) this.state.jobs.remove(node)
    else this.state.drop(this.jobs.entryOf(id) as JobEntry)
    this.jobs.delete(id)
    this.leased.delete(id)
  }

  /** The job as an object, if the journal brought it. */
  private known(id: number): JobEntry | undefined {
    const node = this.jobs.nodeOf(id)
    if (node < 0) return this.jobs.entryOf(id)
    const { jobs } = this.state
    const entry = this.state.entryFrom(jobs.chunk(node), jobs.start(node), jobs.end(node))
    entry.state = CARRY_READY
    jobs.remove(node)
    this.jobs.set(id, entry)
    return entry
  }

  /**
   * Where a job lies that neither the journal brought nor its record can tell: its home is in a segment whose checkpoint
   * never became real (or it has none), and it came into memory without a record, as a delayed job does when its time
   * comes. Rare, so the segments are looked through only then.
   */
  private locate(id: number, home: Home): { segment: Segment; ordinal: number } {
    const told = this.segments.get(home.segment)
    if (told !== undefined && home.ordinal < told.index.records) return { segment: told, ordinal: home.ordinal }
    this.places ??= this.allPlaces()
    const place = this.places.get(id)
    if (place === undefined) {
      throw new DecodeError(`job ${id} is neither in the journal nor in segment ${home.segment}`, this.offset)
    }
    return place
  }

  private allPlaces(): Map<number, { segment: Segment; ordinal: number }> {
    const places = new Map<number, { segment: Segment; ordinal: number }>()
    const header = emptyJobHeader()
    for (const segment of this.segments.values()) {
      for (let ordinal = 0; ordinal < segment.index.records; ordinal++) {
        if (segment.consumed.has(ordinal)) continue
        const record = segment.read(ordinal)
        places.set(readJobHeader(record.buffer, record.start, record.end, header).id, { segment, ordinal })
      }
    }
    return places
  }

  /** The job a record speaks of: known from the journal, or fetched from its home. */
  private find(id: number, home: Home): JobEntry {
    this.note(home.segment)
    const known = this.known(id)
    if (known !== undefined) return known
    const { segment, ordinal } = this.locate(id, home)
    const entry = this.state.load(segment, ordinal)
    if (entry.id !== id) throw corrupt(segment.path, `record ${ordinal} is job ${entry.id}, expected ${id}`)
    segment.consume(ordinal)
    this.state.own(entry)
    this.put(entry)
    return entry
  }

  take(id: number, home: Home, attempt: number): void {
    const entry = this.find(id, home)
    entry.attempt = attempt
    this.moveClock(entry.lane)
    this.setState(entry, CARRY_LEASED)
  }

  /** It was handed out no later than its batch was written: the slot's delay counts from there. */
  private moveClock(lane: number): void {
    const { slots, lanes } = this.state.ready
    const slot = lanes.slotOf(lane)
    const { delayMs } = slots.limitsOfSlot(slot)
    if (delayMs > 0) slots.setNotBefore(slot, Math.max(slots.notBefore(slot), this.time + delayMs))
  }

  private note(segmentId: number): void {
    if (segmentId > this.highestSegmentId) this.highestSegmentId = segmentId
  }

  /** A job that ends needs not be read from its home. */
  private finish(id: number, home: Home): void {
    this.note(home.segment)
    if (this.jobs.has(id)) {
      this.moveClock(this.jobs.nodeOf(id) >= 0 ? this.jobs.laneOf(id) : (this.jobs.entryOf(id) as JobEntry).lane)
      this.end(id)
      return
    }
    const { segment, ordinal } = this.locate(id, home)
    segment.consume(ordinal)
  }

  ack(id: number, home: Home): void {
    this.finish(id, home)
    this.state.counters.acked++
  }

  drop(id: number, home: Home): void {
    this.finish(id, home)
  }

  retry(id: number, home: Home, attempt: number, failures: number, due: number, reason: string): void {
    const entry = this.find(id, home)
    entry.attempt = attempt
    entry.failures = failures
    entry.due = due
    entry.reason = reason
    this.setState(entry, due > 0 ? CARRY_DELAYED : CARRY_READY)
    this.state.counters.retried++
  }

  bury(id: number, home: Home, attempt: number, failures: number, reason: string): void {
    const entry = this.find(id, home)
    entry.attempt = attempt
    entry.failures = failures
    entry.due = Math.floor(this.time)
    entry.reason = reason
    this.setState(entry, CARRY_DEAD)
    this.state.counters.buried++
  }

  requeue(id: number, home: Home): void {
    const entry = this.find(id, home)
    entry.attempt = 0
    entry.failures = 0
    entry.due = 0
    entry.reason = ''
    this.setState(entry, CARRY_READY)
    this.state.counters.requeued++
  }

  release(id: number, home: Home, attempt: number, expired: boolean): void {
    const entry = this.find(id, home)
    entry.attempt = attempt
    this.setState(entry, CARRY_READY)
    if (expired) this.state.counters.expired++
  }

  seen(buffer: Buffer, at: number): void {
    this.state.seen.add(buffer, at)
  }

  forget(buffer: Buffer, at: number): void {
    this.state.seen.forget(buffer, at)
  }

  set(key: string, value: Buffer): void {
    this.state.setValue(key, Buffer.from(value))
  }

  unset(key: string): void {
    this.state.setValue(key, undefined)
  }

  slot(name: string, notBefore: number): void {
    const { ready } = this.state
    const slot = ready.slot(name)
    ready.slots.setNotBefore(slot, laterClock(ready.slots.notBefore(slot), notBefore))
  }

  open(recovered: number): void {
    // What that opening found leased, it gave back.
    for (const id of this.leased) (this.jobs.entryOf(id) as JobEntry).state = CARRY_READY
    this.leased.clear()
    this.state.counters.recovered += recovered
  }

  duplicates(count: number): void {
    this.state.counters.duplicates += count
  }

  close(): void {}

  /** R9: fills lanes, delays and dead letters. Returns the jobs that were leased, which are given back or given up. */
  finishReplay(): JobEntry[] {
    const { state } = this
    for (const bucket of state.buckets.values()) {
      for (const segment of bucket.store?.segments ?? []) {
        for (const { name, first, count, lowestId, highestId } of segment.lanes()) {
          state.ready.addRun(state.ready.lane(bucket, name), segment, first, first + count, lowestId, highestId)
        }
        segment.dropLanes()
      }
    }
    for (const segment of state.delayed.store.segments) state.delayed.addSegment(segment)
    for (const segment of state.dead.store.segments) state.dead.addSegment(segment)
    const recovered: JobEntry[] = []
    const ready: JobEntry[] = []
    for (const entry of this.jobs.entries()) {
      if (entry.state === CARRY_LEASED) recovered.push(entry)
      else if (entry.state === CARRY_DELAYED) state.delayed.push(entry)
      else if (entry.state === CARRY_DEAD) state.dead.put(entry)
      else {
        assert(entry.state === CARRY_READY)
        ready.push(entry)
      }
    }
    // By rising id, and above every id that a segment has: as a lane wants its list.
    this.jobs.forEachNode((node, lane) => state.ready.push(lane, node))
    recovered.sort(byId)
    ready.sort(byId)
    for (const entry of ready) {
      entry.due = 0
      state.ready.giveBack(entry)
    }
    return recovered
  }
}

const byId = (a: JobEntry, b: JobEntry): number => a.id - b.id
