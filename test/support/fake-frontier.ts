/**
 * A frontier in memory for the tests of the crawler: the order of commits and what survives a kill are those of the real
 * one, nothing else is. `FakeDisk` is what a kill leaves; opening it again makes a frontier that goes on.
 *
 * Delays are recorded and not waited for: a page that is retried is ready at once.
 */
import { EventEmitter } from 'node:events'
import type { CrawlFrontier } from '../../src/crawl/crawl-frontier.js'
import { HoldfastError } from '../../src/errors.js'
import type {
  AckOptions,
  AddOptions,
  AddResult,
  BuryOptions,
  Recovery,
  RequestInit,
  RequestInput,
  Requests,
  RetryOptions,
  Settlement,
  Stats,
  Visit,
} from '../../src/frontier/types.js'

interface FakeJob {
  readonly id: number
  readonly request: RequestInit
  failures: number
  attempt: number
  lastReason: string | undefined
}

/** What is on disk: only commits change it. */
export class FakeDisk {
  readonly jobs = new Map<number, FakeJob>()
  readonly seen = new Set<string>()
  readonly state = new Map<string, unknown>()
  readonly dead: { url: string; reason: string }[] = []
  nextId = 1
  opened = 0
}

export class FakeFrontier implements CrawlFrontier {
  readonly recovery: Recovery
  readonly disk: FakeDisk
  /** Every pause asked for, in order. */
  readonly pauses: { slot: string; untilMs: number }[] = []
  readonly retries: { url: string; delayMs: number; reason: string | undefined }[] = []
  readonly released: string[] = []
  /** Called for each settling call before it is encoded; what it returns rejects the call, which then has no effect. */
  refuse: (verb: string, url: string) => Error | undefined = () => undefined
  /** Commits wait for this before they count. */
  beforeCommit: () => Promise<void> = () => Promise.resolve()
  readonly #ready: FakeJob[] = []
  readonly #leased = new Map<FakeJob, FakeVisit>()
  readonly #changed = new EventEmitter()
  #commits: Promise<void> = Promise.resolve()
  #killed = false
  closed = false

  constructor(disk: FakeDisk = new FakeDisk()) {
    this.disk = disk
    this.recovery = { created: disk.opened === 0, leases: 0, tornBytes: 0, frames: 0, buried: 0 }
    disk.opened++
    this.#ready.push(...disk.jobs.values())
    this.#changed.setMaxListeners(0)
  }

  /** Nothing is written from here on; what waits never hears of it. */
  kill(): void {
    this.#killed = true
  }

  async add(requests: Requests, options: AddOptions = {}): Promise<AddResult> {
    const list: RequestInput[] = []
    if (typeof requests === 'string' || requests instanceof URL || 'url' in requests) list.push(requests)
    else for await (const request of requests) list.push(request)
    return this.commit(() => this.#add(list, options))
  }

  #add(requests: Iterable<RequestInput>, options: AddOptions): AddResult {
    const result = { added: 0, duplicates: 0, memoryOnly: 0, invalid: 0 }
    for (const input of requests) {
      const request: RequestInit = typeof input === 'string' || input instanceof URL ? { url: input } : input
      const url = String(request.url)
      if (this.disk.seen.has(url)) {
        result.duplicates++
        continue
      }
      this.disk.seen.add(url)
      const meta = request.meta ?? options.meta
      const job: FakeJob = {
        id: this.disk.nextId++,
        request: { ...request, url, ...(meta === undefined ? {} : { meta }) },
        failures: 0,
        attempt: 0,
        lastReason: undefined,
      }
      this.disk.jobs.set(job.id, job)
      this.#ready.push(job)
      result.added++
    }
    return result
  }

  /** In the order of the calls, one after the other. */
  commit<T>(apply: () => T): Promise<T> {
    const done = this.#commits
      .then(() => this.beforeCommit())
      .then(() => {
        // A killed process hears of nothing.
        if (this.#killed) return new Promise<T>(() => {})
        const result = apply()
        this.#changed.emit('change')
        return result
      })
    this.#commits = done.then(
      () => {},
      () => {},
    )
    return done
  }

  async *visits(options: { signal?: AbortSignal } = {}): AsyncIterableIterator<Visit> {
    const { signal } = options
    while (signal?.aborted !== true) {
      const job = this.#ready.shift()
      if (job !== undefined) {
        job.attempt++
        const visit = new FakeVisit(this, job)
        this.#leased.set(job, visit)
        yield visit
      } else {
        if (this.#leased.size === 0) return
        await new Promise<void>((resolve) => {
          this.#changed.once('change', () => resolve())
          signal?.addEventListener('abort', () => resolve(), { once: true })
        })
      }
    }
  }

  /** Ends the lease; `apply` is what the commit does. */
  settle(visit: FakeVisit, verb: string, settlement: Settlement, apply: () => void): Promise<void> {
    const refusal = this.refuse(verb, visit.url)
    if (refusal !== undefined) return Promise.reject(refusal)
    if (!visit.live) return Promise.reject(new HoldfastError('HOLDFAST_STALE_LEASE', `${visit.url}: the lease is over`))
    visit.live = false
    return this.commit(() => {
      this.#leased.delete(visit.job)
      for (const [key, value] of Object.entries(settlement.state ?? {})) this.disk.state.set(key, value)
      apply()
    })
  }

  finish(visit: FakeVisit, options: AckOptions): AddResult {
    this.disk.jobs.delete(visit.job.id)
    return this.#add(options.add ?? [], options.addOptions ?? {})
  }

  back(job: FakeJob): void {
    this.#ready.push(job)
  }

  /** Takes a lease away, as its deadline would. */
  expire(url: string): void {
    for (const [job, visit] of this.#leased) {
      if (visit.url !== url) continue
      visit.live = false
      this.#leased.delete(job)
      this.#ready.push(job)
      visit.lost.abort()
      this.#changed.emit('change')
    }
  }

  async stats(): Promise<Stats> {
    const { disk } = this
    return {
      ready: this.#ready.length,
      delayed: 0,
      leased: this.#leased.size,
      dead: disk.dead.length,
      memoryOnly: 0,
      seen: disk.seen.size,
      slots: 1,
      bytes: { memory: 0, journal: 0, segments: 0, seen: 0 },
      oldestReadyMs: null,
      counters: { added: 0, duplicates: 0, acked: 0, retried: 0, buried: 0, requeued: 0, recovered: 0, expired: 0 },
    }
  }

  state(key: string): unknown {
    return this.disk.state.get(key)
  }

  setState(entries: Record<string, unknown>): Promise<void> {
    return this.commit(() => {
      for (const [key, value] of Object.entries(entries)) this.disk.state.set(key, value)
    })
  }

  async pauseSlot(slot: string, untilMs: number): Promise<void> {
    this.pauses.push({ slot, untilMs })
  }

  async close(): Promise<void> {
    this.closed = true
  }
}

export class FakeVisit implements Visit {
  readonly job: FakeJob
  readonly lost = new AbortController()
  readonly url: string
  readonly slot: string
  readonly meta: Record<string, unknown>
  readonly method = 'GET'
  readonly start: boolean
  readonly body = undefined
  readonly headers = undefined
  readonly priority = 0
  readonly addedAt = 0
  readonly deadline = Number.MAX_SAFE_INTEGER
  readonly attempt: number
  readonly failures: number
  live = true
  readonly #frontier: FakeFrontier

  constructor(frontier: FakeFrontier, job: FakeJob) {
    this.#frontier = frontier
    this.job = job
    this.url = String(job.request.url)
    this.slot = new URL(this.url).hostname
    this.meta = job.request.meta ?? {}
    this.start = job.request.start ?? false
    this.attempt = job.attempt
    this.failures = job.failures
  }

  get id(): number {
    return this.job.id
  }

  get token(): string {
    return `${this.job.id}.${this.attempt}`
  }

  get lastReason(): string | undefined {
    return this.job.lastReason
  }

  get signal(): AbortSignal {
    return this.lost.signal
  }

  async ack(options: AckOptions = {}): Promise<AddResult> {
    let result: AddResult = { added: 0, duplicates: 0, memoryOnly: 0, invalid: 0 }
    await this.#frontier.settle(this, 'ack', options, () => {
      result = this.#frontier.finish(this, options)
    })
    return result
  }

  bury(options: BuryOptions = {}): Promise<void> {
    return this.#frontier.settle(this, 'bury', options, () => {
      this.#frontier.finish(this, {})
      this.#frontier.disk.dead.push({ url: this.url, reason: options.reason ?? '' })
    })
  }

  retry(options: RetryOptions = {}): Promise<void> {
    return this.#frontier.settle(this, 'retry', options, () => {
      this.#frontier.retries.push({ url: this.url, delayMs: options.delayMs ?? 0, reason: options.reason })
      this.job.failures++
      this.job.lastReason = options.reason
      this.#frontier.back(this.job)
    })
  }

  release(options: Settlement = {}): Promise<void> {
    return this.#frontier.settle(this, 'release', options, () => {
      this.#frontier.released.push(this.url)
      this.job.attempt--
      this.#frontier.back(this.job)
    })
  }

  extend(): void {}
}
