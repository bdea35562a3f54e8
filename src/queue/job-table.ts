/**
 * The jobs that wait in memory: six words each instead of an object, linked into the lists of their lanes. There are
 * hundreds of thousands of them, and the collector never sees one. Also counts what all jobs in memory cost.
 *
 * Invariants: a node that is linked has a chunk, or stands for an entry that came back; a chunk has a number exactly while
 * nodes point into it.
 */
import { assert } from '../assert.js'
import { ENTRY_OVERHEAD_BYTES, NODE_OVERHEAD_BYTES } from '../limits.js'
import type { Chunk, JobEntry } from './job-entry.js'
import { PAGE_BITS, PAGE_MASK, RecordPages } from './record-pages.js'

const WORDS = 6
const NEXT = 0
/** Number of the chunk; of the lane, as long as the node has no chunk. */
const CHUNK = 1
const START = 2
const END = 3
const ID_LOW = 4
const ID_HIGH = 5
const TWO_32 = 2 ** 32
export const NO_JOB = -1
/** In place of a chunk's number: the node stands for an entry. */
const ENTRY = -1

export class JobTable {
  /** Chunks that hold live jobs, plus what each job costs beside its bytes. */
  memoryBytes = 0
  private readonly records = new RecordPages(WORDS)
  private readonly pages = this.records.pages
  private readonly chunks: (Chunk | undefined)[] = []
  private readonly freeChunks: number[] = []
  private readonly entries = new Map<number, JobEntry>()

  /** A node that is in no list; `start` and `end` may still be moved by `settle`. */
  add(id: number, lane: number, start: number, end: number): number {
    const node = this.records.allocate()
    const page = this.pages[node >>> PAGE_BITS]
    const at = (node & PAGE_MASK) * WORDS
    page[at + NEXT] = NO_JOB
    page[at + CHUNK] = lane
    page[at + START] = start
    page[at + END] = end
    page[at + ID_LOW] = id
    page[at + ID_HIGH] = id / TWO_32
    return node
  }

  /** Of a node that was not settled yet. */
  laneOfNew(node: number): number {
    return this.pages[node >>> PAGE_BITS][(node & PAGE_MASK) * WORDS + CHUNK]
  }

  /** The node's bytes are in `chunk`, `base` further on than it was told. */
  settle(node: number, chunk: Chunk, base: number): void {
    const page = this.pages[node >>> PAGE_BITS]
    const at = (node & PAGE_MASK) * WORDS
    if (chunk.waiting++ === 0) this.number(chunk)
    this.hold(chunk, NODE_OVERHEAD_BYTES)
    page[at + CHUNK] = chunk.number
    page[at + START] += base
    page[at + END] += base
  }

  /** The node's bytes are somewhere else now: the same content in another chunk. */
  move(node: number, chunk: Chunk, start: number, end: number): void {
    const page = this.pages[node >>> PAGE_BITS]
    const at = (node & PAGE_MASK) * WORDS
    this.leave(page[at + CHUNK])
    page[at + START] = start
    page[at + END] = end
    this.settle(node, chunk, 0)
  }

  private leave(number: number): void {
    const chunk = this.chunks[number] as Chunk
    if (--chunk.waiting === 0) {
      this.chunks[number] = undefined
      this.freeChunks.push(number)
      chunk.number = -1
    }
    this.letGo(chunk, NODE_OVERHEAD_BYTES)
  }

  /** A node for an entry that came back and waits in a list now. */
  addEntry(entry: JobEntry): number {
    const node = this.add(entry.id, ENTRY, entry.start, entry.end)
    this.entries.set(node, entry)
    return node
  }

  private number(chunk: Chunk): void {
    chunk.number = this.freeChunks.pop() ?? this.chunks.length
    this.chunks[chunk.number] = chunk
  }

  next(node: number): number {
    return this.pages[node >>> PAGE_BITS][(node & PAGE_MASK) * WORDS + NEXT]
  }

  setNext(node: number, next: number): void {
    this.pages[node >>> PAGE_BITS][(node & PAGE_MASK) * WORDS + NEXT] = next
  }

  id(node: number): number {
    const page = this.pages[node >>> PAGE_BITS]
    const at = (node & PAGE_MASK) * WORDS
    return page[at + ID_HIGH] * TWO_32 + (page[at + ID_LOW] >>> 0)
  }

  /** Bytes of the job record. */
  length(node: number): number {
    const page = this.pages[node >>> PAGE_BITS]
    const at = (node & PAGE_MASK) * WORDS
    return page[at + END] - page[at + START]
  }

  start(node: number): number {
    return this.pages[node >>> PAGE_BITS][(node & PAGE_MASK) * WORDS + START]
  }

  end(node: number): number {
    return this.pages[node >>> PAGE_BITS][(node & PAGE_MASK) * WORDS + END]
  }

  /** The entry the node stands for; undefined for a job that has not been out. */
  entry(node: number): JobEntry | undefined {
    return this.pages[node >>> PAGE_BITS][(node & PAGE_MASK) * WORDS + CHUNK] === ENTRY
      ? this.entries.get(node)
      : undefined
  }

  chunk(node: number): Chunk {
    const number = this.pages[node >>> PAGE_BITS][(node & PAGE_MASK) * WORDS + CHUNK]
    const chunk = number === ENTRY ? this.entries.get(node)?.chunk : this.chunks[number]
    assert(chunk !== undefined, 'a waiting job has its bytes')
    return chunk
  }

  /** The node goes; the chunk is let go, an entry it stood for is the caller's again. */
  remove(node: number): void {
    const number = this.pages[node >>> PAGE_BITS][(node & PAGE_MASK) * WORDS + CHUNK]
    if (number === ENTRY) this.entries.delete(node)
    else this.leave(number)
    this.records.free(node)
  }

  /** A node that was never settled goes. */
  forget(node: number): void {
    this.records.free(node)
  }

  hold(chunk: Chunk | undefined, overheadBytes: number = ENTRY_OVERHEAD_BYTES): void {
    this.memoryBytes += overheadBytes
    if (chunk !== undefined && chunk.live++ === 0) this.memoryBytes += chunk.bytes
  }

  letGo(chunk: Chunk | undefined, overheadBytes: number = ENTRY_OVERHEAD_BYTES): void {
    this.memoryBytes -= overheadBytes
    if (chunk !== undefined && --chunk.live === 0) this.memoryBytes -= chunk.bytes
  }
}
