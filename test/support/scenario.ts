/**
 * Small workloads for runs that are cut at every call: each uses a part of the store so that, together, every step of
 * commit, checkpoint and recovery is crossed. Short on purpose: exhaustive beats long.
 */
import type { SimClock } from '../../src/env/sim-clock.js'
import type { Frontier } from '../../src/frontier/frontier.js'
import type { Oracle } from './oracle.js'

export type Scenario = (frontier: Frontier, oracle: Oracle, clock: SimClock) => Promise<void>

const page = (host: number, n: number): string => `http://h${host}.test/page/${n}`
export const pages = (host: number, from: number, to: number): string[] =>
  Array.from({ length: to - from }, (_, i) => page(host, from + i))

const crawl: Scenario = async (frontier, oracle) => {
  await oracle.add(frontier, pages(1, 0, 3), { start: true })
  for (let round = 0; round < 3; round++) {
    for (const visit of await oracle.take(frontier, 2)) {
      const from = visit.id * 4
      await oracle.ack(visit, [...pages(2, from, from + 3), ...pages(1, 0, 2)], { round })
    }
  }
}

const checkpoints: Scenario = async (frontier, oracle) => {
  await oracle.add(frontier, pages(1, 0, 8))
  await oracle.add(frontier, pages(2, 0, 6), { priority: 5 })
  await oracle.checkpoint(frontier)
  const visits = await oracle.take(frontier, 5)
  await oracle.ack(visits[0], pages(3, 0, 4), { at: 1 })
  await oracle.retry(visits[1], 0)
  await oracle.checkpoint(frontier)
  await oracle.ack(visits[2])
  await oracle.add(frontier, pages(1, 4, 12))
  await oracle.checkpoint(frontier)
  for (const visit of await oracle.take(frontier, 20)) await oracle.ack(visit)
  await oracle.checkpoint(frontier)
}

/** Work goes on while a checkpoint writes: what is taken, acked and added then belongs to the new journal. */
const during: Scenario = async (frontier, oracle) => {
  await oracle.add(frontier, pages(1, 0, 10))
  await oracle.add(frontier, pages(2, 0, 10), { priority: -1 })
  const running = oracle.checkpoint(frontier)
  running.catch(() => {})
  const visits = await oracle.take(frontier, 4)
  await oracle.ack(visits[0], pages(3, 0, 3))
  await oracle.retry(visits[1], 0)
  await oracle.bury(visits[2])
  await oracle.add(frontier, pages(4, 0, 3))
  await running
  await oracle.ack(visits[3])
  await oracle.requeue(frontier)
  await oracle.checkpoint(frontier)
}

const delays: Scenario = async (frontier, oracle, clock) => {
  const now = clock.now()
  await oracle.add(frontier, pages(1, 0, 6), { notBefore: now + 90_000 })
  await oracle.add(frontier, pages(1, 6, 10), { notBefore: now + 26 * 3_600_000 })
  await oracle.add(frontier, pages(2, 0, 3))
  const visits = await oracle.take(frontier, 3)
  await oracle.retry(visits[0], 5_000)
  await oracle.bury(visits[1])
  await oracle.checkpoint(frontier)
  await clock.advance(100_000)
  for (const visit of await oracle.take(frontier, 3)) await oracle.ack(visit)
  await oracle.checkpoint(frontier)
  await oracle.requeue(frontier)
}

const graves: Scenario = async (frontier, oracle) => {
  await oracle.add(frontier, pages(1, 0, 9))
  for (const visit of await oracle.take(frontier, 8)) await oracle.bury(visit)
  await oracle.checkpoint(frontier)
  await oracle.requeue(frontier)
  const visits = await oracle.take(frontier, 3)
  await oracle.bury(visits[0])
  await oracle.ack(visits[1])
  await oracle.release(visits[2])
  await oracle.checkpoint(frontier)
}

/** A bucket that ends thin: the last jobs of its segments move forward. */
const thin: Scenario = async (frontier, oracle) => {
  await oracle.add(frontier, pages(1, 0, 30))
  await oracle.checkpoint(frontier)
  for (const visit of await oracle.take(frontier, 26)) await oracle.ack(visit)
  await oracle.checkpoint(frontier)
  await oracle.add(frontier, pages(1, 30, 33))
  await oracle.checkpoint(frontier)
}

export const SCENARIOS: Readonly<Record<string, Scenario>> = { crawl, checkpoints, during, delays, graves, thin }
