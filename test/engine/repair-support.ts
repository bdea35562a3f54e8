/**
 * What the tests of repair share: a job in the middle of its life, everything that can be seen of a job as one value, and
 * a repair that asserts what holds of every repair.
 */
import { expect } from 'vitest'
import { type RepairOptions, type RepairReport, repairDirectory } from '../../src/engine/repair.js'
import { verifyDirectory } from '../../src/engine/verify.js'
import { SimClock } from '../../src/env/sim-clock.js'
import { simEnv } from '../../src/env/sim-env.js'
import type { SimFileSystem } from '../../src/env/sim-file-system.js'
import { openFrontier } from '../../src/frontier/frontier.js'
import { TINY } from '../support/checked.js'

export const JOB = '/job'
export const NEW = '/saved/new'
const FOREVER_MS = 1e12
export const DAY_MS = 86_400_000
export const OPTIONS = { tuning: TINY, leaseMs: FOREVER_MS, maxAttempts: 1000, syncEveryMs: FOREVER_MS } as const

export type World = ReturnType<typeof simEnv>

export const urls = (host: string, from: number, to: number): string[] =>
  Array.from({ length: to - from }, (_, i) => `http://${host}.test/page/${from + i}`)

/** Everything that is or was in the job below. */
export const UNIVERSE = ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 's']
  .flatMap((host) => urls(host, 0, 31))
  .concat(urls('m', 0, 280))

/** A checkpoint that fails leaves its journal behind: the next one goes on beside it. */
async function failCheckpoint(env: World, checkpoint: () => Promise<void>): Promise<void> {
  env.files.failAt(6, { kind: 'EIO' })
  await expect(checkpoint()).rejects.toThrow()
  env.files.clearFaults()
}

/**
 * A frontier in the middle of its life, as a kill leaves it: segments of several buckets, delayed and dead jobs, runs of
 * the seen-set, three journals, leases at work.
 */
export async function makeJob(order: 'fifo' | 'lifo' = 'fifo'): Promise<World> {
  const env = simEnv({ seed: 5 })
  const frontier = await openFrontier(JOB, { env, order, ...OPTIONS })
  const { clock } = env
  const take = (max: number) => frontier.take({ max })
  await frontier.add(urls('m', 0, 280), { priority: 9 })
  for (const visit of await take(280)) await visit.ack()
  await frontier.add(urls('a', 0, 30), { meta: { depth: 1 } })
  await frontier.add([...urls('b', 0, 30), ...urls('a', 0, 3)], { priority: 5 })
  await frontier.add(urls('s', 0, 4), { start: true })
  await frontier.add(urls('d', 0, 12), { notBefore: clock.now() + 90_000 })
  await frontier.add(urls('d', 12, 20), { notBefore: clock.now() + 2 * DAY_MS })
  await frontier.add(urls('e', 0, 8), { priority: -3, dontFilter: true })
  await frontier.checkpoint()
  for (const visit of await take(12)) await visit.bury({ reason: `gave up on ${visit.id}` })
  await frontier.checkpoint()
  const visits = await take(14)
  for (const [i, visit] of visits.slice(0, 3).entries()) await visit.ack({ add: urls('c', 10 + i * 2, 12 + i * 2) })
  for (const visit of visits.slice(3, 6)) await visit.retry({ delayMs: 5 * DAY_MS, reason: 'not now' })
  for (const visit of visits.slice(6, 9)) await visit.retry({ reason: 'once more' })
  await frontier.setState({ cursor: { page: 7 }, gone: 1 })
  await frontier.add(urls('f', 0, 10))
  await frontier.forget('http://m.test/page/11')
  await frontier.checkpoint()
  await visits[9].ack()
  await frontier.add(urls('g', 0, 14), { priority: 1 })
  await failCheckpoint(env, () => frontier.checkpoint())
  await visits[10].ack({ state: { gone: undefined, last: 'x' } })
  await frontier.add(urls('h', 0, 9))
  for (const visit of (await take(4)).slice(0, 2)) await visit.ack()
  await frontier.forget('http://m.test/page/12')
  await failCheckpoint(env, () => frontier.checkpoint())
  // A job that waits, and is not seen any more.
  await frontier.forget('http://a.test/page/29')
  await frontier.pauseSlot('b.test', clock.now() + 3_600_000)
  for (const visit of await take(3)) await visit.bury({ reason: 'late' })
  await frontier.add(urls('c', 0, 5), { priority: 2 })
  await clock.advance(10)
  return killed(env)
}

/** The same disk in another world: what a kill leaves. */
export function killed(env: World): World {
  const files = env.files.crash({ seed: 0, unsynced: 'kept' })
  return simEnv({ seed: 7, files, clock: new SimClock({ wallMs: env.clock.now() }) })
}

export interface Snapshot {
  /** Slot by slot, in the order they are handed out; which slot's turn it is, is not durable. */
  readonly jobs: readonly { readonly id: number }[]
  readonly dead: readonly { readonly id: number }[]
  readonly seen: readonly string[]
  readonly rest: { readonly state: object; readonly seenCount: number; readonly counters: object }
}

/** Opens a copy and takes everything out of it. `universe`: what to ask the seen-set for. */
export async function snapshot(
  env: World,
  directory: string,
  universe: readonly string[] = UNIVERSE,
): Promise<Snapshot> {
  const world = killed(env)
  const frontier = await openFrontier(directory, { env: world, ...OPTIONS })
  const stats = await frontier.stats()
  const jobs = []
  for (const days of [0, 1, 3, 7]) {
    await world.clock.advance(days * DAY_MS)
    for (const visit of await frontier.take({ max: 1000 })) {
      const { id, url, attempt, failures, lastReason, priority, slot, addedAt, start, meta } = visit
      jobs.push({ days, id, url, attempt, failures, lastReason, priority, slot, addedAt, start, meta })
    }
  }
  jobs.sort((a, b) => (a.slot < b.slot ? -1 : a.slot > b.slot ? 1 : 0))
  const dead = []
  for await (const letter of frontier.dead()) dead.push({ ...letter, raw: Buffer.from(letter.raw).toString('hex') })
  dead.sort((a, b) => a.id - b.id)
  const seen = universe.filter((url) => frontier.has(url))
  const state = Object.fromEntries(['cursor', 'gone', 'last'].map((key) => [key, frontier.state(key)]))
  const { recovered: _, ...counters } = stats.counters
  await frontier.add('http://next.test/', { priority: 100 })
  const [next] = await frontier.take()
  await frontier.close()
  const rest = { state, counters, delayed: stats.delayed, seenCount: stats.seen, nextId: next.id }
  return { jobs, dead, seen, rest }
}

export function contentsUnder(files: SimFileSystem, directory: string): Record<string, string> {
  const paths = files.allFiles().filter((path) => path.startsWith(`${directory}/`))
  return Object.fromEntries(paths.map((path) => [path, files.contents(path).toString('latin1')]))
}

/** Repairs, and asserts what holds of every repair. */
export async function repair(env: World, options: RepairOptions = {}): Promise<RepairReport> {
  const before = contentsUnder(env.files, JOB)
  const report = await repairDirectory(JOB, NEW, env, options)
  expect(contentsUnder(env.files, JOB)).toEqual(before)
  expect(env.files.openHandles()).toBe(0)
  expect((await verifyDirectory(NEW, env)).problems).toEqual([])
  expect(JSON.parse(JSON.stringify(report))).toEqual(report)
  return report
}
