/**
 * LevelDB through classic-level: keys sort by priority, then arrival; fingerprints under keys of their own; one batch write
 * per batch, with sync only where power loss is to be survived (without it the log is written, not synced, so kill -9 takes
 * nothing). Each priority remembers where its last pop was: reading from the front would walk over all that was deleted.
 */
import { join } from 'node:path'
import { Encoder } from 'cbor-x'
import { type BenchRequest, slotOfUrl } from '../workload.js'
import type { Driver, OpenOptions, Peer } from './driver.js'
import { peerModule, print } from './modules.js'

type Operation = { type: 'put'; key: string; value: Uint8Array } | { type: 'del'; key: string }
interface Level {
  open(): Promise<void>
  batch(operations: Operation[], options: { sync: boolean }): Promise<void>
  hasMany(keys: string[]): Promise<boolean[]>
  getMany(keys: string[]): Promise<(Uint8Array | undefined)[]>
  iterator(range: object): { all(): Promise<[string, Uint8Array][]> }
  close(): Promise<void>
}
type Constructor = new (path: string, options: object) => Level

interface Rank {
  empty: boolean
  /** The key popped last. */
  after: string
}

const PREFIX_LENGTH = 4
const codec = new Encoder({ useRecords: false })
const NOTHING = Buffer.alloc(0)
/** Ranks have three digits, so that they sort as numbers do. */
const RANK_OF_ZERO = 500
const MiB = 2 ** 20

class LevelDb implements Driver {
  private readonly sync: { sync: boolean }
  private readonly byHost: boolean
  private seq = 0
  /** By the prefix of the priority, highest first. */
  private readonly ranks = new Map<string, Rank>()
  private readonly waitingOfHost = new Map<string, string[]>()
  private readonly rotation: string[] = []
  private rotationAt = 0
  private taken: string | undefined
  private readonly level: Level

  constructor(level: Level, { durability, layout }: OpenOptions) {
    this.level = level
    this.sync = { sync: durability === 'power' }
    this.byHost = layout === 'hosts'
  }

  /** Finds the priorities and the last number of each by seeking: walking over all jobs would be the dearer opening. */
  async find(): Promise<void> {
    for (let after = 'j'; ; ) {
      const [first] = await this.level.iterator({ gt: after, lt: 'k', limit: 1 }).all()
      if (first === undefined) return
      const prefix = first[0].slice(0, PREFIX_LENGTH)
      after = `${prefix}~`
      const [last] = await this.level.iterator({ lt: after, reverse: true, limit: 1 }).all()
      this.seq = Math.max(this.seq, Number.parseInt(last[0].slice(PREFIX_LENGTH), 36))
      this.rankOf(prefix).empty = false
    }
  }

  private rankOf(prefix: string): Rank {
    let rank = this.ranks.get(prefix)
    if (rank === undefined) {
      rank = { empty: false, after: prefix }
      this.ranks.set(prefix, rank)
      const sorted = [...this.ranks].sort(([a], [b]) => (a < b ? -1 : 1))
      this.ranks.clear()
      for (const [key, value] of sorted) this.ranks.set(key, value)
    }
    return rank
  }

  private put(into: Operation[], request: BenchRequest): void {
    const number = (++this.seq).toString(36).padStart(9, '0')
    let key: string
    if (this.byHost) {
      const host = slotOfUrl(request.url)
      key = `h${host} ${number}`
      const waiting = this.waitingOfHost.get(host)
      if (waiting === undefined) {
        this.waitingOfHost.set(host, [key])
        this.rotation.push(host)
      } else waiting.push(key)
    } else {
      const prefix = `j${RANK_OF_ZERO - request.priority}`
      key = prefix + number
      this.rankOf(prefix).empty = false
    }
    into.push({ type: 'put', key, value: codec.encode(request) })
  }

  private async putFresh(into: Operation[], batch: readonly BenchRequest[]): Promise<number> {
    const keys = batch.map(({ url }) => `s${print(url).toString('base64')}`)
    const known = await this.level.hasMany(keys)
    const inBatch = new Set<string>()
    for (const [at, key] of keys.entries()) {
      if (known[at] || inBatch.has(key)) continue
      inBatch.add(key)
      into.push({ type: 'put', key, value: NOTHING })
      this.put(into, batch[at])
    }
    return inBatch.size
  }

  private write(operations: Operation[]): Promise<void> {
    return this.level.batch(operations, this.sync)
  }

  push(batch: readonly BenchRequest[]): Promise<void> {
    const operations: Operation[] = []
    for (const request of batch) this.put(operations, request)
    return this.write(operations)
  }

  /** LevelDB writes what its threads ask for at the same time as one group. */
  pushOne(request: BenchRequest): Promise<void> {
    return this.push([request])
  }

  async pop(max: number): Promise<BenchRequest[]> {
    if (this.byHost) return this.popHosts(max)
    const popped: BenchRequest[] = []
    const operations: Operation[] = []
    for (const [prefix, rank] of this.ranks) {
      if (rank.empty) continue
      const wanted = max - popped.length
      const found = await this.level.iterator({ gt: rank.after, lt: `${prefix}~`, limit: wanted }).all()
      for (const [key, value] of found) {
        operations.push({ type: 'del', key })
        popped.push(codec.decode(value))
        rank.after = key
      }
      rank.empty = found.length < wanted
      if (popped.length === max) break
    }
    if (operations.length > 0) await this.write(operations)
    return popped
  }

  private async popHosts(max: number): Promise<BenchRequest[]> {
    const keys: string[] = []
    while (keys.length < max && this.rotationAt < this.rotation.length) {
      const host = this.rotation[this.rotationAt++]
      const waiting = this.waitingOfHost.get(host) as string[]
      keys.push(waiting.shift() as string)
      if (waiting.length > 0) this.rotation.push(host)
    }
    if (keys.length === 0) return []
    const values = await this.level.getMany(keys)
    await this.write(keys.map((key) => ({ type: 'del', key })))
    return values.map((value) => codec.decode(value as Uint8Array))
  }

  async offer(batch: readonly BenchRequest[]): Promise<number> {
    const operations: Operation[] = []
    const fresh = await this.putFresh(operations, batch)
    if (fresh > 0) await this.write(operations)
    return fresh
  }

  async takeOne(): Promise<BenchRequest | undefined> {
    for (const [prefix, rank] of this.ranks) {
      if (rank.empty) continue
      const [found] = await this.level.iterator({ gt: rank.after, lt: `${prefix}~`, limit: 1 }).all()
      if (found === undefined) {
        rank.empty = true
        continue
      }
      this.taken = found[0]
      rank.after = found[0]
      return codec.decode(found[1])
    }
    return undefined
  }

  async finish(links: readonly BenchRequest[]): Promise<number> {
    const operations: Operation[] = this.taken === undefined ? [] : [{ type: 'del', key: this.taken }]
    const fresh = await this.putFresh(operations, links)
    await this.write(operations)
    return fresh
  }

  async settle(): Promise<void> {}

  close(): Promise<void> {
    return this.level.close()
  }
}

export const leveldb: Peer = {
  name: 'leveldb',
  order: 'priority',
  share: 1,
  modules: true,
  setting: 'classic-level 3.0, batch with sync false / true, 32 MiB write buffer, 64 MiB cache, cbor-x, SHA-1 keys',
  lacks: () => undefined,
  load: async () => {
    const { ClassicLevel } = await peerModule<{ ClassicLevel: Constructor }>('classic-level')
    return async (options) => {
      const level = new ClassicLevel(join(options.directory, 'level'), {
        valueEncoding: 'view',
        writeBufferSize: 32 * MiB,
        cacheSize: 64 * MiB,
      })
      await level.open()
      const driver = new LevelDb(level, options)
      await driver.find()
      return driver
    }
  },
}
