/**
 * Redis laid out as scrapy-redis does it, with its first-in-first-out queue: a list per priority, a set of fingerprints.
 * Where scrapy-redis makes several calls a script does the whole step, which is quicker and leaves nothing half done. A
 * batch is one transaction; the encoded requests are CBOR.
 */
import { existsSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { Encoder } from 'cbor-x'
import { type BenchRequest, slotOfUrl } from '../workload.js'
import type { Driver, OpenOptions, Peer } from './driver.js'
import { print } from './modules.js'
import { type Client, connect, redisMissing, type Server, startRedis } from './redis-server.js'

interface Scripts {
  popManyBuffer(keyCount: number, ...values: (string | number)[]): Promise<Buffer[]>
  peekOneBuffer(keyCount: number, ...keys: string[]): Promise<[Buffer, Buffer] | null>
  offerAll(...values: (string | number | Buffer)[]): Promise<number>
}

const POP_MANY = `
local out = {}
local wanted = tonumber(ARGV[1])
for _, key in ipairs(KEYS) do
  local got = redis.call('LPOP', key, wanted - #out)
  if got then for _, value in ipairs(got) do out[#out + 1] = value end end
  if #out == wanted then break end
end
return out`
const PEEK_ONE = `
for _, key in ipairs(KEYS) do
  local value = redis.call('LINDEX', key, 0)
  if value then return {key, value} end
end
return nil`
/** ARGV: the list whose head is done with, or ''; then fingerprint, list and request of each link. */
const OFFER_ALL = `
local added = 0
if ARGV[1] ~= '' then redis.call('LPOP', ARGV[1]) end
for at = 2, #ARGV, 3 do
  if redis.call('SADD', KEYS[1], ARGV[at]) == 1 then
    redis.call('RPUSH', ARGV[at + 1], ARGV[at + 2])
    added = added + 1
  end
end
return added`

const codec = new Encoder({ useRecords: false })
const SEEN = 'seen'

class RedisDriver implements Driver {
  readonly serverPid: number
  private readonly server: Server
  private readonly client: Client & Scripts
  private readonly byHost: boolean
  /** Keys of the lists, highest priority first. */
  private lists: string[] = []
  private readonly leftOfHost = new Map<string, number>()
  private readonly rotation: string[] = []
  private rotationAt = 0
  private taken = ''

  constructor(server: Server, client: Client, layout: OpenOptions['layout'], lists: readonly string[]) {
    this.server = server
    this.serverPid = server.pid
    this.byHost = layout === 'hosts'
    client.defineCommand('popMany', { lua: POP_MANY })
    client.defineCommand('peekOne', { lua: PEEK_ONE })
    client.defineCommand('offerAll', { lua: OFFER_ALL, numberOfKeys: 1 })
    this.client = client as Client & Scripts
    for (const list of lists) this.know(list)
  }

  private know(list: string): string {
    if (!this.lists.includes(list)) {
      this.lists = [...this.lists, list].sort((a, b) => Number(b.slice(2)) - Number(a.slice(2)))
    }
    return list
  }

  private listOf({ url, priority }: BenchRequest): string {
    if (!this.byHost) return this.know(`p:${priority}`)
    const host = slotOfUrl(url)
    const left = this.leftOfHost.get(host)
    if (left === undefined) this.rotation.push(host)
    this.leftOfHost.set(host, (left ?? 0) + 1)
    return `h:${host}`
  }

  async push(batch: readonly BenchRequest[]): Promise<void> {
    const values = new Map<string, (string | Buffer)[]>()
    for (const request of batch) {
      const list = this.listOf(request)
      const command = values.get(list)
      if (command === undefined) values.set(list, ['rpush', list, codec.encode(request)])
      else command.push(codec.encode(request))
    }
    await this.client.multi([...values.values()]).exec()
  }

  /** Commands of one turn go out together; the server syncs once for all that it read together. */
  async pushOne(request: BenchRequest): Promise<void> {
    await this.client.rpush(this.listOf(request), codec.encode(request))
  }

  async pop(max: number): Promise<BenchRequest[]> {
    if (this.byHost) return this.popHosts(max)
    const values = await this.client.popManyBuffer(this.lists.length, ...this.lists, max)
    return values.map((value) => codec.decode(value))
  }

  private async popHosts(max: number): Promise<BenchRequest[]> {
    const lists: string[] = []
    while (lists.length < max && this.rotationAt < this.rotation.length) {
      const host = this.rotation[this.rotationAt++]
      const left = (this.leftOfHost.get(host) as number) - 1
      this.leftOfHost.set(host, left)
      lists.push(`h:${host}`)
      if (left > 0) this.rotation.push(host)
    }
    if (lists.length === 0) return []
    const answers = await this.client.pipeline(lists.map((list) => ['lpopBuffer', list])).exec()
    return answers.map(([error, value]) => {
      if (error !== null) throw error
      return codec.decode(value as Buffer)
    })
  }

  offer(batch: readonly BenchRequest[]): Promise<number> {
    return this.step('', batch)
  }

  private step(done: string, links: readonly BenchRequest[]): Promise<number> {
    const values: (string | Buffer)[] = [SEEN, done]
    for (const link of links) values.push(print(link.url), this.listOf(link), codec.encode(link))
    return this.client.offerAll(...values)
  }

  async takeOne(): Promise<BenchRequest | undefined> {
    if (this.lists.length === 0) return undefined
    const found = await this.client.peekOneBuffer(this.lists.length, ...this.lists)
    if (found === null) return undefined
    this.taken = found[0].toString()
    return codec.decode(found[1])
  }

  finish(links: readonly BenchRequest[]): Promise<number> {
    return this.step(this.taken, links)
  }

  async settle(): Promise<void> {}

  async close(): Promise<void> {
    this.client.disconnect()
    await this.server.stop()
  }
}

export const redis: Peer = {
  name: 'redis',
  order: 'priority',
  share: 1,
  modules: true,
  setting:
    'Redis 7 on a unix socket, AOF everysec / always, ioredis, list per priority + set (scrapy-redis), scripts, cbor-x',
  lacks: redisMissing,
  load: async () => {
    return async (options) => {
      // What a killed server left: it would be taken for a listening one.
      const socket = join(options.directory, 's')
      if (existsSync(socket)) rmSync(socket)
      const server = await startRedis(options.directory, options.durability)
      const client = await connect(server)
      return new RedisDriver(server, client, options.layout, await client.keys('p:*'))
    }
  },
}
