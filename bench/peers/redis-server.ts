/**
 * A Redis of the bench's own: started on a unix socket in the run's directory, with nothing listening on the network, and
 * ended with the run. Its append-only file is what makes the promise: written before the answer, so that kill -9 of the
 * server takes nothing (`everysec`), and synced before the answer where power loss is to be survived (`always`).
 */
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import type { Durability } from './driver.js'
import { peerModule } from './modules.js'

type Value = string | number | Buffer
export interface Client {
  ping(): Promise<string>
  multi(commands: Value[][]): { exec(): Promise<unknown> }
  pipeline(commands: Value[][]): { exec(): Promise<[Error | null, unknown][]> }
  rpush(key: string, value: Buffer): Promise<number>
  keys(pattern: string): Promise<string[]>
  defineCommand(name: string, definition: { lua: string; numberOfKeys?: number }): void
  quit(): Promise<string>
  disconnect(): void
}
type ClientConstructor = new (options: object) => Client

export interface Server {
  readonly pid: number
  readonly socket: string
  stop(): Promise<void>
}

export function redisMissing(): string | undefined {
  const { error, status } = spawnSync('redis-server', ['--version'])
  return error !== undefined || status !== 0 ? 'there is no redis-server on this machine' : undefined
}

export async function startRedis(directory: string, durability: Durability): Promise<Server> {
  const socket = join(directory, 's')
  const server = spawn(
    'redis-server',
    [
      ...['--port', '0', '--unixsocket', socket, '--dir', directory, '--save', ''],
      ...['--appendonly', 'yes', '--appendfsync', durability === 'power' ? 'always' : 'everysec'],
    ],
    { stdio: ['ignore', 'ignore', 'inherit'] },
  )
  const ended = once(server, 'exit').then(() => true)
  // The socket is there once the server listens, which is before the append-only file is loaded.
  while (!existsSync(socket)) {
    const gone = await Promise.race([ended, new Promise<false>((resolve) => setTimeout(() => resolve(false), 1))])
    if (gone) throw new Error('redis-server ended before it listened')
  }
  return {
    pid: server.pid as number,
    socket,
    stop: async () => {
      server.kill('SIGTERM')
      await ended
    },
  }
}

/** Connected, and the server done with loading: asked again and again, because the client itself waits a second. */
export async function connect(server: Server): Promise<Client> {
  const { Redis } = await peerModule<{ Redis: ClientConstructor }>('ioredis')
  const options = { enableAutoPipelining: true, enableReadyCheck: false, maxRetriesPerRequest: null }
  const client = new Redis({ path: server.socket, ...options })
  for (;;) {
    try {
      await client.ping()
      return client
    } catch (error) {
      if (!/LOADING/.test(String(error))) throw error
      await new Promise((resolve) => setTimeout(resolve, 2))
    }
  }
}
