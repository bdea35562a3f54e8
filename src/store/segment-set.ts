/**
 * The sealed segments of one bucket and its info.json. `stage` publishes the next generation beside the committed one;
 * `commit` and `abandon` follow active.json's fate. Nothing the committed generation names is removed before `commit`.
 */
import { assert } from '../assert.js'
import type { FileSystem } from '../env/file-system.js'
import { errorCode, ioError } from '../errors.js'
import {
  type BucketGeneration,
  type ConsumedSet,
  EMPTY_GENERATION,
  readBucketInfo,
  writeBucketInfo,
} from './bucket-info.js'
import type { FileCache } from './file-cache.js'
import { INFO_FILE, join, segmentName } from './file-names.js'
import { type BlockCache, openSegment, type Segment } from './segment.js'

export class SegmentSet {
  readonly name: string
  readonly directory: string
  /** Of the committed generation, oldest first. */
  segments: Segment[] = []
  private committed: BucketGeneration = EMPTY_GENERATION
  private staged: { generation: BucketGeneration; segments: Segment[] } | undefined
  private nextFile = 0
  private readonly files: FileSystem
  private readonly handles: FileCache

  constructor(name: string, directory: string, files: FileSystem, handles: FileCache) {
    this.name = name
    this.directory = directory
    this.files = files
    this.handles = handles
  }

  /** R3, R4. Returns the highest generation number seen. */
  load(committedGeneration: number, jobId: Buffer, cache: BlockCache): number {
    const { state, highest } = readBucketInfo(this.files, this.directory, this.name, committedGeneration)
    this.committed = state
    this.nextFile = state.nextFile
    for (const info of state.segments) {
      this.segments.push(openSegment(join(this.directory, info.file), info, jobId, this.handles, cache))
    }
    return highest
  }

  get bytes(): number {
    let sum = 0
    for (const segment of this.segments) sum += segment.bytes
    return sum
  }

  /** No file of it is on disk or about to be. */
  get isEmpty(): boolean {
    return this.segments.length === 0 && this.staged === undefined && this.nextFile === 0
  }

  get live(): number {
    let sum = 0
    for (const segment of this.segments) sum += segment.live
    return sum
  }

  /** True when info.json has segments: active.json must name the bucket. */
  get isNamed(): boolean {
    return (this.staged?.generation ?? this.committed).segments.length > 0
  }

  nextFileName(): string {
    return segmentName(this.nextFile++)
  }

  makeDirectory(): void {
    try {
      this.files.makeDirectory(this.directory)
    } catch (error) {
      throw ioError('creating', this.directory, error)
    }
  }

  /**
   * C6. `marks` are the consumed records as of the freeze, for the segments whose marks changed. Publishes info.json if
   * anything changed. `added` are sealed, synced, and their names durable.
   */
  async stage(generation: number, marks: ReadonlyMap<Segment, ConsumedSet>, added: readonly Segment[]): Promise<void> {
    assert(this.staged === undefined)
    if (added.length === 0 && this.segments.every((segment) => !marks.has(segment))) return
    const known = new Map(this.committed.segments.map((info) => [info.file, info]))
    // Without marks nothing had changed at the freeze: it had something live, whatever was taken since.
    const segments = this.segments.filter((segment) => (marks.get(segment)?.live ?? 1) > 0)
    const next: BucketGeneration = {
      generation,
      nextFile: this.nextFile,
      segments: [
        ...segments.map((segment) => {
          const changed = marks.get(segment)
          const before = known.get(segment.file)
          if (changed !== undefined) return segment.info(changed)
          assert(before !== undefined, 'a committed segment is in the committed info')
          return before
        }),
        // As of the freeze every record of a new segment was live: what was taken since is in the journal.
        ...added.map((segment) => ({ ...segment.info(segment.consumed), live: segment.index.records, consumed: '' })),
      ],
    }
    await writeBucketInfo(this.files, this.directory, this.name, next, this.committed)
    this.staged = { generation: next, segments: [...segments, ...added] }
  }

  /** C9: used-up segments go, and the directory with the last of them. */
  async commit(): Promise<void> {
    if (this.staged === undefined) return
    const kept = new Set(this.staged.segments)
    const gone = this.segments.filter((segment) => !kept.has(segment))
    this.committed = this.staged.generation
    this.segments = this.staged.segments
    this.staged = undefined
    const isEmpty = this.segments.length === 0
    if (isEmpty) {
      this.nextFile = 0
      this.committed = EMPTY_GENERATION
    }
    for (const segment of gone) {
      this.handles.drop(segment.path)
      await removeBeside(this.files, segment.path)
    }
    if (!isEmpty) return
    removeIfThere(this.files, join(this.directory, INFO_FILE))
    try {
      this.files.removeDirectory(this.directory)
    } catch {
      // Something foreign lies in it; the next open looks again.
    }
  }

  /** The checkpoint failed. A published info.json still holds the committed generation. */
  abandon(added: readonly Segment[]): void {
    this.staged = undefined
    for (const segment of added) removeIfThere(this.files, segment.path)
  }
}

/** As `removeIfThere`, beside the running work. */
export async function removeBeside(files: FileSystem, path: string): Promise<void> {
  try {
    await files.remove(path)
  } catch {
    // Space is lost until the next open looks again.
  }
}

/** Removing what no manifest names: a failure costs space, not truth, and the next open tries again. */
export function removeIfThere(files: FileSystem, path: string): boolean {
  try {
    files.unlink(path)
    return true
  } catch (error) {
    return errorCode(error) === 'ENOENT'
  }
}
