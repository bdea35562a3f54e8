/** One priority level, or its twin for start requests, or its twin for what cannot be written to disk. */
import type { SegmentSet } from '../store/segment-set.js'

/** Among buckets of equal priority the lower is served first. */
export const KIND_MEMORY = 0
export const KIND_ORDINARY = 1
export const KIND_START = 2

export class Bucket {
  readonly name: string
  readonly priority: number
  readonly kind: number
  /** Its files; undefined for what is only in memory. */
  readonly store: SegmentSet | undefined
  /** By which its lanes name it. */
  number = -1
  /** Lanes there are, and lanes that have ready jobs. */
  laneCount = 0
  readyLanes = 0

  constructor(name: string, priority: number, kind: number, store: SegmentSet | undefined) {
    this.name = name
    this.priority = priority
    this.kind = kind
    this.store = store
  }
}

/** Negative: `a` is served first. */
export function compareBuckets(a: Bucket, b: Bucket): number {
  return b.priority - a.priority || a.kind - b.kind
}
