/** One priority level, or its twin for start requests, or its twin for what cannot be written to disk. */
import { emptyJobHeader, readJobHeader } from '../store/job-record.js'
import type { SegmentRecord } from '../store/segment.js'
import type { SegmentSet } from '../store/segment-set.js'
import type { Lane } from './lane.js'

/** Among buckets of equal priority the lower is served first. */
export const KIND_MEMORY = 0
export const KIND_ORDINARY = 1
export const KIND_START = 2

export class Bucket {
  readonly name: string
  readonly priority: number
  readonly kind: number
  /** By slot name. */
  readonly lanes = new Map<string, Lane>()
  /** Its files; undefined for what is only in memory. */
  readonly store: SegmentSet | undefined
  private readonly header = emptyJobHeader()

  constructor(name: string, priority: number, kind: number, store: SegmentSet | undefined) {
    this.name = name
    this.priority = priority
    this.kind = kind
    this.store = store
  }

  readId(record: SegmentRecord): number {
    return readJobHeader(record.buffer, record.start, record.end, this.header).id
  }
}

/** Negative: `a` is served first. */
export function compareBuckets(a: Bucket, b: Bucket): number {
  return b.priority - a.priority || a.kind - b.kind
}
