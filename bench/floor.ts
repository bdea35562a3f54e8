/**
 * What any durable queue in one file has to pay at least: the same fields put into a buffer behind a length and a CRC-32,
 * written with as many write calls and made durable with as many fdatasyncs. No fingerprint is computed, nothing is looked
 * up, nothing is kept in memory. Invariant: where the floor could be read two ways, the cheaper one is taken (one checksum
 * a write, the sync on the calling thread), so that a ratio never flatters Holdfast.
 */
import { closeSync, fdatasync, fdatasyncSync, openSync, readdirSync, readFileSync, writeSync } from 'node:fs'
import { join } from 'node:path'
import { crc32 } from 'node:zlib'
import { Encoder } from 'cbor-x'
import { collectGarbage, type Latency, latencyOf, openLoop, startClock, turn } from './measure.js'
import { type BenchRequest, slotOfUrl } from './workload.js'

const HEADER_BYTES = 8
/** Room for the fingerprint, which the floor leaves as it is: the bytes are written, the hash is not paid for. */
const FINGERPRINT_BYTES = 16
const RECORD_BYTES_MAX = 1024
const ACK = 4
const ADD = 1

const codec = new Encoder({ useRecords: false, structuredClone: true })

export class FloorFile {
  private readonly descriptor: number
  private buffer = Buffer.alloc(1 << 20)
  private position = HEADER_BYTES
  private syncRunning: Promise<void> | undefined
  private syncWanted: Promise<void> | undefined
  bytes = 0

  constructor(path: string) {
    this.descriptor = openSync(path, 'w')
  }

  putRequest(id: number, request: BenchRequest, addedAtMs: number): void {
    this.ensure(RECORD_BYTES_MAX)
    const { buffer } = this
    let at = this.position
    buffer[at++] = ADD
    buffer[at++] = 0
    at = putVarint(buffer, at, id)
    buffer[at++] = request.priority & 0xff
    at = buffer.writeUIntLE(addedAtMs, at, 6)
    at = putString(buffer, at, slotOfUrl(request.url))
    at += FINGERPRINT_BYTES
    at = putString(buffer, at, request.url)
    const open = codec.encode({ m: request.meta })
    buffer.set(open, at)
    this.position = at + open.length
  }

  putAck(id: number): void {
    this.ensure(16)
    this.buffer[this.position++] = ACK
    this.position = putVarint(this.buffer, this.position, id)
    this.buffer[this.position++] = 0
  }

  private ensure(bytes: number): void {
    if (this.position + bytes <= this.buffer.length) return
    const larger = Buffer.alloc(this.buffer.length * 2)
    this.buffer.copy(larger, 0, 0, this.position)
    this.buffer = larger
  }

  /** One frame, one write call. */
  write(): void {
    const { buffer, position } = this
    buffer.writeUInt32LE(position - HEADER_BYTES, 0)
    buffer.writeUInt32LE(crc32(buffer.subarray(HEADER_BYTES, position)), 4)
    const written = writeSync(this.descriptor, buffer, 0, position, this.bytes)
    if (written !== position) throw new Error(`the floor wrote ${written} of ${position} bytes`)
    this.bytes += position
    this.position = HEADER_BYTES
  }

  syncNow(): void {
    fdatasyncSync(this.descriptor)
  }

  /** Group commit: whoever comes while a sync runs shares the next one. For the latency floor, where callers overlap. */
  syncShared(): Promise<void> {
    if (this.syncRunning === undefined) {
      this.syncRunning = this.sync().finally(() => {
        this.syncRunning = undefined
      })
      return this.syncRunning
    }
    this.syncWanted ??= this.syncRunning.then(() => {
      this.syncWanted = undefined
      return this.syncShared()
    })
    return this.syncWanted
  }

  private sync(): Promise<void> {
    return new Promise((resolve, reject) => {
      fdatasync(this.descriptor, (error) => (error === null ? resolve() : reject(error)))
    })
  }

  close(): void {
    closeSync(this.descriptor)
  }
}

export interface FloorWork {
  readonly requests: readonly BenchRequest[]
  /** Small records that end a job, beside the requests. */
  readonly acks: number
  /** Write calls and fdatasyncs of the contender's journal in the same run; spread evenly over the work. */
  readonly writes: number
  readonly syncs: number
  /** Turns of the event loop the contender's caller gave away. */
  readonly turns: number
}

export interface FloorResult {
  readonly ms: number
  readonly cpuMs: number
  readonly bytes: number
}

/** Does the work into one new file. */
export async function runFloor(path: string, work: FloorWork): Promise<FloorResult> {
  const { requests, acks, writes, syncs, turns } = work
  if (writes < 1) throw new Error('the contender wrote nothing, so there is no floor to compare it with')
  const file = new FloorFile(path)
  const addedAtMs = Date.now()
  collectGarbage()
  const clock = startClock()
  let request = 0
  let ack = 0
  let synced = 0
  let turned = 0
  for (let write = 1; write <= writes; write++) {
    const share = write / writes
    for (const upTo = Math.round(requests.length * share); request < upTo; request++) {
      file.putRequest(request + 1, requests[request], addedAtMs)
    }
    for (const upTo = Math.round(acks * share); ack < upTo; ack++) file.putAck(ack + 1)
    file.write()
    if (synced < Math.floor(syncs * share)) {
      file.syncNow()
      synced++
    }
    if (turned < Math.floor(turns * share)) {
      await turn()
      turned++
    }
  }
  // More syncs than writes: what is left has nothing to write but was asked for all the same.
  for (; synced < syncs; synced++) file.syncNow()
  const { ms, cpuMs } = clock()
  file.close()
  if (request !== requests.length || ack !== acks) throw new Error('the floor left work out')
  return { ms, cpuMs, bytes: file.bytes }
}

export interface LatencyWork {
  readonly power: boolean
  readonly addsPerSecond: number
  readonly fillsPerSecond: number
  readonly fillBatch: number
  /** Used again from the front when they run out: nothing here minds. */
  readonly requests: readonly BenchRequest[]
  readonly durationMs: number
}

/** The load of the latency benchmark: what a caller waits on this machine when there is neither queue nor checkpoint. */
export async function runLatencyFloor(path: string, work: LatencyWork): Promise<Latency> {
  const { power, requests } = work
  const file = new FloorFile(path)
  let next = 0
  const put = async (many: number): Promise<void> => {
    for (let i = 0; i < many; i++, next++) file.putRequest(next, requests[next % requests.length], Date.now())
    file.write()
    if (power) await file.syncShared()
  }
  const [adds] = await openLoop(
    [
      { perSecond: work.addsPerSecond, run: () => put(1) },
      { perSecond: work.fillsPerSecond, run: () => put(work.fillBatch) },
    ],
    work.durationMs,
  )
  file.close()
  return latencyOf(adds.map((sample) => sample.ms))
}

/** The floor of opening: every file of the directory is read whole and checksummed, nothing is made of it. */
export function readAll(directory: string): { ms: number; bytes: number; checksum: number } {
  const begun = performance.now()
  let bytes = 0
  let checksum = 0
  for (const entry of readdirSync(directory, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile()) continue
    const content = readFileSync(join(entry.parentPath, entry.name))
    bytes += content.length
    checksum = crc32(content, checksum)
  }
  return { ms: performance.now() - begun, bytes, checksum }
}

function putVarint(buffer: Buffer, start: number, value: number): number {
  let at = start
  let rest = value
  for (; rest >= 0x80; rest >>>= 7) buffer[at++] = (rest & 0x7f) | 0x80
  buffer[at++] = rest
  return at
}

function putString(buffer: Buffer, at: number, value: string): number {
  if (value.length < 40) {
    // Short strings are copied here: the call into the runtime costs more than the copy.
    buffer[at] = value.length
    for (let i = 0; i < value.length; i++) buffer[at + 1 + i] = value.charCodeAt(i)
    return at + 1 + value.length
  }
  const bytes = buffer.write(value, at + 2, 'utf8')
  buffer.writeUInt16LE(bytes, at)
  return at + 2 + bytes
}
