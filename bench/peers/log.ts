/**
 * The bare log: the floor under every figure. One file, one frame with a length and a CRC-32 per batch, one write per frame,
 * an fdatasync where one is asked for; what was popped is marked by a frame that holds the position. It knows no priority,
 * no lease and no compaction, and reads by decoding what it wrote in order. Duplicates are found by a Set in memory.
 */
import { closeSync, fdatasyncSync, ftruncateSync, openSync, readFileSync, readSync, writeSync } from 'node:fs'
import { join } from 'node:path'
import { crc32 } from 'node:zlib'
import { Encoder } from 'cbor-x'
import { type BenchRequest, slotOfUrl } from '../workload.js'
import { type Driver, type OpenOptions, type Peer, TurnBatch } from './driver.js'

const HEADER_BYTES = 8
const READ_BYTES = 1 << 20

/** Every frame holds how many requests were popped since the beginning, and the requests that are new with it. */
type Frame = [popped: number, requests: readonly BenchRequest[]]

const codec = new Encoder({ useRecords: false })
const NOTHING: readonly BenchRequest[] = []

export class BareLog implements Driver {
  private readonly descriptor: number
  private readonly power: boolean
  private readonly byHost: boolean
  private readonly seen = new Set<string>()
  private end = 0
  private popped = 0
  private readAt = 0
  private readBuffer = Buffer.alloc(0)
  private readyAt = 0
  private ready: readonly BenchRequest[] = []
  /** Layout 'hosts' only: positions cannot be in rotation in one log, so the requests themselves wait in memory. */
  private readonly hosts = new Map<string, BenchRequest[]>()
  private readonly turns = new TurnBatch((batch) => this.write(batch))

  constructor({ directory, durability, layout }: OpenOptions) {
    this.power = durability === 'power'
    this.byHost = layout === 'hosts'
    const path = join(directory, 'log')
    this.descriptor = openSync(path, 'a+')
    this.replay(readFileSync(path))
    // A frame that a kill cut short would stand between what is whole and what comes.
    ftruncateSync(this.descriptor, this.end)
  }

  private replay(content: Buffer): void {
    while (this.end + HEADER_BYTES <= content.length) {
      const length = content.readUInt32LE(this.end)
      const start = this.end + HEADER_BYTES
      if (start + length > content.length) break
      const body = content.subarray(start, start + length)
      if (crc32(body) !== content.readUInt32LE(this.end + 4)) break
      const [popped, requests] = codec.decode(body) as Frame
      this.popped = popped
      for (const { url } of requests) this.seen.add(url)
      this.end = start + length
    }
    // What was popped before is skipped again by decoding it: the log has no index.
    let skip = this.popped
    while (skip > 0 && this.load()) {
      const step = Math.min(skip, this.ready.length - this.readyAt)
      this.readyAt += step
      skip -= step
    }
  }

  private write(requests: readonly BenchRequest[]): void {
    const body = codec.encode([this.popped, requests])
    const frame = Buffer.allocUnsafe(HEADER_BYTES + body.length)
    frame.writeUInt32LE(body.length, 0)
    frame.writeUInt32LE(crc32(body), 4)
    frame.set(body, HEADER_BYTES)
    writeSync(this.descriptor, frame)
    this.end += frame.length
    if (this.power) fdatasyncSync(this.descriptor)
  }

  async push(batch: readonly BenchRequest[]): Promise<void> {
    if (this.byHost) for (const request of batch) this.queueByHost(request)
    this.write(batch)
  }

  private queueByHost(request: BenchRequest): void {
    const host = slotOfUrl(request.url)
    const queue = this.hosts.get(host)
    if (queue === undefined) this.hosts.set(host, [request])
    else queue.push(request)
  }

  pushOne(request: BenchRequest): Promise<void> {
    return this.turns.add(request)
  }

  /** Reads frames until there are requests to hand out; false at the end of the log. */
  private load(): boolean {
    while (this.readyAt >= this.ready.length) {
      if (this.readAt >= this.end) return false
      const header = this.bytes(this.readAt, HEADER_BYTES)
      const length = header.readUInt32LE(0)
      const sum = header.readUInt32LE(4)
      const body = this.bytes(this.readAt + HEADER_BYTES, length)
      if (crc32(body) !== sum) throw new Error('a frame of the bare log does not match its checksum')
      this.readAt += HEADER_BYTES + length
      this.ready = (codec.decode(body) as Frame)[1]
      this.readyAt = 0
    }
    return true
  }

  private windowAt = 0

  private bytes(at: number, length: number): Buffer {
    if (at < this.windowAt || at + length > this.windowAt + this.readBuffer.length) {
      const wanted = Math.max(length, Math.min(READ_BYTES, this.end - at))
      this.readBuffer = Buffer.allocUnsafe(wanted)
      readSync(this.descriptor, this.readBuffer, 0, wanted, at)
      this.windowAt = at
    }
    return this.readBuffer.subarray(at - this.windowAt, at - this.windowAt + length)
  }

  async pop(max: number): Promise<BenchRequest[]> {
    const popped = this.byHost ? this.popHosts(max) : this.popInOrder(max)
    this.popped += popped.length
    if (popped.length > 0) this.write(NOTHING)
    return popped
  }

  private popInOrder(max: number): BenchRequest[] {
    const popped: BenchRequest[] = []
    while (popped.length < max && this.load()) {
      const upTo = Math.min(this.ready.length, this.readyAt + max - popped.length)
      while (this.readyAt < upTo) popped.push(this.ready[this.readyAt++])
    }
    return popped
  }

  private popHosts(max: number): BenchRequest[] {
    const popped: BenchRequest[] = []
    while (popped.length < max) {
      const next = this.hosts.entries().next()
      if (next.done) break
      const [host, queue] = next.value
      popped.push(queue[0])
      this.hosts.delete(host)
      if (queue.length > 1) this.hosts.set(host, queue.slice(1))
    }
    return popped
  }

  private fresh(batch: readonly BenchRequest[]): BenchRequest[] {
    const fresh: BenchRequest[] = []
    for (const request of batch) {
      if (this.seen.has(request.url)) continue
      this.seen.add(request.url)
      fresh.push(request)
    }
    return fresh
  }

  async offer(batch: readonly BenchRequest[]): Promise<number> {
    const fresh = this.fresh(batch)
    if (fresh.length > 0) this.write(fresh)
    return fresh.length
  }

  async takeOne(): Promise<BenchRequest | undefined> {
    if (!this.load()) return undefined
    return this.ready[this.readyAt++]
  }

  async finish(links: readonly BenchRequest[]): Promise<number> {
    const fresh = this.fresh(links)
    this.popped++
    this.write(fresh)
    return fresh.length
  }

  async settle(): Promise<void> {}

  async close(): Promise<void> {
    closeSync(this.descriptor)
  }
}

export const log: Peer = {
  name: 'bare log',
  order: 'fifo',
  share: 1,
  setting: 'one file, cbor-x, CRC-32 and one write per batch, no priorities, Set of URLs; the floor',
  lacks: () => undefined,
  load: async () => async (options) => new BareLog(options),
}
