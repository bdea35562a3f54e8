/**
 * Takes pages from the frontier, visits them, and settles each one in a single commit. Knows no process and no terminal.
 *
 * Invariant: every visit handed out ends in exactly one of ack, bury, retry, release, or in the failure that stops the
 * crawl. `#lines + #inFlight` never exceeds `pagesMax`, so the limit is met exactly, however many pages run at once.
 */
import type { Clock } from '../env/clock.js'
import { HoldfastError } from '../errors.js'
import type { RequestInit, Visit } from '../frontier/types.js'
import type { CrawlFrontier } from './crawl-frontier.js'
import type { OutputFile } from './output-file.js'
import { PageCommitter } from './page-committer.js'
import type { PageLine } from './page-line.js'
import type { Scope } from './scope.js'
import type { PageOutcome, PageVisitor } from './visit-page.js'

/** State key: URLs outside the scope that a seed redirects to. They count as seeds, after a restart too. */
export const SEEDS_STATE_KEY = 'crawl.seeds'
const REDIRECTED_SEEDS_MAX = 1000
/** Slots remembered before those whose rest is over are forgotten. */
const PAUSED_SLOTS_MAX = 10_000

export interface CrawlerFields {
  readonly frontier: CrawlFrontier
  readonly output: OutputFile
  readonly visitor: PageVisitor
  readonly scope: Scope
  readonly clock: Clock
  /** Pages at once, over all hosts. */
  readonly concurrency: number
  /** Links further from a seed are not followed. */
  readonly depthMax: number
  /** Stop when the output holds this many lines. */
  readonly pagesMax: number
  readonly power: boolean
  /** Ends the crawl: pages in flight are given back. */
  readonly stop: AbortController
  readonly onPage: (line: PageLine) => void
}

/** `finished`: nothing is left. `pages-max`: the limit was met. `stopped`: the signal was aborted. */
export type CrawlEnd = 'finished' | 'pages-max' | 'stopped'

export class Crawler {
  readonly #fields: CrawlerFields
  readonly #committer: PageCommitter
  readonly #redirectedSeeds: string[]
  #lines: number
  readonly #running = new Set<Promise<void>>()
  readonly #pausedUntilMs = new Map<string, number>()
  #wake: () => void = () => {}
  #failure: { readonly error: unknown } | undefined

  constructor(fields: CrawlerFields) {
    this.#fields = fields
    this.#committer = new PageCommitter(fields.output, { power: fields.power })
    this.#lines = fields.output.position.lines
    const stored = fields.frontier.state(SEEDS_STATE_KEY)
    this.#redirectedSeeds = Array.isArray(stored) ? stored.map(String) : []
    for (const seed of this.#redirectedSeeds) fields.scope.admit(seed)
  }

  /** Runs until nothing is left, the limit is met or `stop` is aborted. Throws what made going on impossible. */
  async run(): Promise<CrawlEnd> {
    const { stop, frontier } = this.#fields
    const visits = frontier.visits({ signal: stop.signal })
    let end: CrawlEnd = 'finished'
    try {
      for (;;) {
        await this.#room()
        if (stop.signal.aborted) break
        if (this.#lines >= this.#fields.pagesMax) {
          end = 'pages-max'
          break
        }
        const next = await visits.next()
        if (next.done === true) break
        this.#start(next.value)
      }
    } catch (error) {
      this.#failure ??= { error }
      stop.abort()
    } finally {
      await Promise.all(this.#running)
    }
    await visits.return?.()
    if (this.#failure !== undefined) throw this.#failure.error
    return stop.signal.aborted ? 'stopped' : end
  }

  /** Waits until one more page may be in flight, or none may ever be. */
  async #room(): Promise<void> {
    const { concurrency, pagesMax, stop } = this.#fields
    while (!stop.signal.aborted && this.#lines < pagesMax) {
      if (this.#running.size < concurrency && this.#lines + this.#running.size < pagesMax) return
      await new Promise<void>((resolve) => {
        this.#wake = resolve
      })
    }
  }

  #start(visit: Visit): void {
    const running = this.#handle(visit)
      .catch((error: unknown) => {
        // One page's failure to settle is everybody's: the disk or the lock is gone, and the next would fail alike.
        this.#failure ??= { error }
        this.#fields.stop.abort()
      })
      .finally(() => {
        this.#running.delete(running)
        this.#wake()
      })
    this.#running.add(running)
  }

  async #handle(visit: Visit): Promise<void> {
    const { stop, visitor } = this.#fields
    const request = {
      ...metaOf(visit),
      slot: visit.slot,
      failures: visit.failures,
      signals: [stop.signal, visit.signal],
    }
    let rest: Promise<void> | undefined
    const outcome: PageOutcome = stop.signal.aborted
      ? { kind: 'aborted' }
      : await visitor.visit(request, (restMs) => {
          visit.extend()
          if (restMs > 0) rest = this.#pause(visit.slot, restMs)
          // Its failure is looked at below; until then it must not count as unhandled.
          rest?.catch(() => {})
        })
    await rest
    switch (outcome.kind) {
      case 'finished':
        return this.#finish(visit, outcome)
      case 'retry':
        if (outcome.pauseSlot) await this.#pause(visit.slot, outcome.delayMs)
        return settle(() => visit.retry({ delayMs: outcome.delayMs, reason: outcome.reason }))
      case 'wait':
        await this.#pause(visit.slot, outcome.delayMs)
        return settle(() => visit.release())
      case 'aborted':
        return settle(() => visit.release())
    }
  }

  /** Never shortens a rest: a page's Crawl-delay must not undo the minute that another page's 503 asked for. */
  async #pause(slot: string, forMs: number): Promise<void> {
    const now = this.#fields.clock.now()
    const untilMs = now + forMs
    if ((this.#pausedUntilMs.get(slot) ?? 0) >= untilMs) return
    if (this.#pausedUntilMs.size >= PAUSED_SLOTS_MAX) {
      for (const [other, otherMs] of this.#pausedUntilMs) if (otherMs <= now) this.#pausedUntilMs.delete(other)
    }
    this.#pausedUntilMs.set(slot, untilMs)
    await this.#fields.frontier.pauseSlot(slot, untilMs)
  }

  async #finish(visit: Visit, outcome: Extract<PageOutcome, { kind: 'finished' }>): Promise<void> {
    const { line, failed } = outcome
    const seeds = this.#admitRedirectedSeed(outcome)
    try {
      const result = await this.#committer.commit({
        visit,
        line,
        add: failed ? [] : this.#requests(outcome),
        ...(failed ? { bury: line.error ?? 'failed' } : {}),
        ...(seeds === undefined ? {} : { state: { [SEEDS_STATE_KEY]: seeds } }),
      })
      if (result === 'lost') return
    } catch (error) {
      await visit.release().catch(() => {})
      throw error
    }
    this.#lines++
    this.#fields.onPage(line)
  }

  /** A seed that moved (to https, to www.) takes the scope with it; returns the list to store when it has grown. */
  #admitRedirectedSeed(outcome: Extract<PageOutcome, { kind: 'finished' }>): string[] | undefined {
    const { scope } = this.#fields
    if (!outcome.redirect || outcome.line.depth !== 0) return undefined
    const [target] = outcome.line.links
    if (scope.includes(target) || this.#redirectedSeeds.length >= REDIRECTED_SEEDS_MAX) return undefined
    scope.admit(target)
    this.#redirectedSeeds.push(target)
    return [...this.#redirectedSeeds]
  }

  #requests(outcome: Extract<PageOutcome, { kind: 'finished' }>): RequestInit[] {
    const { scope, depthMax } = this.#fields
    const { line } = outcome
    // A redirect is the same page under another name, and so as far from the seed.
    const depth = outcome.redirect ? line.depth : line.depth + 1
    if (depth > depthMax) return []
    return line.links.filter((link) => scope.includes(link)).map((url) => ({ url, meta: { d: depth, r: line.url } }))
  }
}

/** A lease that ran out meanwhile is somebody else's now, and nothing is left to settle. */
async function settle(call: () => Promise<void>): Promise<void> {
  try {
    await call()
  } catch (error) {
    if (error instanceof HoldfastError && (error as HoldfastError).code === 'HOLDFAST_STALE_LEASE') return
    throw error
  }
}

function metaOf(visit: Visit): { url: string; depth: number; referer: string | null } {
  const { d, r } = visit.meta
  return {
    url: visit.url,
    depth: typeof d === 'number' ? d : 0,
    referer: typeof r === 'string' ? r : null,
  }
}
