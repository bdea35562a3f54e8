/**
 * `holdfast crawl`: runs a crawl and tells people about it. Words go to stderr, data (`--json`) to stdout.
 *
 * Invariant: after a stop signal the process is gone within STOP_MS, in good order or not; both are safe.
 */
import type { Command } from 'commander'
import { ROBOTS_ERROR } from '../crawl/page-line.js'
import { type CrawlHooks, type CrawlOpened, type CrawlPlan, type CrawlResult, runCrawl } from '../crawl/run-crawl.js'
import type { CliIo, StopSignal } from './cli-io.js'
import { type CrawlFlags, parseSeed, planOf } from './crawl-options.js'
import { EXIT_OK, EXIT_SIGNAL } from './exit-codes.js'
import { count, ProgressLine, seconds } from './progress.js'

/** Answering a stop signal may take this long; then the process ends as it is. */
const STOP_MS = 1800

interface Tally {
  pages: number
  errors: number
  forbidden: number
  bytes: number
  firstPageMs: number | null
  opened: CrawlOpened | undefined
  stoppedBy: StopSignal | undefined
}

export async function crawlCommand(
  urls: readonly string[],
  rawFlags: Record<string, unknown>,
  io: CliIo,
  command: Command,
  version: string,
): Promise<number> {
  const flags = rawFlags as unknown as CrawlFlags
  const seeds = new Set<string>()
  for (const text of urls) {
    const seed = parseSeed(text)
    if ('problem' in seed) return command.error(`error: ${seed.problem}`)
    seeds.add(seed.url)
  }
  const { openFrontier } = await import('../frontier/frontier.js')
  const { nodeEnv } = await import('../env/node-env.js')
  return crawlAndReport(planOf([...seeds], flags, version), flags.json === true, io, { env: nodeEnv, openFrontier })
}

/** The part that a test can run with a world of its own. */
export async function crawlAndReport(
  plan: CrawlPlan,
  json: boolean,
  io: CliIo,
  world: Pick<CrawlHooks, 'env' | 'openFrontier'>,
): Promise<number> {
  const startedMs = io.uptimeMs()
  const tally: Tally = {
    pages: 0,
    errors: 0,
    forbidden: 0,
    bytes: 0,
    firstPageMs: null,
    opened: undefined,
    stoppedBy: undefined,
  }
  const stop = new AbortController()
  const progress = new ProgressLine(io, { pagesMax: plan.pagesMax })
  let watchdog: NodeJS.Timeout | undefined
  const forgetSignals = io.onStopSignal((signal) => {
    if (tally.stoppedBy !== undefined) return io.exit(EXIT_SIGNAL[tally.stoppedBy])
    tally.stoppedBy = signal
    watchdog = setTimeout(() => io.exit(EXIT_SIGNAL[signal]), STOP_MS)
    stop.abort()
  })
  // While every page waits for its time, only timers that do not count are pending, and Node would end the process.
  const keepAlive = setInterval(() => {}, 2 ** 30)
  try {
    const result = await runCrawl(plan, {
      ...world,
      signal: stop.signal,
      onOpen(opened) {
        tally.opened = opened
        io.stderr.write(`${greeting(plan, opened)}\n`)
        progress.start(opened)
      },
      onPage(line) {
        tally.firstPageMs ??= io.uptimeMs()
        tally.pages++
        tally.bytes += line.bytes
        if (line.error === ROBOTS_ERROR) tally.forbidden++
        else if (line.error !== undefined) tally.errors++
        progress.page(line)
      },
    })
    progress.stop()
    const durationMs = io.uptimeMs() - startedMs
    io.stderr.write(`${summary(plan, result, tally, durationMs)}\n`)
    if (json) io.stdout.write(`${JSON.stringify(document(plan, result, tally, durationMs))}\n`)
    return tally.stoppedBy === undefined ? EXIT_OK : EXIT_SIGNAL[tally.stoppedBy]
  } finally {
    progress.stop()
    forgetSignals()
    clearTimeout(watchdog)
    clearInterval(keepAlive)
  }
}

function greeting(plan: CrawlPlan, opened: CrawlOpened): string {
  if (opened.resumed) {
    const inHand = opened.leases > 0 ? ` (${count(opened.leases)} were in hand when it ended)` : ''
    return `Resuming: ${count(opened.lines)} done, ${count(opened.waiting)} waiting${inHand}`
  }
  return `Crawling ${plan.seeds.join(' ')} into ${opened.outputPath}`
}

function summary(plan: CrawlPlan, result: CrawlResult, tally: Tally, durationMs: number): string {
  const waiting = waitingOf(result)
  const total = `${count(result.lines)} ${result.lines === 1 ? 'page' : 'pages'} in ${result.outputPath}`
  const failed = result.stats.dead > 0 ? `, ${count(result.stats.dead)} failed for good` : ''
  const speed = `${count(tally.pages)} in ${seconds(durationMs)}`
  if (result.end === 'stopped') {
    return `Stopped: ${total} (${speed}), ${count(waiting)} waiting. Run the same command again to go on.`
  }
  if (result.end === 'pages-max') {
    return waiting > 0
      ? `Stopped at --max-pages ${plan.pagesMax}: ${total} (${speed}), ${count(waiting)} waiting. Raise it to go on.`
      : `Finished at --max-pages ${plan.pagesMax}: ${total} (${speed}), nothing is waiting${failed}.`
  }
  if (tally.pages === 0) return `finished: nothing left to do. ${total}${failed}.`
  const errors = tally.errors > 0 ? `, ${count(tally.errors)} with errors` : ''
  const forbidden = tally.forbidden > 0 ? `, ${count(tally.forbidden)} forbidden by robots.txt` : ''
  return `Finished: ${total} (${speed}${errors}${forbidden})${failed}.`
}

function document(plan: CrawlPlan, result: CrawlResult, tally: Tally, durationMs: number): Record<string, unknown> {
  const { stats } = result
  const { opened } = tally
  return {
    end: result.end,
    signal: tally.stoppedBy ?? null,
    job: plan.directory,
    out: result.outputPath,
    resumed: opened?.resumed ?? false,
    /** Of this run. */
    pages: tally.pages,
    errors: tally.errors,
    forbidden: tally.forbidden,
    bytes: tally.bytes,
    /** Of all runs. */
    lines: result.lines,
    waiting: waitingOf(result),
    ready: stats.ready,
    delayed: stats.delayed,
    dead: stats.dead,
    seen: stats.seen,
    recoveredLeases: opened?.leases ?? 0,
    tornBytes: opened?.tornBytes ?? 0,
    durationMs: Math.round(durationMs),
    /** From the start of the process to the first finished page. */
    firstPageMs: tally.firstPageMs === null ? null : Math.round(tally.firstPageMs),
  }
}

function waitingOf(result: CrawlResult): number {
  return result.stats.ready + result.stats.delayed + result.stats.leased
}
