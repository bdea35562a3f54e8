/**
 * What makes a figure count: everything came back once, with all fields equal, in the order the peer promises. All checks
 * run after the clock has stopped and throw when something is wrong; a wrong run has no figure.
 */
import assert from 'node:assert/strict'
import { type BenchPage, type BenchRequest, slotOfUrl } from '../workload.js'
import type { Peer } from './driver.js'

/** Field by field: a request with more, fewer or other fields than it was pushed with is a wrong one. */
export function checkSame(got: BenchRequest | undefined, want: BenchRequest, what: string): void {
  const same =
    got !== undefined &&
    got.url === want.url &&
    got.priority === want.priority &&
    got.meta.d === want.meta.d &&
    got.meta.r === want.meta.r &&
    Object.keys(got).length === 3 &&
    Object.keys(got.meta).length === 2
  assert.ok(same, `${what} is ${JSON.stringify(got)}, expected ${JSON.stringify(want)}`)
}

/** The order a queue owes: by priority, highest first, and arrival inside one; plain arrival where there are none. */
export function orderOf(pushed: readonly BenchRequest[], order: Peer['order']): BenchRequest[] {
  // sort is stable, so arrival order stays inside a priority.
  return order === 'fifo' ? [...pushed] : [...pushed].sort((a, b) => b.priority - a.priority)
}

/** `popped` has to be the first part of the order, or all of it when `whole`. */
export function checkOrder(
  pushed: readonly BenchRequest[],
  popped: readonly BenchRequest[],
  order: Peer['order'],
  whole: boolean,
): void {
  const want = orderOf(pushed, order)
  for (const [at, request] of popped.entries()) {
    assert.ok(at < want.length, `${popped.length} were popped, ${want.length} pushed`)
    checkSame(request, want[at], `pop ${at}`)
  }
  if (whole) assert.equal(popped.length, want.length, 'not everything that was pushed was popped')
}

/** Any order, each exactly once: what producers that do not wait for each other can ask for. */
export function checkSet(pushed: readonly BenchRequest[], popped: readonly BenchRequest[]): void {
  assert.equal(popped.length, pushed.length, 'not as many were popped as were pushed')
  const left = new Map(pushed.map((request) => [request.url, request]))
  for (const [at, request] of popped.entries()) {
    const want = left.get(request.url)
    assert.ok(want, `pop ${at} is ${request.url}, which was not pushed or came before`)
    checkSame(request, want, `pop ${at}`)
    left.delete(request.url)
  }
}

/** In each round every host that has something left is served once, and inside a host the order is arrival. */
export function checkRotation(pushed: readonly BenchRequest[], popped: readonly BenchRequest[], whole: boolean): void {
  const queues = new Map<string, BenchRequest[]>()
  for (const request of pushed) {
    const host = slotOfUrl(request.url)
    const queue = queues.get(host)
    if (queue === undefined) queues.set(host, [request])
    else queue.push(request)
  }
  const nextOfHost = new Map<string, number>()
  let owed = new Set(queues.keys())
  for (const [at, request] of popped.entries()) {
    const host = slotOfUrl(request.url)
    assert.ok(owed.delete(host), `pop ${at} serves ${host} twice in one round, or a host that has nothing left`)
    const next = nextOfHost.get(host) ?? 0
    checkSame(request, (queues.get(host) as BenchRequest[])[next], `pop ${at}`)
    nextOfHost.set(host, next + 1)
    if (owed.size > 0) continue
    owed = new Set(
      [...queues].filter(([name, { length }]) => (nextOfHost.get(name) ?? 0) < length).map(([name]) => name),
    )
  }
  if (whole) assert.equal(popped.length, pushed.length, 'not everything that was pushed was popped')
}

export interface Step {
  readonly taken: BenchRequest
  readonly added: number
}

/**
 * Steps of a crawl: each took something that was there, of the highest priority there was, nothing came twice, and each
 * found as many new links as the workload made. Which of equal priority comes first is the peer's own affair.
 */
export function checkSteps(
  known: readonly BenchRequest[],
  pages: readonly BenchPage[],
  steps: readonly Step[],
  order: Peer['order'],
): void {
  const pending = new Map<string, BenchRequest>()
  const countOf = new Map<number, number>()
  const arrive = (request: BenchRequest): void => {
    pending.set(request.url, request)
    countOf.set(request.priority, (countOf.get(request.priority) ?? 0) + 1)
  }
  for (const request of known) arrive(request)
  for (const [at, { taken, added }] of steps.entries()) {
    const want = pending.get(taken.url)
    assert.ok(want, `step ${at} took ${taken.url}, which was not pending`)
    checkSame(taken, want, `step ${at}`)
    const highest = Math.max(...[...countOf].filter(([, count]) => count > 0).map(([priority]) => priority))
    if (order === 'priority') assert.equal(taken.priority, highest, `step ${at} took a lower priority than there was`)
    pending.delete(taken.url)
    countOf.set(taken.priority, (countOf.get(taken.priority) as number) - 1)
    if (!Number.isNaN(added)) assert.equal(added, pages[at].fresh.length, `step ${at} counted wrongly what was new`)
    for (const request of pages[at].fresh) arrive(request)
  }
}
