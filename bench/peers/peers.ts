/** All peers, in the order of the tables. */
import { bullmq } from './bullmq.js'
import { crawlee } from './crawlee.js'
import type { Peer } from './driver.js'
import { holdfast } from './holdfast.js'
import { leveldb } from './leveldb.js'
import { lmdb } from './lmdb.js'
import { log } from './log.js'
import { queuelib, scrapy } from './python.js'
import { redis } from './redis.js'
import { sqlite, sqliteBatcher } from './sqlite.js'

export const PEERS: readonly Peer[] = [
  holdfast,
  log,
  lmdb,
  sqlite,
  sqliteBatcher,
  leveldb,
  redis,
  bullmq,
  crawlee,
  queuelib,
  scrapy,
]

export function peerNamed(name: string): Peer {
  const peer = PEERS.find((one) => one.name === name)
  if (peer === undefined) {
    throw new TypeError(`there is no peer ${name}, expected one of: ${PEERS.map((one) => one.name).join(', ')}`)
  }
  return peer
}
