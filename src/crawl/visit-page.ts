/**
 * What becomes of one page: asks robots.txt, fetches, reads, and decides between "finished", "again later" and "not
 * yet". Touches neither the frontier nor the output, so that every decision is a value that can be tested.
 */
import type { Clock } from '../env/clock.js'
import type { Random } from '../env/random.js'
import { decodeText } from './decode-text.js'
import { LinkExtractor, type PageContents, resolveLink, saysNofollow } from './extract-links.js'
import type { FetchedPage, Fetcher } from './fetch-page.js'
import { type PageLine, ROBOTS_ERROR } from './page-line.js'
import { backoffMs, isOverloaded, isRetryableStatus, networkErrorLabel, retryAfterMs } from './retry-policy.js'
import type { RobotsCache, RobotsVerdict } from './robots-cache.js'

/** Text parsed between two pauses, so that a page of many megabytes does not hold up the others. */
const PARSE_SLICE_CHARS = 256 * 1024
/** Slots remembered before those whose rest is over are forgotten. */
const RESTING_SLOTS_MAX = 10_000
const CLOCK_SLACK_MS = 5

export type PageOutcome =
  /** `failed`: given up after the last retry. `redirect`: the one link is where the page now is. */
  | { readonly kind: 'finished'; readonly line: PageLine; readonly failed: boolean; readonly redirect: boolean }
  /** `pauseSlot`: the whole host asked for a rest. */
  | { readonly kind: 'retry'; readonly delayMs: number; readonly reason: string; readonly pauseSlot: boolean }
  /** The host's Crawl-delay is not over: give the page back untouched for so long. */
  | { readonly kind: 'wait'; readonly delayMs: number }
  | { readonly kind: 'aborted' }

export interface PageRequest {
  readonly url: string
  readonly depth: number
  readonly referer: string | null
  readonly slot: string
  /** Explicit retries so far. */
  readonly failures: number
  /** Aborted when the page is not ours any more, or the crawl stops. */
  readonly signals: readonly AbortSignal[]
}

export interface PageVisitorFields {
  readonly fetcher: Fetcher
  /** Absent: robots.txt is not asked. */
  readonly robots: RobotsCache | undefined
  readonly clock: Clock
  readonly random: Random
  /** Failures after which a page is given up. */
  readonly retries: number
  readonly bytesMax: number
}

export class PageVisitor {
  readonly #fields: PageVisitorFields
  /** Monotonic ms before which a slot with a Crawl-delay is not asked again. Only slots that have one are in here. */
  readonly #restUntilMs = new Map<string, number>()

  constructor(fields: PageVisitorFields) {
    this.#fields = fields
  }

  /**
   * `onFetch` is called once robots.txt has agreed and the page is about to be asked for. `restMs` is how long
   * the slot must then rest; 0 without a Crawl-delay.
   */
  async visit(page: PageRequest, onFetch: (restMs: number) => void = () => {}): Promise<PageOutcome> {
    const aborted = (): boolean => page.signals.some((signal) => signal.aborted)
    try {
      const verdict = await this.#fields.robots?.verdict(page.url)
      if (aborted()) return { kind: 'aborted' }
      if (verdict !== undefined && verdict.kind !== 'allowed') return this.#refused(page, verdict)
      const crawlDelayMs = verdict?.crawlDelayMs ?? 0
      if (crawlDelayMs > 0) {
        const leftMs = this.#restLeftMs(page.slot)
        // A little more than needed: the frontier's clock and ours may differ by a tick.
        if (leftMs > 0) return { kind: 'wait', delayMs: leftMs + CLOCK_SLACK_MS }
        this.#rest(page.slot, crawlDelayMs)
      }
      onFetch(crawlDelayMs)
      const fetched = await this.#fields.fetcher.fetch(page.url, {
        signals: page.signals,
        bytesMax: this.#fields.bytesMax,
        keepBody: isHtml,
      })
      return this.#failedAnswer(page, fetched) ?? (await this.#finish(page, fetched))
    } catch (error) {
      if (aborted()) return { kind: 'aborted' }
      return this.#failed(page, networkErrorLabel(error), {})
    }
  }

  #refused(page: PageRequest, verdict: Exclude<RobotsVerdict, { kind: 'allowed' }>): PageOutcome {
    if (verdict.kind === 'disallowed') return finished(this.#line(page, { error: ROBOTS_ERROR }))
    // Not before the cache would ask again: the try would be wasted.
    return this.#failed(page, `robots.txt: ${verdict.reason}`, { delayMsMin: verdict.retryInMs })
  }

  #restLeftMs(slot: string): number {
    return (this.#restUntilMs.get(slot) ?? Number.NEGATIVE_INFINITY) - this.#fields.clock.monotonic()
  }

  #rest(slot: string, crawlDelayMs: number): void {
    const now = this.#fields.clock.monotonic()
    if (this.#restUntilMs.size >= RESTING_SLOTS_MAX) {
      for (const [other, untilMs] of this.#restUntilMs) if (untilMs <= now) this.#restUntilMs.delete(other)
    }
    this.#restUntilMs.set(slot, now + crawlDelayMs)
  }

  #failedAnswer(page: PageRequest, fetched: FetchedPage): PageOutcome | undefined {
    const { status } = fetched
    if (!isRetryableStatus(status)) return undefined
    const askedMs = retryAfterMs(fetched.retryAfter, this.#fields.clock.now())
    return this.#failed(page, `HTTP ${status}`, {
      fetched,
      ...(askedMs === undefined ? {} : { delayMsMin: askedMs }),
      pauseSlot: isOverloaded(status),
    })
  }

  #failed(
    page: PageRequest,
    reason: string,
    options: { readonly fetched?: FetchedPage; readonly delayMsMin?: number; readonly pauseSlot?: boolean },
  ): PageOutcome {
    if (page.failures >= this.#fields.retries) {
      const line = this.#line(page, { error: reason }, options.fetched)
      return { kind: 'finished', line, failed: true, redirect: false }
    }
    const delayMs = Math.max(backoffMs(page.failures + 1, this.#fields.random), options.delayMsMin ?? 0)
    return { kind: 'retry', delayMs, reason, pauseSlot: options.pauseSlot ?? false }
  }

  async #finish(page: PageRequest, fetched: FetchedPage): Promise<PageOutcome> {
    const target = redirectTarget(page.url, fetched)
    if (target !== undefined) {
      const line = this.#line(page, { links: [target] }, fetched)
      return { kind: 'finished', line, failed: false, redirect: true }
    }
    const contents = await this.#read(page, fetched)
    return finished(this.#line(page, { ...contents, ...(fetched.cut ? { error: 'too large' } : {}) }, fetched))
  }

  /** What was read of a page that was cut is used: its links are as good as any. */
  async #read(page: PageRequest, fetched: FetchedPage): Promise<PageContents> {
    if (fetched.body === undefined) return { title: null, links: [] }
    const text = decodeText(fetched.body, fetched.contentType)
    const extractor = new LinkExtractor(page.url, { nofollow: saysNofollow(fetched.robotsTag) })
    for (let start = 0; start < text.length; start += PARSE_SLICE_CHARS) {
      if (start > 0) await this.#fields.clock.yield()
      extractor.write(text.slice(start, start + PARSE_SLICE_CHARS))
    }
    return extractor.end()
  }

  #line(
    page: PageRequest,
    found: { readonly title?: string | null; readonly links?: readonly string[]; readonly error?: string },
    fetched?: FetchedPage,
  ): PageLine {
    return {
      url: page.url,
      status: fetched?.status ?? null,
      depth: page.depth,
      referer: page.referer,
      fetchedAt: new Date(this.#fields.clock.now()).toISOString(),
      contentType: fetched?.contentType ?? null,
      bytes: fetched?.bytes ?? 0,
      title: found.title ?? null,
      links: found.links ?? [],
      sha256: fetched?.sha256 ?? null,
      ...(found.error === undefined ? {} : { error: found.error }),
    }
  }
}

function finished(line: PageLine): PageOutcome {
  return { kind: 'finished', line, failed: false, redirect: false }
}

/** Only these are parsed for links. */
function isHtml(contentType: string | undefined): boolean {
  return /^\s*(text\/html|application\/xhtml\+xml)\s*(;|$)/i.test(contentType ?? '')
}

function redirectTarget(url: string, fetched: FetchedPage): string | undefined {
  if (![301, 302, 303, 307, 308].includes(fetched.status) || fetched.location === undefined) return undefined
  return resolveLink(fetched.location, url)
}
