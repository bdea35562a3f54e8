/**
 * Crawlee's RequestQueue in its storage on disk, as its crawlers use it. It always looks for duplicates, has no priorities
 * (only a front and a back), and writes a JSON file per request without syncing it.
 */
import type { BenchRequest } from '../workload.js'
import { absent, type Driver, type OpenOptions, type Peer } from './driver.js'
import { peerModule } from './modules.js'

interface CrawleeRequest {
  readonly url: string
  readonly userData: { priority: number; d: number; r: string }
}
interface Added {
  processedRequests: { wasAlreadyPresent: boolean }[]
}
interface RequestQueue {
  addRequests(requests: object[], options?: object): Promise<Added>
  fetchNextRequest(): Promise<CrawleeRequest | null>
  markRequestHandled(request: CrawleeRequest): Promise<unknown>
}
interface Core {
  RequestQueue: { open(name: string, options: object): Promise<RequestQueue> }
  Configuration: new (options: object) => object
  log: { setLevel(level: number): void }
}
interface Storage {
  MemoryStorage: new (options: object) => { teardown(): Promise<void> }
}

/** Requests that it locks and reads at once; asking for more at the same time finds the head empty. */
const HEAD_COUNT = 25

class Crawlee implements Driver {
  private readonly queue: RequestQueue
  private readonly storage: { teardown(): Promise<void> }
  private taken: CrawleeRequest | undefined

  constructor(queue: RequestQueue, storage: { teardown(): Promise<void> }) {
    this.queue = queue
    this.storage = storage
  }

  async push(batch: readonly BenchRequest[]): Promise<void> {
    await this.offer(batch)
  }

  pushOne = (): never => absent('crawlee', 'sync')

  async pop(max: number): Promise<BenchRequest[]> {
    const requests: CrawleeRequest[] = []
    while (requests.length < max) {
      const many = Math.min(HEAD_COUNT, max - requests.length)
      const fetched = await Promise.all(Array.from({ length: many }, () => this.queue.fetchNextRequest()))
      const found = fetched.filter((request) => request !== null)
      if (found.length === 0) break
      requests.push(...found)
    }
    await Promise.all(requests.map((request) => this.queue.markRequestHandled(request)))
    return requests.map(requestOf)
  }

  async offer(batch: readonly BenchRequest[]): Promise<number> {
    const { processedRequests } = await this.queue.addRequests(
      batch.map(({ url, priority, meta }) => ({ url, userData: { priority, ...meta } })),
    )
    return processedRequests.filter(({ wasAlreadyPresent }) => !wasAlreadyPresent).length
  }

  async takeOne(): Promise<BenchRequest | undefined> {
    this.taken = (await this.queue.fetchNextRequest()) ?? undefined
    return this.taken === undefined ? undefined : requestOf(this.taken)
  }

  /** The links first: a crash between the two repeats a page and loses nothing. */
  async finish(links: readonly BenchRequest[]): Promise<number> {
    const added = await this.offer(links)
    if (this.taken !== undefined) await this.queue.markRequestHandled(this.taken)
    return added
  }

  async settle(): Promise<void> {}

  async close(): Promise<void> {
    await this.storage.teardown()
  }
}

function requestOf({ url, userData: { priority, d, r } }: CrawleeRequest): BenchRequest {
  return { url, priority, meta: { d, r } }
}

export const crawlee: Peer = {
  name: 'crawlee',
  order: 'fifo',
  share: 0.02,
  modules: true,
  setting: 'Crawlee 3.18 RequestQueue, MemoryStorage with persistStorage (a file per request), no priorities',
  lacks: (scenario, durability) =>
    scenario === '8' ? 'it has one queue without hosts' : durability === 'power' ? 'it never syncs' : undefined,
  load: async () => {
    const { RequestQueue, Configuration, log } = await peerModule<Core>('@crawlee/core')
    const { MemoryStorage } = await peerModule<Storage>('@crawlee/memory-storage')
    log.setLevel(1)
    return async ({ directory }: OpenOptions) => {
      const storage = new MemoryStorage({ localDataDirectory: directory, persistStorage: true, writeMetadata: false })
      const config = new Configuration({ purgeOnStart: false, availableMemoryRatio: 0.9 })
      const queue = await RequestQueue.open('bench', { storageClient: storage, config })
      return new Crawlee(queue, storage)
    }
  },
}
