/**
 * The oracle of the promise, for runs that may be cut at any call. It writes down what was asked and what was promised,
 * and afterwards says whether what a re-opened frontier holds is allowed: every promise kept, the one unanswered
 * call wholly there or wholly absent, nothing twice, nothing acked coming back, order kept, the seen-set exact.
 */
import { expect } from 'vitest'
import type { SimClock } from '../../src/env/sim-clock.js'
import { HoldfastError } from '../../src/errors.js'
import type { Frontier, VisitHandle } from '../../src/frontier/frontier.js'
import type { AddOptions } from '../../src/frontier/types.js'

type Fate = 'live' | 'dead' | 'gone'

interface Effect {
  /** URLs and what becomes of them when the call takes effect. */
  readonly fates: ReadonlyMap<string, Fate>
  readonly state?: ReadonlyMap<string, unknown>
}

export class Oracle {
  /** Everything promised so far. */
  readonly fates = new Map<string, Fate>()
  readonly state = new Map<string, unknown>()
  readonly attempts = new Map<string, number>()
  /** A call that was begun and not answered, or answered with a failure that leaves its fate open. */
  pending: Effect | undefined

  /** Runs a call; its effect is promised when it resolves, and open when it rejects. */
  private async call(effect: Effect, run: () => Promise<unknown>): Promise<void> {
    this.pending = effect
    await this.patiently(run)
    this.settle(true)
  }

  /**
   * Set by runs in which single calls of the disk fail: whether the store says that it goes on after a failure. Then the
   * call that failed must have left no trace, and the same call made again must work.
   */
  goesOn: () => boolean = () => false
  failures = 0

  private async patiently<T>(run: () => Promise<T>): Promise<T> {
    try {
      return await run()
    } catch (error) {
      if (!(error instanceof HoldfastError) || !this.goesOn()) throw error
      this.failures++
      return run()
    }
  }

  checkpoint(frontier: Frontier): Promise<void> {
    return this.patiently(() => frontier.checkpoint())
  }

  /** The open call is known to have happened, or not to have. */
  settle(happened: boolean): void {
    if (happened && this.pending !== undefined) {
      for (const [url, fate] of this.pending.fates) this.fates.set(url, fate)
      for (const [key, value] of this.pending.state ?? []) this.state.set(key, value)
    }
    this.pending = undefined
  }

  private fresh(urls: readonly string[]): Map<string, Fate> {
    return new Map(urls.filter((url) => !this.fates.has(url)).map((url) => [url, 'live'] as const))
  }

  add(frontier: Frontier, urls: readonly string[], options?: AddOptions): Promise<void> {
    const fates = this.fresh(urls)
    return this.call({ fates }, async () => {
      const result = await frontier.add(urls, options)
      expect(result.added).toBe(fates.size)
      expect(result.duplicates).toBe(urls.length - fates.size)
    })
  }

  async take(frontier: Frontier, max: number): Promise<VisitHandle[]> {
    const visits = await this.patiently(() => frontier.take({ max }))
    for (const visit of visits) {
      expect(this.fates.get(visit.url), `${visit.url} is handed out`).toBe('live')
      this.attempts.set(visit.url, visit.attempt)
    }
    return visits
  }

  ack(visit: VisitHandle, children: readonly string[] = [], state: Record<string, unknown> = {}): Promise<void> {
    const fates = this.fresh(children)
    fates.set(visit.url, 'gone')
    return this.call({ fates, state: new Map(Object.entries(state)) }, () => visit.ack({ add: children, state }))
  }

  retry(visit: VisitHandle, delayMs: number): Promise<void> {
    return this.call({ fates: new Map([[visit.url, 'live']]) }, () => visit.retry({ delayMs, reason: 'again' }))
  }

  bury(visit: VisitHandle): Promise<void> {
    return this.call({ fates: new Map([[visit.url, 'dead']]) }, () => visit.bury({ reason: 'no use' }))
  }

  release(visit: VisitHandle): Promise<void> {
    return this.call({ fates: new Map([[visit.url, 'live']]) }, () => visit.release())
  }

  requeue(frontier: Frontier): Promise<void> {
    const dead = [...this.fates].filter(([, fate]) => fate === 'dead').map(([url]) => [url, 'live'] as const)
    return this.call({ fates: new Map(dead) }, () => frontier.requeue())
  }

  /** Holds what the frontier has against what it may have. Everything ready is left leased. */
  async check(frontier: Frontier, clock: SimClock): Promise<void> {
    const found = await contents(frontier, clock)
    const before = new Map(this.fates)
    const after = new Map(this.fates)
    for (const [url, fate] of this.pending?.fates ?? []) after.set(url, fate)
    const happened = this.pending !== undefined && agree(found.fates, after)
    if (!happened) expect(Object.fromEntries(found.fates)).toEqual(present(before))
    const expected = happened ? after : before
    for (const [key, value] of this.state) {
      const allowed = happened && this.pending?.state?.has(key) ? this.pending.state.get(key) : value
      expect(frontier.state(key), `state ${key}`).toEqual(allowed)
    }
    // Seen is exactly what was ever accepted.
    expect((await frontier.stats()).seen).toBe(expected.size)
    for (const url of after.keys()) expect(frontier.has(url), `${url} is seen`).toBe(expected.has(url))
    this.settle(happened)
  }
}

/** What is there of each URL; fails on anything that is there twice or out of order. */
async function contents(frontier: Frontier, clock: SimClock): Promise<{ fates: Map<string, Fate> }> {
  const fates = new Map<string, Fate>()
  const put = (url: string, fate: Fate): void => {
    expect(fates.has(url), `${url} is there once`).toBe(false)
    fates.set(url, fate)
  }
  for (;;) {
    const visits = await frontier.take({ max: 1000 })
    expectOrder(visits)
    for (const visit of visits) put(visit.url, 'live')
    if (visits.length > 0) continue
    if ((await frontier.stats()).delayed === 0) break
    await clock.advance(60 * 60_000)
  }
  for await (const letter of frontier.dead()) put(letter.payload?.url as string, 'dead')
  return { fates }
}

/** Of one take: higher priorities first, ordinary before start, and fifo inside a bucket and slot. */
function expectOrder(visits: readonly VisitHandle[]): void {
  const last = new Map<string, number>()
  for (const [i, visit] of visits.entries()) {
    const previous = visits[i - 1]
    if (previous !== undefined) {
      const order = previous.priority - visit.priority || Number(visit.start) - Number(previous.start)
      expect(order, 'priorities fall, start requests last').toBeGreaterThanOrEqual(0)
    }
    const lane = `${visit.priority} ${visit.start} ${visit.slot}`
    expect(visit.id, 'fifo').toBeGreaterThan(last.get(lane) ?? 0)
    last.set(lane, visit.id)
  }
}

function present(fates: ReadonlyMap<string, Fate>): Record<string, Fate> {
  return Object.fromEntries([...fates].filter(([, fate]) => fate !== 'gone'))
}

function agree(found: ReadonlyMap<string, Fate>, expected: ReadonlyMap<string, Fate>): boolean {
  const wanted = Object.entries(present(expected))
  return wanted.length === found.size && wanted.every(([url, fate]) => found.get(url) === fate)
}
