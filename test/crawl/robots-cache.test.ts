import { describe, expect, test } from 'vitest'
import type { FetchedPage, Fetcher, FetchOptions } from '../../src/crawl/fetch-page.js'
import { CRAWL_DELAY_MS_MAX, ROBOTS_TTL_MS, RobotsCache, UNREACHABLE_TTL_MS } from '../../src/crawl/robots-cache.js'
import { SimClock } from '../../src/env/sim-clock.js'

type Answer = Partial<Omit<FetchedPage, 'body'>> & { readonly body?: string }

/** A fetcher whose answers are a table that a test may change; what is not in it fails to connect. */
class TableFetcher implements Fetcher {
  readonly asked: string[] = []
  table: Record<string, Answer>

  constructor(table: Record<string, Answer>) {
    this.table = table
  }

  async fetch(url: string, options: FetchOptions): Promise<FetchedPage> {
    this.asked.push(url)
    for (const signal of options.signals) signal.throwIfAborted()
    const answer = this.table[url]
    if (answer === undefined) throw Object.assign(new Error('refused'), { code: 'ECONNREFUSED' })
    return {
      status: 200,
      contentType: 'text/plain',
      location: undefined,
      retryAfter: undefined,
      robotsTag: undefined,
      bytes: 0,
      sha256: '',
      cut: false,
      ...answer,
      body: Buffer.from(answer.body ?? ''),
    }
  }

  async close(): Promise<void> {}
}

function setUp(table: Record<string, Answer>, originsMax = 100, userAgent = 'holdfast/1.0') {
  const clock = new SimClock()
  const fetcher = new TableFetcher(table)
  const stop = new AbortController()
  return {
    clock,
    fetcher,
    stop,
    cache: new RobotsCache({ fetcher, clock, userAgent, signal: stop.signal, originsMax }),
  }
}

const ROBOTS = 'http://site.example/robots.txt'
const ALLOWED = { kind: 'allowed', crawlDelayMs: 0 }

describe('rules', () => {
  test('decide per path', async () => {
    const { cache } = setUp({ [ROBOTS]: { body: 'User-agent: *\nDisallow: /private/\nAllow: /private/open' } })
    expect(await cache.verdict('http://site.example/x')).toEqual(ALLOWED)
    expect(await cache.verdict('http://site.example/private/x')).toEqual({ kind: 'disallowed' })
    expect(await cache.verdict('http://site.example/private/open')).toEqual(ALLOWED)
  })

  test('those for our name count before those for all', async () => {
    const body = 'User-agent: *\nDisallow: /\n\nUser-agent: Holdfast\nDisallow: /mine/'
    const { cache } = setUp({ [ROBOTS]: { body } })
    expect(await cache.verdict('http://site.example/x')).toEqual(ALLOWED)
    expect(await cache.verdict('http://site.example/mine/x')).toEqual({ kind: 'disallowed' })
    const other = setUp({ [ROBOTS]: { body } }, 100, 'other/2')
    expect(await other.cache.verdict('http://site.example/x')).toEqual({ kind: 'disallowed' })
  })

  test.each([
    ['2', 2000],
    ['0.5', 500],
    ['99999', CRAWL_DELAY_MS_MAX],
    ['-1', 0],
    ['soon', 0],
  ])('Crawl-delay: %s is %i ms', async (text, crawlDelayMs) => {
    const { cache } = setUp({ [ROBOTS]: { body: `User-agent: *\nCrawl-delay: ${text}` } })
    expect(await cache.verdict('http://site.example/x')).toEqual({ kind: 'allowed', crawlDelayMs })
  })

  test('are those of one origin: scheme, host and port', async () => {
    const { cache, fetcher } = setUp({
      [ROBOTS]: { body: 'User-agent: *\nDisallow: /' },
      'http://site.example:81/robots.txt': {},
      'https://site.example/robots.txt': {},
    })
    expect(await cache.verdict('http://site.example/')).toEqual({ kind: 'disallowed' })
    expect(await cache.verdict('http://site.example:81/')).toEqual(ALLOWED)
    expect(await cache.verdict('https://site.example/')).toEqual(ALLOWED)
    expect(fetcher.asked).toHaveLength(3)
  })
})

describe('no rules', () => {
  test.each([400, 401, 403, 404, 410, 204])('status %i', async (status) => {
    const { cache } = setUp({ [ROBOTS]: { status, body: status < 300 ? '' : 'User-agent: *\nDisallow: /' } })
    expect(await cache.verdict('http://site.example/x')).toEqual(ALLOWED)
  })

  test('HTML', async () => {
    const body = 'User-agent: *\nDisallow: /'
    const { cache } = setUp({ [ROBOTS]: { contentType: 'text/html; charset=utf-8', body } })
    expect(await cache.verdict('http://site.example/x')).toEqual(ALLOWED)
  })
})

describe('redirects', () => {
  test('are followed, to another origin too, and the rules count for the origin asked for', async () => {
    const { cache, fetcher } = setUp({
      [ROBOTS]: { status: 301, location: 'https://www.site.example/robots.txt' },
      'https://www.site.example/robots.txt': { status: 302, location: '/r.txt' },
      'https://www.site.example/r.txt': { body: 'User-agent: *\nDisallow: /no' },
    })
    expect(await cache.verdict('http://site.example/no')).toEqual({ kind: 'disallowed' })
    expect(fetcher.asked).toHaveLength(3)
  })

  test.each([
    [5, { kind: 'disallowed' }],
    [6, ALLOWED],
  ])('%i of them', async (count, expected) => {
    const table: Record<string, Answer> = { 'http://site.example/r0': { body: 'User-agent: *\nDisallow: /' } }
    for (let left = 1; left < count; left++)
      table[`http://site.example/r${left}`] = { status: 302, location: `/r${left - 1}` }
    table[ROBOTS] = { status: 302, location: `/r${count - 1}` }
    expect(await setUp(table).cache.verdict('http://site.example/x')).toEqual(expected)
  })
})

describe('no answer for now', () => {
  test.each([
    [{ status: 500 }, 'HTTP 500'],
    [{ status: 503 }, 'HTTP 503'],
    [{ status: 429 }, 'HTTP 429'],
    [undefined, 'ECONNREFUSED'],
  ])('%j', async (answer, reason) => {
    const { cache, clock, fetcher } = setUp(answer === undefined ? {} : { [ROBOTS]: answer })
    const verdict = await cache.verdict('http://site.example/x')
    expect(verdict).toMatchObject({ kind: 'unreachable', reason, retryInMs: UNREACHABLE_TTL_MS })
    await clock.advance(UNREACHABLE_TTL_MS - 1)
    expect(await cache.verdict('http://site.example/y')).toMatchObject({ kind: 'unreachable', retryInMs: 1 })
    expect(fetcher.asked).toHaveLength(1)
    fetcher.table[ROBOTS] = {}
    await clock.advance(1)
    expect(await cache.verdict('http://site.example/x')).toEqual(ALLOWED)
  })

  test('Retry-After is kept', async () => {
    const { cache } = setUp({ [ROBOTS]: { status: 503, retryAfter: '60' } })
    expect(await cache.verdict('http://site.example/x')).toMatchObject({ kind: 'unreachable', retryInMs: 60_000 })
  })
})

describe('cache', () => {
  test('one fetch answers all who wait', async () => {
    const { cache, fetcher } = setUp({ [ROBOTS]: {} })
    await Promise.all(Array.from({ length: 20 }, (_, index) => cache.verdict(`http://site.example/${index}`)))
    expect(fetcher.asked).toEqual([ROBOTS])
  })

  test('an answer is old after a day', async () => {
    const { cache, clock, fetcher } = setUp({ [ROBOTS]: {} })
    await cache.verdict('http://site.example/x')
    await clock.advance(ROBOTS_TTL_MS - 1)
    await cache.verdict('http://site.example/x')
    expect(fetcher.asked).toHaveLength(1)
    await clock.advance(1)
    await cache.verdict('http://site.example/x')
    expect(fetcher.asked).toHaveLength(2)
  })

  test('is bounded, and forgets the origin not asked for longest', async () => {
    const { cache, fetcher } = setUp({}, 2)
    const ask = (host: string) => cache.verdict(`http://${host}.example/`)
    await ask('a')
    await ask('b')
    await ask('a')
    await ask('c')
    expect(cache.size).toBe(2)
    await ask('a')
    expect(fetcher.asked).toHaveLength(3)
    await ask('b')
    expect(fetcher.asked).toHaveLength(4)
  })

  test('a crawl that stops learns nothing', async () => {
    const { cache, stop } = setUp({ [ROBOTS]: {} })
    stop.abort()
    await expect(cache.verdict('http://site.example/x')).rejects.toThrow()
    expect(cache.size).toBe(0)
  })
})
