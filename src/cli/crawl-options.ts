/** The flags of `holdfast crawl`: names, defaults and bounds in one place, and how they become a plan. */
import { type Command, InvalidArgumentError, Option } from 'commander'
import type { CrawlPlan } from '../crawl/run-crawl.js'
import { SCOPE_KINDS, type ScopeKind } from '../crawl/scope.js'
import type { Durability } from '../frontier/types.js'

const CONCURRENCY_MAX = 1024
const TIMER_MS_MAX = 2 ** 31 - 1

export interface CrawlFlags {
  readonly job: string
  readonly out?: string
  readonly scope: ScopeKind
  readonly maxDepth?: number
  readonly maxPages?: number
  readonly concurrency: number
  readonly perHost: number
  readonly delay: number
  readonly order: 'bfs' | 'dfs'
  readonly ignoreRobots?: boolean
  readonly userAgent?: string
  readonly durability: Durability
  readonly retries: number
  readonly timeout: number
  readonly maxBytes: number
  readonly json?: boolean
}

export function crawlOptions(command: Command): Command {
  return command
    .description('Crawls from the given URLs. The same line again goes on where it was, however it ended.')
    .argument('<url...>', 'where to begin: absolute http or https URLs')
    .requiredOption(
      '--job <dir>',
      'directory that holds the state of the crawl; made when it is not there',
      parseDirectory,
    )
    .option('--out <file>', 'output, one JSON object per page and line (default: DIR/pages.ndjson)')
    .addOption(
      new Option(
        '--scope <kind>',
        'links to follow: same host, same domain, below the directory of a start URL, or any',
      )
        .choices(SCOPE_KINDS)
        .default('host'),
    )
    .option('--max-depth <n>', 'links away from a start URL', integer('--max-depth', 0))
    .option('--max-pages <n>', 'stop when the output has this many lines', integer('--max-pages', 1))
    .option('--concurrency <n>', 'pages at once', integer('--concurrency', 1, CONCURRENCY_MAX), 16)
    .option('--per-host <n>', 'pages at once from one host', integer('--per-host', 1, CONCURRENCY_MAX), 2)
    .option('--delay <ms>', 'ms between two requests to one host', integer('--delay', 0, TIMER_MS_MAX), 0)
    .addOption(
      new Option('--order <order>', 'breadth first or depth first; fixed when the job is made')
        .choices(['bfs', 'dfs'])
        .default('bfs'),
    )
    .option('--ignore-robots', 'do not ask robots.txt (for sites of your own)')
    .option('--user-agent <s>', 'what to call yourself (default: holdfast/VERSION)', userAgent)
    .addOption(
      new Option('--durability <kind>', 'what a finished page survives: the end of the process, or power loss too')
        .choices(['process', 'power'])
        .default('process'),
    )
    .option('--retries <n>', 'tries again of a page that fails', integer('--retries', 0, 1000), 3)
    .option(
      '--timeout <ms>',
      'for connecting, for the answer, and for each gap in it; a whole page may take four times that',
      integer('--timeout', 1, TIMER_MS_MAX / 16),
      30_000,
    )
    .option('--max-bytes <n>', 'of one page; the rest is cut off', integer('--max-bytes', 1), 10 * 1024 * 1024)
    .option('--json', 'print a summary as one JSON document on stdout')
    .addHelpText('after', NOTES)
}

const NOTES = `
--scope host is the host and port of any start URL. --scope domain takes the last two labels of a host name for its
domain (no list of public suffixes is used: for example.co.uk that is all of co.uk). A start URL that redirects
elsewhere, as example.org to www.example.org, takes the scope with it.

Each page is in the output once, whatever kills the crawl. A redirect has a line of its own. Pages that robots.txt
forbids, and pages that failed for good, have a line with "error". Crawl-delay and Retry-After are kept.

Ctrl-C stops in good order, a second one at once. Both are safe, and so is kill -9.`

export function planOf(seeds: readonly string[], flags: CrawlFlags, version: string): CrawlPlan {
  return {
    directory: flags.job,
    seeds,
    out: flags.out,
    scope: flags.scope,
    depthMax: flags.maxDepth ?? Number.POSITIVE_INFINITY,
    pagesMax: flags.maxPages ?? Number.POSITIVE_INFINITY,
    concurrency: flags.concurrency,
    perHost: flags.perHost,
    delayMs: flags.delay,
    order: flags.order,
    robots: flags.ignoreRobots !== true,
    userAgent: flags.userAgent ?? `holdfast/${version}`,
    durability: flags.durability,
    retries: flags.retries,
    timeoutMs: flags.timeout,
    bytesMax: flags.maxBytes,
  }
}

/** The start URL without its fragment, or what is wrong with it. */
export function parseSeed(text: string): { readonly url: string } | { readonly problem: string } {
  if (!URL.canParse(text)) {
    const hint = URL.canParse(`https://${text}`) ? ` (did you mean https://${text} ?)` : ''
    return { problem: `not an absolute URL: ${text}${hint}` }
  }
  const url = new URL(text)
  if (url.protocol !== 'http:' && url.protocol !== 'https:') {
    const hint = text.includes('://') ? '' : ` (did you mean http://${text} ?)`
    return { problem: `not an http or https URL: ${text}${hint}` }
  }
  url.hash = ''
  return { url: url.href }
}

function integer(flag: string, min: number, max = Number.MAX_SAFE_INTEGER): (text: string) => number {
  return (text) => {
    const value = Number(text)
    if (!/^\d+$/.test(text) || value < min || value > max) {
      const upper = max === Number.MAX_SAFE_INTEGER ? '' : ` and at most ${Math.floor(max)}`
      throw new InvalidArgumentError(`${flag} takes an integer of at least ${min}${upper}.`)
    }
    return value
  }
}

function userAgent(text: string): string {
  if (!/^[\x20-\x7e]+$/.test(text)) throw new InvalidArgumentError('A user agent is printable ASCII.')
  return text
}

function parseDirectory(text: string): string {
  if (text.trim() === '') throw new InvalidArgumentError('--job takes the name of a directory.')
  return text
}
