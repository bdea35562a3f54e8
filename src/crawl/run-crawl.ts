/**
 * One run of a crawl from open to close: the same call begins a crawl and resumes it. Invariant: whatever happens, the
 * connections are dropped, the output is closed and the lock is given back before this returns or throws.
 */
import { setMaxListeners } from 'node:events'
import type { Env } from '../env/env.js'
import type { Durability, Order, Stats } from '../frontier/types.js'
import { LEASE_MS_DEFAULT } from '../limits.js'
import type { CrawlFrontier, OpenFrontier } from './crawl-frontier.js'
import { type CrawlEnd, Crawler } from './crawler.js'
import { HttpFetcher, PAGE_TIMEOUTS } from './fetch-page.js'
import { OutputFile, type OutputState } from './output-file.js'
import { OUTPUT_STATE_KEY } from './page-committer.js'
import type { PageLine } from './page-line.js'
import { RobotsCache } from './robots-cache.js'
import { Scope, type ScopeKind } from './scope.js'
import { PageVisitor } from './visit-page.js'

/** Hand-outs of one page, kills included, before it is taken for the one that kills the process. */
const MAX_ATTEMPTS = 200

export interface CrawlPlan {
  readonly directory: string
  /** Absolute http(s) URLs. */
  readonly seeds: readonly string[]
  readonly out: string | undefined
  readonly scope: ScopeKind
  readonly depthMax: number
  readonly pagesMax: number
  readonly concurrency: number
  readonly perHost: number
  readonly delayMs: number
  readonly order: 'bfs' | 'dfs'
  readonly robots: boolean
  readonly userAgent: string
  readonly durability: Durability
  readonly retries: number
  readonly timeoutMs: number
  readonly bytesMax: number
}

export interface CrawlHooks {
  readonly env: Pick<Env, 'files' | 'clock' | 'random'>
  readonly openFrontier: OpenFrontier
  /** Aborting it ends the run in good order. */
  readonly signal: AbortSignal
  /** The job is open; nothing was fetched yet. */
  readonly onOpen: (opened: CrawlOpened) => void
  readonly onPage: (line: PageLine) => void
}

export interface CrawlOpened {
  /** Lines of earlier runs. */
  readonly lines: number
  /** Pages waiting, seeds of this run included. */
  readonly waiting: number
  /** False for a crawl that has just been begun. */
  readonly resumed: boolean
  /** Pages the last run had in hand when it was killed. */
  readonly leases: number
  readonly tornBytes: number
  readonly outputPath: string
  readonly stats: () => Promise<Stats>
}

export interface CrawlResult {
  readonly end: CrawlEnd
  readonly stats: Stats
  /** Lines in the output, of all runs. */
  readonly lines: number
  readonly outputPath: string
}

export async function runCrawl(plan: CrawlPlan, hooks: CrawlHooks): Promise<CrawlResult> {
  const frontier = await hooks.openFrontier(plan.directory, {
    order: ORDERS[plan.order],
    durability: plan.durability,
    politeness: { concurrency: plan.perHost, delayMs: plan.delayMs },
    // Longer than robots.txt and page together can take, so that a slow page is never handed out twice.
    leaseMs: Math.max(LEASE_MS_DEFAULT, 3 * PAGE_TIMEOUTS * plan.timeoutMs),
    maxAttempts: MAX_ATTEMPTS,
  })
  let result: CrawlResult
  try {
    result = await crawlWith(frontier, plan, hooks)
  } catch (error) {
    // What ended the crawl is the news, not what closing then had to say about it.
    await frontier.close().catch(() => {})
    throw error
  }
  await frontier.close()
  return result
}

async function crawlWith(frontier: CrawlFrontier, plan: CrawlPlan, hooks: CrawlHooks): Promise<CrawlResult> {
  const { clock, random } = hooks.env
  const { userAgent, timeoutMs, retries, bytesMax, perHost } = plan
  const stop = new AbortController()
  // Every page in flight listens to it: many is normal here, and no leak to warn of.
  setMaxListeners(0, stop.signal)
  const onAbort = (): void => stop.abort()
  if (hooks.signal.aborted) onAbort()
  hooks.signal.addEventListener('abort', onAbort)
  // One connection more than pages at once: robots.txt.
  const fetcher = new HttpFetcher({ clock, userAgent, timeoutMs, connections: perHost + 1 })
  let output: OutputFile | undefined
  try {
    output = await openOutput(frontier, plan, hooks)
    hooks.onOpen(await begin(frontier, output, plan))
    const robots = plan.robots ? new RobotsCache({ fetcher, clock, userAgent, signal: stop.signal }) : undefined
    const crawler = new Crawler({
      frontier,
      output,
      clock,
      stop,
      visitor: new PageVisitor({ fetcher, robots, clock, random, retries, bytesMax }),
      scope: new Scope(plan.scope, plan.seeds),
      concurrency: plan.concurrency,
      depthMax: plan.depthMax,
      pagesMax: plan.pagesMax,
      power: plan.durability === 'power',
      onPage: hooks.onPage,
    })
    const end = await crawler.run()
    return { end, stats: await frontier.stats(), lines: output.position.lines, outputPath: output.path }
  } finally {
    hooks.signal.removeEventListener('abort', onAbort)
    output?.close()
    await fetcher.close()
  }
}

/** Breadth first: everything in the order it was found. Depth first: what was found last goes first. */
const ORDERS: Record<CrawlPlan['order'], Order> = { bfs: 'fifo', dfs: 'lifo' }

async function openOutput(frontier: CrawlFrontier, plan: CrawlPlan, hooks: CrawlHooks): Promise<OutputFile> {
  const stored = frontier.state(OUTPUT_STATE_KEY) as OutputState | undefined
  const output = OutputFile.open(hooks.env.files, plan.directory, plan.out, stored)
  try {
    // From here on the file is this crawl's: a kill before the first page must not make the next run refuse it.
    if (stored?.path !== output.state.path) await frontier.setState({ [OUTPUT_STATE_KEY]: output.state })
  } catch (error) {
    output.close()
    throw error
  }
  return output
}

async function begin(frontier: CrawlFrontier, output: OutputFile, plan: CrawlPlan): Promise<CrawlOpened> {
  await frontier.add(plan.seeds.map((url) => ({ url, start: true, meta: { d: 0 } })))
  const { ready, delayed, leased } = await frontier.stats()
  const { created, leases, tornBytes } = frontier.recovery
  return {
    lines: output.position.lines,
    waiting: ready + delayed + leased,
    resumed: !created,
    leases,
    tornBytes,
    outputPath: output.path,
    stats: () => frontier.stats(),
  }
}
