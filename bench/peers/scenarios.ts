/**
 * The work that is put to every peer, written once against the driver interface. Invariant: only what a caller of the peer
 * would wait for lies between start and stop of the clock; making the requests and checking what came back does not.
 */
import assert from 'node:assert/strict'
import { collectGarbage, sharedTurn, startClock, turn } from '../measure.js'
import { type BenchRequest, LINKS_PER_PAGE, type Workload } from '../workload.js'
import { checkOrder, checkRotation, checkSet, checkSteps, type Step } from './check.js'
import type { Driver, Durability, Layout, Peer } from './driver.js'

export const BATCH = 100
export const PRODUCERS = 64
export const HOSTS = 20_000
/** A run that has not ended by then is cut: rates are of what was done, and it is said how much that was. */
const BUDGET_MS = 20_000
const SYNC_BUDGET_MS = 2_500
/** Requests that go through a peer before a run, if they do in this time each way. */
const WARM_COUNT = 200_000
const WARM_MS = 1_500

export interface ScenarioFacts {
  readonly title: string
  readonly durabilities: readonly Durability[]
  /** Operations at scale 1. */
  readonly size: number
  /** The figure that is compared; and whether more of it is better. */
  readonly main: string
  readonly unit: string
  readonly less: boolean
}

const fact = (
  title: string,
  durabilities: readonly Durability[],
  size: number,
  unit = '/s',
  main = 'rate',
): ScenarioFacts => ({ title, durabilities, size, main, unit, less: unit !== '/s' })

export const SCENARIOS: Record<string, ScenarioFacts> = {
  1: fact('push, batches of 100', ['process'], 200_000),
  2: fact('pop, batches of 100, by priority', ['process'], 200_000),
  3: fact('push and pop, one fsync per batch of 100', ['power'], 100_000),
  4: fact('64 producers, single pushes, each acknowledged after an fsync', ['power'], 50_000),
  5: fact('crawl step: take 1, offer 50 links (85 % known), remove it', ['process', 'power'], 100_000),
  6: fact('restart after SIGKILL: opening to first request', ['process'], 500_000, 'ms', 'firstMs'),
  7: fact('memory with 5 M seen and 2 M pending', ['process'], 2_000_000, 'MB', 'endMb'),
  8: fact('20,000 hosts in rotation, at most 1,024 open files', ['process'], 200_000),
}

export interface Context {
  readonly peer: Peer
  readonly workload: Workload
  readonly size: number
  readonly open: (layout: Layout) => Promise<Driver>
}

export interface Outcome {
  readonly operations: number
  readonly metrics: Record<string, number>
  readonly notes?: readonly string[]
}

const perSecond = (operations: number, ms: number): number => (operations * 1000) / ms

async function timed<T>(work: () => Promise<T>): Promise<{ result: T; ms: number; cpuMs: number }> {
  collectGarbage()
  const clock = startClock()
  const result = await work()
  return { result, ...clock() }
}

/** Batch after batch, each awaited, with a turn of the event loop between: the caller is a program that does more. */
async function pushAll(
  driver: Driver,
  requests: readonly BenchRequest[],
  budgetMs = Number.POSITIVE_INFINITY,
): Promise<number> {
  const end = performance.now() + budgetMs
  let pushed = 0
  while (pushed < requests.length && performance.now() < end) {
    const batch = requests.slice(pushed, pushed + BATCH)
    await driver.push(batch)
    pushed += batch.length
    await turn()
  }
  return pushed
}

/** Before the clock starts: code that is compiled by then is what a crawl of hours runs on, whoever the peer is. */
export async function warmUp({ workload, size, open }: Context, layout: Layout, singles: boolean): Promise<void> {
  const warmCount = Math.min(WARM_COUNT, size)
  const requests = workload.requests(0, warmCount)
  const driver = await open(layout)
  if (layout === 'crawl') {
    const end = performance.now() + WARM_MS
    for (let at = 0; at < warmCount / 2 && performance.now() < end; at += BATCH) {
      await driver.offer(requests.slice(at, at + BATCH))
    }
    for (const { links } of workload.pages(warmCount / LINKS_PER_PAGE, warmCount / 2)) {
      if (performance.now() > end || (await driver.takeOne()) === undefined) break
      await driver.finish(links)
      await turn()
    }
  } else {
    if (singles) await produceAll(driver, requests, WARM_MS)
    else await pushAll(driver, requests, WARM_MS)
    await popAll(driver, [], WARM_MS)
  }
  await driver.settle()
  await driver.close()
}

async function popAll(
  driver: Driver,
  popped: BenchRequest[],
  budgetMs = Number.POSITIVE_INFINITY,
  most = Number.POSITIVE_INFINITY,
): Promise<boolean> {
  const end = performance.now() + budgetMs
  while (performance.now() < end && popped.length < most) {
    const batch = await driver.pop(Math.min(BATCH, most - popped.length))
    if (batch.length === 0) return true
    for (const request of batch) popped.push(request)
    await turn()
  }
  return false
}

async function push({ peer, workload, size, open }: Context): Promise<Outcome> {
  const requests = workload.requests(0, size)
  const driver = await open('queue')
  const { result, ms, cpuMs } = await timed(async () => {
    const pushed = await pushAll(driver, requests, BUDGET_MS)
    await driver.settle()
    return pushed
  })
  const popped: BenchRequest[] = []
  await popAll(driver, popped, Number.POSITIVE_INFINITY, BATCH)
  assert.equal(popped.length, Math.min(BATCH, result))
  checkOrder(requests.slice(0, result), popped, peer.order, false)
  await driver.close()
  return { operations: result, metrics: { rate: perSecond(result, ms), cpuUs: (cpuMs * 1000) / result } }
}

/** The clock runs while the peer does: what came back is kept for the check, and keeping it is nobody's cost. */
async function pop({ peer, workload, size, open }: Context): Promise<Outcome> {
  const requests = workload.requests(0, size)
  const driver = await open('queue')
  await pushAll(driver, requests)
  await driver.settle()
  const popped: BenchRequest[] = []
  let ms = 0
  let whole = false
  collectGarbage()
  while (!whole && ms < BUDGET_MS) {
    const begun = performance.now()
    const batch = await driver.pop(BATCH)
    ms += performance.now() - begun
    for (const request of batch) popped.push(request)
    whole = batch.length === 0
    await turn()
  }
  const begun = performance.now()
  await driver.settle()
  ms += performance.now() - begun
  checkOrder(requests, popped, peer.order, whole)
  await driver.close()
  return { operations: popped.length, metrics: { rate: perSecond(popped.length, ms) } }
}

function bothWays(pushed: number, pushMs: number, popped: number, popMs: number): Outcome {
  const operations = pushed + popped
  return {
    operations,
    metrics: {
      rate: perSecond(operations, pushMs + popMs),
      pushRate: perSecond(pushed, pushMs),
      popRate: perSecond(popped, popMs),
    },
  }
}

async function pushAndPopSynced({ peer, workload, size, open }: Context): Promise<Outcome> {
  const requests = workload.requests(0, size)
  const driver = await open('queue')
  const pushed = await timed(() => pushAll(driver, requests, SYNC_BUDGET_MS))
  const popped: BenchRequest[] = []
  const removed = await timed(() => popAll(driver, popped, SYNC_BUDGET_MS))
  checkOrder(requests.slice(0, pushed.result), popped, peer.order, removed.result)
  await driver.close()
  return bothWays(pushed.result, pushed.ms, popped.length, removed.ms)
}

/** The milliseconds each push took: as many as were pushed. */
async function produceAll(driver: Driver, requests: readonly BenchRequest[], budgetMs: number): Promise<number[]> {
  let next = 0
  const latencies: number[] = []
  const end = performance.now() + budgetMs
  const produce = async (): Promise<void> => {
    while (next < requests.length && performance.now() < end) {
      const begun = performance.now()
      await driver.pushOne(requests[next++])
      latencies.push(performance.now() - begun)
      // Peers that answer at once still let the others come to their turn.
      if (next % PRODUCERS === 0) await sharedTurn()
    }
  }
  await Promise.all(Array.from({ length: PRODUCERS }, produce))
  return latencies
}

async function producers({ workload, size, open }: Context): Promise<Outcome> {
  const requests = workload.requests(0, size)
  const driver = await open('queue')
  const { result: latencies, ms } = await timed(() => produceAll(driver, requests, 2 * SYNC_BUDGET_MS))
  const operations = latencies.length
  const popped: BenchRequest[] = []
  await popAll(driver, popped)
  checkSet(requests.slice(0, operations), popped)
  await driver.close()
  latencies.sort((a, b) => a - b)
  const p99Ms = latencies[Math.floor(operations * 0.99)]
  return { operations, metrics: { rate: perSecond(operations, ms), p99Ms } }
}

async function crawl({ peer, workload, size, open }: Context): Promise<Outcome> {
  // As many known requests as links are offered; all of them wait.
  const known = workload.requests(0, size)
  const pages = workload.pages(Math.ceil(size / LINKS_PER_PAGE), size)
  const driver = await open('crawl')
  let filled = 0
  for (let at = 0; at < size; at += BATCH) filled += await driver.offer(known.slice(at, at + BATCH))
  // A peer that cannot say what was new says NaN; the steps then are checked by what is taken alone.
  assert.ok(filled === size || Number.isNaN(filled), `${filled} of ${size} known requests were new at first`)
  await driver.settle()
  const steps: Step[] = []
  const { ms, cpuMs } = await timed(async () => {
    const end = performance.now() + BUDGET_MS / 2
    for (const { links } of pages) {
      const taken = await driver.takeOne()
      assert.ok(taken, 'nothing was left to take')
      steps.push({ taken, added: await driver.finish(links) })
      await turn()
      if (performance.now() > end) break
    }
    await driver.settle()
  })
  checkSteps(known, pages, steps, peer.order)
  await driver.close()
  const operations = steps.length * LINKS_PER_PAGE
  return { operations, metrics: { rate: perSecond(operations, ms), cpuUs: (cpuMs * 1000) / operations } }
}

/** Request `i` on host `i mod hosts`, all of one priority: nothing but the host decides. */
export function requestsOfHosts(workload: Workload, size: number, hosts: number): BenchRequest[] {
  return workload.requests(0, size).map((request, index) => ({
    url: request.url.replace(/\/\/[^/]+/, `//h${index % hosts}.example.org`),
    priority: 0,
    meta: request.meta,
  }))
}

async function hosts({ workload, size, open }: Context): Promise<Outcome> {
  const requests = requestsOfHosts(workload, size, Math.max(1, Math.round(Math.min(HOSTS, size / 10))))
  const driver = await open('hosts')
  const pushed = await timed(() => pushAll(driver, requests, BUDGET_MS))
  const popped: BenchRequest[] = []
  const removed = await timed(() => popAll(driver, popped, BUDGET_MS))
  checkRotation(requests.slice(0, pushed.result), popped, removed.result)
  await driver.close()
  return bothWays(pushed.result, pushed.ms, popped.length, removed.ms)
}

/** What is warmed up for which scenario. The synced ones wait for the disk, whatever the code. */
export const WARM_LAYOUTS: Record<string, Layout> = {
  1: 'queue',
  2: 'queue',
  3: 'queue',
  4: 'queue',
  5: 'crawl',
  8: 'hosts',
}

/** Scenarios that need one process only; 6 and 7 are in restart.ts and memory.ts.  */
export const RUNS: Record<string, (context: Context) => Promise<Outcome>> = {
  1: push,
  2: pop,
  3: pushAndPopSynced,
  4: producers,
  5: crawl,
  8: hosts,
}
