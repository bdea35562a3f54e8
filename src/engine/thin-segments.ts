/**
 * Gives disk space back. When less than half of a bucket's segments is live, the jobs of the thinnest are moved forward
 * into the journal by ordinary commits and the file goes with the next checkpoint: nothing sealed is ever rewritten.
 */

import type { ByteWriter } from '../bytes/byte-writer.js'
import { MOVE_SLICE_BYTES, SEGMENT_THIN_SHARE } from '../limits.js'
import type { Bucket } from '../queue/bucket.js'
import type { JobEntry } from '../queue/job-entry.js'
import { CARRY_READY } from '../store/format.js'
import { writeCarry } from '../store/records.js'
import type { Segment } from '../store/segment.js'
import type { SegmentLane } from '../store/segment-index.js'
import type { Operation } from './committer.js'
import type { EngineOptions } from './engine-options.js'
import type { StoreState } from './store-state.js'

/** The segment to empty next, if its bucket wastes more than it should. */
export function nextThinSegment(state: StoreState, options: EngineOptions): Segment | undefined {
  for (const bucket of state.buckets.values()) {
    const thin = thinnest(bucket.store?.segments ?? [], options)
    if (thin !== undefined) return thin
  }
  return undefined
}

/**
 * Delayed jobs and dead letters of thin segments come into memory as they are, without a record: the checkpoint that follows
 * gives them a new place, and until it commits their old one counts.
 */
export function loadThin(state: StoreState, options: EngineOptions): void {
  for (const holder of [state.delayed, state.dead]) {
    for (;;) {
      const thin = thinnest(holder.store.segments, options)
      if (thin === undefined) break
      holder.loadSegment(thin)
    }
  }
}

function thinnest(segments: readonly Segment[], options: EngineOptions): Segment | undefined {
  let records = 0
  let live = 0
  let bytes = 0
  for (const segment of segments) {
    records += segment.index.records
    live += segment.live
    bytes += segment.bytes
  }
  // A bucket that drains in order frees its files by itself: some slack, or its last file would be copied for nothing.
  const wasted = records === 0 ? 0 : bytes * (1 - live / records)
  if (live === 0 || live >= records * SEGMENT_THIN_SHARE || wasted < 2 * options.tuning.segmentBytes) return undefined
  const share = (segment: Segment): number => segment.live / segment.index.records
  return segments.filter((segment) => segment.live > 0).reduce((a, b) => (share(b) < share(a) ? b : a))
}

/** Moves some of the segment's jobs forward in one commit. They stay in their lanes, in their old order. */
export function takeForward(
  state: StoreState,
  segment: Segment,
  segmentLanes: readonly SegmentLane[],
  commit: (operation: Operation, encode: (writer: ByteWriter) => number) => Promise<void>,
): Promise<void> {
  const jobs: JobEntry[] = []
  let bytes = 0
  for (const { name, first, count } of segmentLanes) {
    if (bytes >= MOVE_SLICE_BYTES) break
    const lane = findLane(state, segment, name)
    for (let ordinal = first; ordinal < first + count && bytes < MOVE_SLICE_BYTES; ordinal++) {
      if (segment.consumed.has(ordinal)) continue
      const job = state.loadForLane(lane, segment, ordinal)
      jobs.push(job)
      bytes += job.length
    }
  }
  for (const job of jobs) {
    segment.consume(job.ordinal)
    state.own(job)
    state.ready.moved(job.lane, segment, state)
  }
  const offsets: number[] = []
  const back = (): void => {
    for (const job of jobs) state.ready.giveBack(job)
  }
  return commit(
    {
      finishing: false,
      apply: (chunk, base) => {
        for (const [i, job] of jobs.entries()) {
          const end = base + offsets[i]
          state.move(job, chunk, end - job.length, end)
          job.home = undefined
        }
        back()
      },
      // Not written: they stay in memory, and their home is where a crash finds them.
      undo: back,
    },
    (writer) => {
      for (const job of jobs) {
        const { attempt, failures, ordinal, reason } = job
        const fields = { state: CARRY_READY, segment: segment.id, ordinal, attempt, failures, due: 0, reason }
        const chunk = job.chunk as NonNullable<typeof job.chunk>
        writeCarry(writer, fields, chunk.buffer, job.start, job.end)
        offsets.push(writer.length)
      }
      return jobs.length
    },
  )
}

function findLane(state: StoreState, segment: Segment, name: string): number {
  const bucket = [...state.buckets.values()].find((one) => one.store?.segments.includes(segment)) as Bucket
  return state.ready.lane(bucket, name)
}
