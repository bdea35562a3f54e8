/**
 * SQLite through better-sqlite3, as one would use it for this: WAL, one table clustered by (rank, seq) so that the next jobs
 * lie side by side, one transaction per batch, prepared statements, one process. `process` is synchronous=OFF (the WAL is
 * written, never synced), `power` is FULL. There is no group commit between callers of one process; `sqlite batcher` adds
 * the one a caller would write.
 */
import { join } from 'node:path'
import { Encoder } from 'cbor-x'
import { type BenchRequest, slotOfUrl } from '../workload.js'
import { type Driver, type OpenOptions, type Peer, TurnBatch } from './driver.js'
import { peerModule, print } from './modules.js'

interface Statement {
  run(...values: unknown[]): { changes: number }
  all(...values: unknown[]): unknown[]
  get(...values: unknown[]): unknown
}
interface Database {
  pragma(text: string): unknown
  exec(text: string): void
  prepare(text: string): Statement
  transaction<A extends unknown[], R>(work: (...values: A) => R): { immediate(...values: A): R }
  close(): void
}
type Rank = number | string
interface Row {
  rank: Rank
  seq: number
  body: Uint8Array
}

const codec = new Encoder({ useRecords: false })

class Sqlite implements Driver {
  private readonly database: Database
  private readonly byHost: boolean
  private readonly insert: Statement
  private readonly next: Statement
  private readonly nextOfHost: Statement
  private readonly remove: Statement
  private readonly see: Statement
  private readonly rotation: string[] = []
  private rotationAt = 0
  private readonly leftOfHost = new Map<string, number>()
  private seq: number
  private taken: Row | undefined
  private readonly turns = new TurnBatch((batch) => this.push(batch))
  private readonly grouped: boolean
  private readonly pushAll: { immediate(batch: readonly BenchRequest[]): void }
  private readonly offerAll: { immediate(batch: readonly BenchRequest[]): number }
  private readonly popSome: { immediate(max: number): Row[] }
  private readonly popHosts: { immediate(max: number): Row[] }
  private readonly finishOne: { immediate(links: readonly BenchRequest[]): number }

  constructor(Database: new (path: string) => Database, options: OpenOptions, grouped: boolean) {
    this.byHost = options.layout === 'hosts'
    this.grouped = grouped
    const database = new Database(join(options.directory, 'queue.sqlite'))
    this.database = database
    database.pragma('journal_mode = WAL')
    database.pragma('locking_mode = EXCLUSIVE')
    database.pragma(`synchronous = ${options.durability === 'power' ? 'FULL' : 'OFF'}`)
    database.pragma('cache_size = -65536')
    database.pragma('wal_autocheckpoint = 4000')
    const rank = this.byHost ? 'TEXT' : 'INTEGER'
    database.exec(`
      CREATE TABLE IF NOT EXISTS jobs(
        rank ${rank} NOT NULL, seq INTEGER NOT NULL, body BLOB NOT NULL, PRIMARY KEY(rank, seq)
      ) WITHOUT ROWID;
      CREATE TABLE IF NOT EXISTS seen(print BLOB PRIMARY KEY NOT NULL) WITHOUT ROWID;
    `)
    this.insert = database.prepare('INSERT INTO jobs(rank, seq, body) VALUES (?, ?, ?)')
    this.next = database.prepare('SELECT rank, seq, body FROM jobs ORDER BY rank, seq LIMIT ?')
    this.nextOfHost = database.prepare('SELECT rank, seq, body FROM jobs WHERE rank = ? ORDER BY seq LIMIT 1')
    this.remove = database.prepare('DELETE FROM jobs WHERE rank = ? AND seq <= ?')
    this.see = database.prepare('INSERT OR IGNORE INTO seen(print) VALUES (?)')
    this.seq = this.byHost ? 1 : this.lastSeq() + 1
    this.pushAll = database.transaction((batch) => {
      for (const request of batch) this.put(request)
    })
    this.offerAll = database.transaction((batch) => this.putFresh(batch))
    this.popSome = database.transaction((max) => {
      const rows = this.next.all(max) as Row[]
      for (let at = 0; at < rows.length; at++) {
        if (rows[at + 1]?.rank !== rows[at].rank) this.remove.run(rows[at].rank, rows[at].seq)
      }
      return rows
    })
    this.popHosts = database.transaction((max) => this.nextOfHosts(max))
    this.finishOne = database.transaction((links) => {
      if (this.taken !== undefined) this.remove.run(this.taken.rank, this.taken.seq)
      return this.putFresh(links)
    })
  }

  /** Rank by rank: a GROUP BY would read the whole table. */
  private lastSeq(): number {
    const rankBelow = this.database.prepare('SELECT max(rank) AS value FROM jobs WHERE rank < ?')
    const lastOf = this.database.prepare('SELECT max(seq) AS value FROM jobs WHERE rank = ?')
    let last = 0
    for (let rank = Number.MAX_SAFE_INTEGER; ; ) {
      const found = (rankBelow.get(rank) as { value: number | null }).value
      if (found === null) return last
      rank = found
      last = Math.max(last, (lastOf.get(rank) as { value: number }).value)
    }
  }

  private put(request: BenchRequest): void {
    let rank: Rank = -request.priority
    if (this.byHost) {
      rank = slotOfUrl(request.url)
      const left = this.leftOfHost.get(rank)
      if (left === undefined) this.rotation.push(rank)
      this.leftOfHost.set(rank, (left ?? 0) + 1)
    }
    this.insert.run(rank, this.seq++, codec.encode(request))
  }

  private putFresh(batch: readonly BenchRequest[]): number {
    let fresh = 0
    for (const request of batch) {
      if (this.see.run(print(request.url)).changes === 0) continue
      this.put(request)
      fresh++
    }
    return fresh
  }

  private nextOfHosts(max: number): Row[] {
    const rows: Row[] = []
    while (rows.length < max && this.rotationAt < this.rotation.length) {
      const host = this.rotation[this.rotationAt++]
      const row = this.nextOfHost.get(host) as Row
      this.remove.run(row.rank, row.seq)
      rows.push(row)
      const left = (this.leftOfHost.get(host) as number) - 1
      this.leftOfHost.set(host, left)
      if (left > 0) this.rotation.push(host)
    }
    return rows
  }

  async push(batch: readonly BenchRequest[]): Promise<void> {
    this.pushAll.immediate(batch)
  }

  pushOne(request: BenchRequest): Promise<void> {
    return this.grouped ? this.turns.add(request) : this.push([request])
  }

  async pop(max: number): Promise<BenchRequest[]> {
    const rows = this.byHost ? this.popHosts.immediate(max) : this.popSome.immediate(max)
    return rows.map(({ body }) => codec.decode(body))
  }

  async offer(batch: readonly BenchRequest[]): Promise<number> {
    return this.offerAll.immediate(batch)
  }

  async takeOne(): Promise<BenchRequest | undefined> {
    this.taken = this.next.get(1) as Row | undefined
    return this.taken === undefined ? undefined : codec.decode(this.taken.body)
  }

  async finish(links: readonly BenchRequest[]): Promise<number> {
    return this.finishOne.immediate(links)
  }

  async settle(): Promise<void> {}

  async close(): Promise<void> {
    this.database.close()
  }
}

function peer(name: string, grouped: boolean): Peer {
  return {
    name,
    order: 'priority',
    share: 1,
    modules: true,
    setting:
      'better-sqlite3 12.11, WAL, exclusive, synchronous OFF / FULL, 64 MiB cache, cbor-x, SHA-1 as a 16-byte blob',
    lacks: (scenario) =>
      grouped && scenario !== '4' ? 'differs from sqlite only where many producers wait' : undefined,
    load: async () => {
      const { default: Database } = await peerModule<{ default: new (path: string) => Database }>('better-sqlite3')
      return async (options) => new Sqlite(Database, options, grouped)
    },
  }
}

export const sqlite = peer('sqlite', false)
export const sqliteBatcher = peer('sqlite batcher', true)
