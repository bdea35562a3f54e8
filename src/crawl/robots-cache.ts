/**
 * What each origin's robots.txt says. Invariant: at most one fetch per origin runs at once, however many pages wait for
 * it, and nothing of an origin is fetched before its answer is known.
 *
 *   2xx        its rules            4xx (but 429)       no rules: all is allowed
 *   HTML       no rules             5xx, 429, no answer nothing is allowed for now: ask again after UNREACHABLE_TTL_MS
 *   redirect   followed up to REDIRECTS_MAX times, to other origins too; the rules are those of the origin asked for
 */
import robotsParserModule from 'robots-parser'
import type { Clock } from '../env/clock.js'
import { resolveLink } from './extract-links.js'
import type { Fetcher } from './fetch-page.js'
import { networkErrorLabel, retryAfterMs } from './retry-policy.js'

/** Origins remembered; the one asked for longest ago goes first. */
export const ROBOTS_ORIGINS_MAX = 5000
export const ROBOTS_TTL_MS = 24 * 3600_000
export const UNREACHABLE_TTL_MS = 5000
const REDIRECTS_MAX = 5
/** What is beyond is not read, as RFC 9309 allows. */
const ROBOTS_BYTES_MAX = 500 * 1024
/** A longer Crawl-delay counts as this. */
export const CRAWL_DELAY_MS_MAX = 5 * 60_000

export type RobotsVerdict =
  | { readonly kind: 'allowed'; readonly crawlDelayMs: number }
  | { readonly kind: 'disallowed' }
  /** Not known yet; worth asking again after `retryInMs`. */
  | { readonly kind: 'unreachable'; readonly reason: string; readonly retryInMs: number }

interface Robots {
  isAllowed(url: string, userAgent: string): boolean | undefined
  getCrawlDelay(userAgent: string): number | undefined
}

/** The package is CommonJS, its types say ESM: what `import` gives is the function itself. */
const robotsParser = robotsParserModule as unknown as (url: string, text: string) => Robots

type Rules =
  | { readonly kind: 'rules'; readonly parsed: Robots }
  | { readonly kind: 'allow-all' }
  | { readonly kind: 'unreachable'; readonly reason: string; readonly ttlMs: number }

interface Entry {
  readonly rules: Promise<Rules>
  /** Monotonic ms; unlimited while the fetch runs. */
  expiresMs: number
}

export class RobotsCache {
  readonly #fetcher: Fetcher
  readonly #clock: Clock
  readonly #userAgent: string
  readonly #signal: AbortSignal
  readonly #originsMax: number
  readonly #entries = new Map<string, Entry>()

  constructor(fields: {
    readonly fetcher: Fetcher
    readonly clock: Clock
    readonly userAgent: string
    /** The crawl's, not one page's: other pages wait for the same answer. */
    readonly signal: AbortSignal
    readonly originsMax?: number
  }) {
    this.#fetcher = fields.fetcher
    this.#clock = fields.clock
    this.#userAgent = fields.userAgent
    this.#signal = fields.signal
    this.#originsMax = fields.originsMax ?? ROBOTS_ORIGINS_MAX
  }

  get size(): number {
    return this.#entries.size
  }

  /** Rejects only when the crawl was stopped meanwhile. */
  async verdict(url: string): Promise<RobotsVerdict> {
    const entry = this.#entry(new URL(url).origin)
    const rules = await entry.rules
    if (rules.kind === 'unreachable') {
      return { ...rules, retryInMs: Math.max(0, Math.ceil(entry.expiresMs - this.#clock.monotonic())) }
    }
    if (rules.kind === 'allow-all') return { kind: 'allowed', crawlDelayMs: 0 }
    if (rules.parsed.isAllowed(url, this.#userAgent) === false) return { kind: 'disallowed' }
    return { kind: 'allowed', crawlDelayMs: crawlDelayMs(rules.parsed.getCrawlDelay(this.#userAgent)) }
  }

  #entry(origin: string): Entry {
    let entry = this.#entries.get(origin)
    if (entry === undefined || entry.expiresMs <= this.#clock.monotonic()) entry = this.#load(origin)
    // A Map keeps the order of insertion: moving the entry to the end makes the first the one used longest ago.
    this.#entries.delete(origin)
    this.#entries.set(origin, entry)
    if (this.#entries.size > this.#originsMax) {
      const [oldest] = this.#entries.keys()
      this.#entries.delete(oldest)
    }
    return entry
  }

  #load(origin: string): Entry {
    const entry: Entry = {
      expiresMs: Number.POSITIVE_INFINITY,
      rules: this.#fetchRules(origin).then(
        (rules) => {
          entry.expiresMs = this.#clock.monotonic() + (rules.kind === 'unreachable' ? rules.ttlMs : ROBOTS_TTL_MS)
          return rules
        },
        (error: unknown) => {
          // The crawl was stopped: nothing was learnt.
          this.#entries.delete(origin)
          throw error
        },
      ),
    }
    return entry
  }

  async #fetchRules(origin: string): Promise<Rules> {
    const robotsUrl = `${origin}/robots.txt`
    let url = robotsUrl
    for (let redirects = 0; redirects <= REDIRECTS_MAX; redirects++) {
      try {
        const page = await this.#fetcher.fetch(url, {
          signals: [this.#signal],
          bytesMax: ROBOTS_BYTES_MAX,
          keepBody: () => true,
        })
        const { status } = page
        const target = page.location === undefined ? undefined : resolveLink(page.location, url)
        if (status >= 300 && status < 400 && target !== undefined) {
          url = target
          continue
        }
        if (status >= 500 || status === 429) {
          const askedMs = retryAfterMs(page.retryAfter, this.#clock.now()) ?? 0
          return unreachable(`HTTP ${status}`, Math.max(UNREACHABLE_TTL_MS, askedMs))
        }
        if (status < 200 || status >= 300 || isHtml(page.contentType)) return { kind: 'allow-all' }
        return { kind: 'rules', parsed: robotsParser(robotsUrl, (page.body ?? Buffer.alloc(0)).toString('utf8')) }
      } catch (error) {
        if (this.#signal.aborted) throw error
        return unreachable(networkErrorLabel(error), UNREACHABLE_TTL_MS)
      }
    }
    // Too many redirects: as if there were none.
    return { kind: 'allow-all' }
  }
}

function unreachable(reason: string, ttlMs: number): Rules {
  return { kind: 'unreachable', reason, ttlMs }
}

/** Error pages and single-page applications answer anything with HTML; read as rules it would be noise. */
function isHtml(contentType: string | undefined): boolean {
  return /^\s*(text\/html|application\/xhtml\+xml)\b/i.test(contentType ?? '')
}

function crawlDelayMs(seconds: number | undefined): number {
  if (seconds === undefined || !(seconds > 0)) return 0
  return Math.min(CRAWL_DELAY_MS_MAX, Math.round(seconds * 1000))
}
