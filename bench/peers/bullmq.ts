/**
 * BullMQ on a Redis of the bench's own: jobs added in bulk with a priority, taken by a worker without a loop of its own, a
 * hundred at a time in one pipeline; finishing a job fetches the next, as its workers do. Duplicates are found by BullMQ
 * itself, by job ids; for that, finished jobs stay in Redis. Priorities count from 1, the lowest number first.
 */
import { existsSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import type { BenchRequest } from '../workload.js'
import type { Driver, OpenOptions, Peer } from './driver.js'
import { peerModule, print } from './modules.js'
import { type Client, connect, redisMissing, type Server, startRedis } from './redis-server.js'

interface Job {
  readonly data: BenchRequest
  moveToCompleted(result: unknown, token: string, fetchNext: boolean): Promise<unknown[]>
}
interface Queue {
  addBulk(jobs: { name: string; data: BenchRequest; opts: object }[]): Promise<unknown[]>
  add(name: string, data: BenchRequest, opts: object): Promise<unknown>
  close(): Promise<void>
}
interface Worker {
  getNextJob(token: string, options: { block: boolean }): Promise<Job | undefined>
  close(force: boolean): Promise<void>
}
interface Module {
  Queue: new (name: string, options: object) => Queue
  Worker: new (name: string, handler: null, options: object) => Worker
}

const NAME = 'bench'
const TOKEN = 'bench'
const HIGHEST = 3

class BullMq implements Driver {
  readonly serverPid: number
  private readonly server: Server
  private readonly clients: readonly Client[]
  private readonly queue: Queue
  private readonly worker: Worker
  private readonly crawl: boolean
  private taken: Job | undefined

  constructor(bullmq: Module, server: Server, clients: readonly [Client, Client], options: OpenOptions) {
    this.server = server
    this.serverPid = server.pid
    this.clients = clients
    this.crawl = options.layout === 'crawl'
    this.queue = new bullmq.Queue(NAME, { connection: clients[0] })
    const keep = { removeOnComplete: this.crawl ? { count: -1 } : { count: 0 } }
    // Leases are not renewed here: no run is longer than a lock that is made this long.
    this.worker = new bullmq.Worker(NAME, null, {
      connection: clients[1],
      autorun: false,
      lockDuration: 3_600_000,
      ...keep,
    })
  }

  private jobOf(request: BenchRequest): { name: string; data: BenchRequest; opts: object } {
    const opts = { priority: HIGHEST - request.priority, removeOnComplete: !this.crawl }
    if (!this.crawl) return { name: 'r', data: request, opts }
    return { name: 'r', data: request, opts: { ...opts, jobId: print(request.url).toString('hex') } }
  }

  async push(batch: readonly BenchRequest[]): Promise<void> {
    await this.queue.addBulk(batch.map((request) => this.jobOf(request)))
  }

  async pushOne(request: BenchRequest): Promise<void> {
    const { name, data, opts } = this.jobOf(request)
    await this.queue.add(name, data, opts)
  }

  async pop(max: number): Promise<BenchRequest[]> {
    const fetched = await Promise.all(
      Array.from({ length: max }, () => this.worker.getNextJob(TOKEN, { block: false })),
    )
    const jobs = fetched.filter((job) => job !== undefined)
    await Promise.all(jobs.map((job) => job.moveToCompleted(0, TOKEN, false)))
    return jobs.map(({ data }) => data)
  }

  /** BullMQ does not say which of the jobs were there before, so nobody knows how many were new. */
  async offer(batch: readonly BenchRequest[]): Promise<number> {
    await this.push(batch)
    return Number.NaN
  }

  async takeOne(): Promise<BenchRequest | undefined> {
    this.taken = await this.worker.getNextJob(TOKEN, { block: false })
    return this.taken?.data
  }

  /** The links first: a crash between the two repeats a page and loses nothing. */
  async finish(links: readonly BenchRequest[]): Promise<number> {
    await this.push(links)
    await this.taken?.moveToCompleted(0, TOKEN, false)
    return Number.NaN
  }

  async settle(): Promise<void> {}

  async close(): Promise<void> {
    await this.worker.close(true)
    await this.queue.close()
    for (const client of this.clients) client.disconnect()
    await this.server.stop()
  }
}

export const bullmq: Peer = {
  name: 'bullmq',
  order: 'priority',
  share: 0.1,
  modules: true,
  setting: 'BullMQ 6.7 on Redis 7 (AOF everysec / always), addBulk, 100 getNextJob at once; jobId is the SHA-1',
  lacks: (scenario) => (scenario === '8' ? 'queues per group are not in the free edition' : redisMissing()),
  load: async () => {
    const module = await peerModule<Module>('bullmq')
    return async (options) => {
      const socket = join(options.directory, 's')
      if (existsSync(socket)) rmSync(socket)
      const server = await startRedis(options.directory, options.durability)
      const clients: [Client, Client] = [await connect(server), await connect(server)]
      return new BullMq(module, server, clients, options)
    }
  },
}
