/**
 * LMDB through lmdb-js: jobs under one number that sorts by priority, then arrival; fingerprints in a database of their own;
 * values in its own msgpackr encoding with shared structures. `process` leaves out the sync (noSync: pages are written to
 * the file at commit, so kill -9 takes nothing), `power` waits for the flush of each commit. Each batch is one transaction.
 */
import { join } from 'node:path'
import { type BenchRequest, slotOfUrl } from '../workload.js'
import type { Driver, OpenOptions, Peer } from './driver.js'
import { peerModule, print } from './modules.js'

interface Entry {
  key: Key
  value: BenchRequest
}
interface Store {
  put(key: Key | Buffer, value: unknown): Promise<boolean>
  get(key: Key | Buffer): unknown
  remove(key: Key): Promise<boolean>
  doesExist(key: Buffer): boolean
  getRange(options: object): Iterable<Entry>
  openDB(options: object): Store
  transactionSync<T>(work: () => T): T
  readonly flushed: Promise<unknown>
  close(): Promise<void>
}
type Key = number | [string, number]

/** Arrivals inside one priority; the key is below 2^53 and therefore exact. */
const RANK_STEP = 2 ** 44
const RANK_OF_ZERO = 100
const NOTHING = Buffer.alloc(0)

class Lmdb implements Driver {
  private readonly root: Store
  private readonly jobs: Store
  private readonly seen: Store
  private readonly power: boolean
  private readonly byHost: boolean
  private seq = 1
  private readonly firstOfHost = new Map<string, number[]>()
  private readonly rotation: string[] = []
  private rotationAt = 0
  private taken: Key | undefined

  constructor(open: (options: object) => Store, { directory, durability, layout }: OpenOptions) {
    this.power = durability === 'power'
    this.byHost = layout === 'hosts'
    const sync = this.power ? {} : { noSync: true }
    this.root = open({ path: join(directory, 'data.mdb'), maxDbs: 4, noMemInit: true, ...sync })
    this.jobs = this.root.openDB({ name: 'jobs', sharedStructuresKey: Symbol.for('structures') })
    this.seen = this.root.openDB({ name: 'seen', keyEncoding: 'binary', encoding: 'binary' })
    if (!this.byHost) this.seq = this.lastSeq() + 1
  }

  private lastSeq(): number {
    let last = 0
    for (let end: number | undefined = Number.MAX_SAFE_INTEGER; end !== undefined; ) {
      const [entry]: Entry[] = [...this.jobs.getRange({ start: end, reverse: true, limit: 1 })]
      if (entry === undefined) return last
      last = Math.max(last, (entry.key as number) % RANK_STEP)
      // The last of each priority: what sorts before the first key that this one could have.
      end = Math.floor((entry.key as number) / RANK_STEP) * RANK_STEP
    }
    return last
  }

  private put(request: BenchRequest): Promise<boolean> {
    const seq = this.seq++
    if (!this.byHost) return this.jobs.put((RANK_OF_ZERO - request.priority) * RANK_STEP + seq, request)
    const host = slotOfUrl(request.url)
    const waiting = this.firstOfHost.get(host)
    if (waiting === undefined) {
      this.firstOfHost.set(host, [seq])
      this.rotation.push(host)
    } else waiting.push(seq)
    return this.jobs.put([host, seq], request)
  }

  private putFresh(batch: readonly BenchRequest[]): number {
    let fresh = 0
    for (const request of batch) {
      const key = print(request.url)
      if (this.seen.doesExist(key)) continue
      this.seen.put(key, NOTHING)
      this.put(request)
      fresh++
    }
    return fresh
  }

  private async committed<T>(result: T): Promise<T> {
    if (this.power) await this.root.flushed
    return result
  }

  push(batch: readonly BenchRequest[]): Promise<void> {
    return this.committed(
      this.root.transactionSync(() => {
        for (const request of batch) this.put(request)
      }),
    )
  }

  /** Its own batching: puts of one turn are one transaction. */
  async pushOne(request: BenchRequest): Promise<void> {
    await this.put(request)
    if (this.power) await this.root.flushed
  }

  pop(max: number): Promise<BenchRequest[]> {
    return this.committed(this.root.transactionSync(() => (this.byHost ? this.popHosts(max) : this.popInOrder(max))))
  }

  private popInOrder(max: number): BenchRequest[] {
    const popped: BenchRequest[] = []
    const keys: Key[] = []
    for (const { key, value } of this.jobs.getRange({ limit: max })) {
      keys.push(key)
      popped.push(value)
    }
    for (const key of keys) this.jobs.remove(key)
    return popped
  }

  private popHosts(max: number): BenchRequest[] {
    const popped: BenchRequest[] = []
    while (popped.length < max && this.rotationAt < this.rotation.length) {
      const host = this.rotation[this.rotationAt++]
      const waiting = this.firstOfHost.get(host) as number[]
      const key: Key = [host, waiting.shift() as number]
      popped.push(this.jobs.get(key) as BenchRequest)
      this.jobs.remove(key)
      if (waiting.length > 0) this.rotation.push(host)
    }
    return popped
  }

  offer(batch: readonly BenchRequest[]): Promise<number> {
    return this.committed(this.root.transactionSync(() => this.putFresh(batch)))
  }

  async takeOne(): Promise<BenchRequest | undefined> {
    for (const { key, value } of this.jobs.getRange({ limit: 1 })) {
      this.taken = key
      return value
    }
    return undefined
  }

  finish(links: readonly BenchRequest[]): Promise<number> {
    return this.committed(
      this.root.transactionSync(() => {
        if (this.taken !== undefined) this.jobs.remove(this.taken)
        return this.putFresh(links)
      }),
    )
  }

  async settle(): Promise<void> {}

  close(): Promise<void> {
    return this.root.close()
  }
}

export const lmdb: Peer = {
  name: 'lmdb',
  order: 'priority',
  share: 1,
  modules: true,
  setting:
    'lmdb-js 3.5, noSync / synced commits, transactionSync per batch, msgpackr with shared structures, SHA-1 keys',
  lacks: () => undefined,
  load: async () => {
    const { open } = await peerModule<{ open: (options: object) => Store }>('lmdb')
    return async (options) => new Lmdb(open, options)
  },
}
