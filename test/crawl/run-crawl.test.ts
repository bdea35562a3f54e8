/** The whole crawler against a real server on loopback, with a frontier in memory. */
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { generateSite } from '../../fixtures/site/generate.js'
import { serveSite } from '../../fixtures/site/serve.js'
import { reachable } from '../../fixtures/site/walk.js'
import type { PageLine } from '../../src/crawl/page-line.js'
import { type CrawlOpened, type CrawlPlan, type CrawlResult, runCrawl } from '../../src/crawl/run-crawl.js'
import { HoldfastError } from '../../src/errors.js'
import {
  crawlEnv,
  crawlPlan,
  links,
  type PageServer,
  pageServer,
  pages,
  readLines,
  tempDirectory,
} from '../support/crawl-world.js'
import { FakeDisk, FakeFrontier } from '../support/fake-frontier.js'

let temp: ReturnType<typeof tempDirectory>
let server: PageServer
let disk: FakeDisk
let frontier: FakeFrontier

beforeEach(async () => {
  temp = tempDirectory()
  server = await pageServer(pages({}))
  disk = new FakeDisk()
})
afterEach(async () => {
  await server.close()
  temp.remove()
})

interface RunOptions extends Partial<CrawlPlan> {
  readonly signal?: AbortSignal
  readonly onPage?: (line: PageLine) => void
  readonly onOpen?: (opened: CrawlOpened) => void
  readonly prepare?: (frontier: FakeFrontier) => void
}

async function crawl(options: RunOptions = {}, seeds: readonly string[] = [`${server.origin}/`]): Promise<CrawlResult> {
  const { signal, onPage, onOpen, prepare, ...overrides } = options
  return runCrawl(crawlPlan(temp.path, seeds, overrides), {
    env: crawlEnv(),
    openFrontier: async () => {
      frontier = new FakeFrontier(disk)
      prepare?.(frontier)
      return frontier
    },
    signal: signal ?? new AbortController().signal,
    onOpen: onOpen ?? (() => {}),
    onPage: onPage ?? (() => {}),
  })
}

const output = (): PageLine[] => readLines(join(temp.path, 'pages.ndjson'))
const pathOf = (url: string): string => new URL(url).pathname + new URL(url).search
const paths = (): string[] => output().map((line) => pathOf(line.url))
const lineOf = (path: string): PageLine => {
  const found = output().filter((line) => pathOf(line.url) === path)
  expect(found).toHaveLength(1)
  return found[0]
}

test('follows links and writes one line for each page', async () => {
  server.respond = pages({
    '/': `<title>Home</title>${links('/a', 'b', '/a#x', 'http://elsewhere.example/')}`,
    '/a': `<title>A</title>${links('/')}`,
  })
  expect(await crawl()).toMatchObject({ end: 'finished', lines: 3 })
  expect(lineOf('/')).toMatchObject({
    status: 200,
    depth: 0,
    referer: null,
    contentType: 'text/html',
    title: 'Home',
    links: [`${server.origin}/a`, `${server.origin}/b`, 'http://elsewhere.example/'],
  })
  expect(lineOf('/')).not.toHaveProperty('error')
  expect(lineOf('/a')).toMatchObject({ depth: 1, referer: `${server.origin}/`, title: 'A' })
  expect(lineOf('/b')).toMatchObject({ status: 404, depth: 1, title: 'No' })
  expect(frontier.closed).toBe(true)
})

test('a whole generated site is found, no more and no less', async () => {
  const seed = 7
  const site = generateSite({ seed, pages: 300 })
  const served = await serveSite(site)
  try {
    await crawl({ concurrency: 16 }, [`${served.origin}/`])
    expect(paths().sort()).toEqual([...reachable(site)].sort())
    for (const [path, times] of served.requests) expect(`${path} ${times}`).toBe(`${path} 1`)
    for (const line of output()) {
      const resource = site.resources.get(pathOf(line.url))
      const forbidden = site.forbidden.some((prefix) => pathOf(line.url).startsWith(prefix))
      if (forbidden) expect(line).toMatchObject({ status: null, error: 'robots', links: [] })
      else if (resource?.kind === 'page') expect(line).toMatchObject({ status: 200, title: resource.title })
      else if (resource?.kind === 'redirect') expect(line).toMatchObject({ status: resource.status })
      else if (resource?.kind === 'file')
        expect(line).toMatchObject({ status: 200, bytes: resource.bytes.length, links: [] })
      else expect(line.status).toBe(404)
    }
    expect(served.robotsRequests()).toBe(1)
  } finally {
    await served.close()
  }
})

describe('redirects', () => {
  const redirect = (location: string, status = 301) =>
    ((_request, response) => response.writeHead(status, { location }).end()) as PageServer['respond']

  test('have a line of their own, and the target is a page as far away', async () => {
    server.respond = pages({ '/': links('/old'), '/old': redirect('new?x#y'), '/new?x': 'here' })
    await crawl()
    expect(lineOf('/old')).toMatchObject({ status: 301, depth: 1, links: [`${server.origin}/new?x`] })
    expect(lineOf('/new?x')).toMatchObject({ status: 200, depth: 1, referer: `${server.origin}/old` })
  })

  test('in a circle end', async () => {
    server.respond = pages({ '/': redirect('/b', 302), '/b': redirect('/', 307) })
    await crawl()
    expect(paths()).toEqual(['/', '/b'])
  })

  test('without a target are pages like others', async () => {
    server.respond = pages({ '/': (_request, response) => response.writeHead(302).end() })
    await crawl()
    expect(lineOf('/')).toMatchObject({ status: 302, links: [] })
  })

  test('that leave the scope are not followed, but from a seed they are, and after a restart too', async () => {
    const other = await pageServer(pages({ '/': `${links('/in')}`, '/in': 'in' }))
    try {
      server.respond = pages({ '/': redirect(`${other.origin}/`) })
      const first = new AbortController()
      await crawl({ signal: first.signal, concurrency: 1, onPage: () => first.abort() })
      expect(output()).toHaveLength(1)
      await crawl()
      expect(output().map((line) => line.url)).toEqual([`${server.origin}/`, `${other.origin}/`, `${other.origin}/in`])
      server.respond = pages({ '/2': links('/away'), '/away': redirect(`${other.origin}/other`) })
      disk = new FakeDisk()
      await crawl({ out: join(temp.path, 'second.ndjson') }, [`${server.origin}/2`])
      expect(readLines(join(temp.path, 'second.ndjson')).map((line) => pathOf(line.url))).toEqual(['/2', '/away'])
    } finally {
      await other.close()
    }
  })
})

describe('limits', () => {
  test('depth', async () => {
    server.respond = pages({ '/': links('/1'), '/1': links('/2'), '/2': links('/3') })
    await crawl({ depthMax: 2 })
    expect(paths()).toEqual(['/', '/1', '/2'])
  })

  test('pages: met exactly, and a higher one goes on', async () => {
    server.respond = pages({ '/': links(...Array.from({ length: 30 }, (_, index) => `/${index}`)) })
    expect(await crawl({ pagesMax: 10, concurrency: 8 })).toMatchObject({ end: 'pages-max', lines: 10 })
    expect(output()).toHaveLength(10)
    expect(await crawl({ pagesMax: 10 })).toMatchObject({ end: 'pages-max', lines: 10 })
    expect(await crawl({ pagesMax: 20 })).toMatchObject({ end: 'pages-max', lines: 20 })
    expect(await crawl()).toMatchObject({ end: 'finished', lines: 31 })
    expect(new Set(paths()).size).toBe(31)
  })

  test('pages: one that is retried gives its place back', async () => {
    let failures = 2
    server.respond = (request, response) => {
      response.statusCode = request.url === '/' && failures-- > 0 ? 500 : 200
      response.end()
    }
    expect(await crawl({ pagesMax: 1 })).toMatchObject({ lines: 1 })
  })

  test('size: the body is cut, the links before the cut count', async () => {
    server.respond = pages({ '/': `${links('/a')}${' '.repeat(500)}${links('/b')}` })
    await crawl({ bytesMax: 300 })
    expect(lineOf('/')).toMatchObject({ status: 200, bytes: 300, error: 'too large', links: [`${server.origin}/a`] })
    expect(paths()).toEqual(['/', '/a'])
  })

  test('scope prefix', async () => {
    server.respond = pages({ '/docs/': links('/docs/a', '/other', '/docs/b/c') })
    await crawl({ scope: 'prefix' }, [`${server.origin}/docs/`])
    expect(paths()).toEqual(['/docs/', '/docs/a', '/docs/b/c'])
  })
})

describe('content', () => {
  test('only HTML is searched for links', async () => {
    server.respond = pages({
      '/': links('/text', '/xhtml'),
      '/text': (_request, response) => response.writeHead(200, { 'content-type': 'text/plain' }).end(links('/no')),
      '/xhtml': (_request, response) =>
        response.writeHead(200, { 'content-type': 'application/xhtml+xml' }).end(links('/yes')),
    })
    await crawl()
    expect(paths().sort()).toEqual(['/', '/text', '/xhtml', '/yes'])
  })

  test('X-Robots-Tag: nofollow hides links', async () => {
    server.respond = (_request, response) =>
      response
        .writeHead(200, { 'content-type': 'text/html', 'x-robots-tag': 'nofollow' })
        .end(`<title>T</title>${links('/x')}`)
    await crawl()
    expect(output()).toMatchObject([{ title: 'T', links: [] }])
  })

  test('a page of a megabyte is read in slices, to its end', async () => {
    server.respond = pages({ '/': `${'<p>text</p>'.repeat(90_000)}${links('/end')}` })
    await crawl({ bytesMax: 10_000_000 })
    expect(paths()).toEqual(['/', '/end'])
  })
})

describe('robots.txt', () => {
  test('is asked first; what it forbids has a line and no request', async () => {
    server.respond = pages({
      '/robots.txt': (_request, response) => response.end('User-agent: *\nDisallow: /no'),
      '/': links('/no/x', '/yes'),
    })
    await crawl()
    expect(server.asked[0]).toBe('/robots.txt')
    expect(server.asked).not.toContain('/no/x')
    expect(lineOf('/no/x')).toMatchObject({ status: null, error: 'robots', depth: 1, sha256: null })
    expect(disk.dead).toEqual([])
  })

  test('is not asked when told so', async () => {
    server.respond = pages({ '/': 'x' })
    await crawl({ robots: false })
    expect(server.asked).toEqual(['/'])
  })

  test('out of reach: tried again, then an error; no page is asked for', async () => {
    server.respond = (_request, response) => response.writeHead(500).end()
    await crawl({ retries: 2 })
    expect(server.asked).toEqual(['/robots.txt'])
    expect(output()).toMatchObject([{ status: null, error: 'robots.txt: HTTP 500' }])
    // Not before the answer would be asked for anew.
    expect(frontier.retries).toHaveLength(2)
    for (const { delayMs } of frontier.retries) expect(delayMs).toBeGreaterThan(1000)
  })

  test('a Crawl-delay rests the host after each page, and pages that come too early go back untouched', async () => {
    server.respond = pages({
      '/robots.txt': (_request, response) => response.end('User-agent: *\nCrawl-delay: 0.05'),
      '/': links('/1', '/2', '/3'),
    })
    const arrivals: number[] = []
    const { respond } = server
    server.respond = (request, response) => {
      if (request.url !== '/robots.txt') arrivals.push(performance.now())
      respond(request, response)
    }
    await crawl()
    expect(paths().sort()).toEqual(['/', '/1', '/2', '/3'])
    expect(frontier.pauses.length).toBeGreaterThanOrEqual(4)
    expect(frontier.released.length).toBeGreaterThan(0)
    expect(arrivals).toHaveLength(4)
  })
})

describe('failures', () => {
  test.each([408, 425, 500, 502])('status %i is tried again', async (status) => {
    let failures = 2
    server.respond = (request, response) => {
      response.statusCode = request.url === '/' && failures-- > 0 ? status : 200
      response.end('fine')
    }
    await crawl()
    expect(output()).toMatchObject([{ status: 200 }])
    expect(frontier.retries.map((retry) => retry.reason)).toEqual([`HTTP ${status}`, `HTTP ${status}`])
    expect(frontier.retries[1].delayMs).toBeGreaterThan(frontier.retries[0].delayMs)
    expect(frontier.pauses).toEqual([])
  })

  test('after the last try the page has a line, and is buried', async () => {
    server.respond = (request, response) => response.writeHead(request.url === '/' ? 502 : 404).end()
    await crawl({ retries: 1 })
    expect(server.asked).toEqual(['/robots.txt', '/', '/'])
    expect(output()).toMatchObject([{ status: 502, error: 'HTTP 502' }])
    expect(disk.dead).toEqual([{ url: `${server.origin}/`, reason: 'HTTP 502' }])
  })

  test('no answer at all is such a failure too', async () => {
    server.respond = (request, response) => {
      if (request.url === '/') request.socket.destroy()
      else response.writeHead(404).end()
    }
    await crawl({ retries: 1 })
    expect(output()).toMatchObject([{ status: null, sha256: null, error: 'connection closed' }])
  })

  test.each([404, 403, 410, 400])('status %i is final at once and no error', async (status) => {
    server.respond = (_request, response) => response.writeHead(status).end()
    await crawl()
    expect(output()).toHaveLength(1)
    expect(output()[0]).not.toHaveProperty('error')
    expect(disk.dead).toEqual([])
  })

  test.each([429, 503])('status %i rests the host for as long as it asks', async (status) => {
    let failures = 1
    server.respond = (request, response) => {
      if (request.url === '/' && failures-- > 0) response.writeHead(status, { 'retry-after': '120' }).end()
      else response.end()
    }
    const before = Date.now()
    await crawl()
    expect(frontier.retries).toMatchObject([{ delayMs: 120_000 }])
    expect(frontier.pauses).toMatchObject([{ slot: '127.0.0.1' }])
    expect(frontier.pauses[0].untilMs).toBeGreaterThanOrEqual(before + 120_000)
    expect(output()).toMatchObject([{ status: 200 }])
  })

  test('a shorter rest does not end a longer one', async () => {
    server.respond = (request, response) => {
      if (request.url === '/robots.txt') response.end()
      else if (request.url === '/') response.setHeader('content-type', 'text/html').end(links('/long', '/short'))
      else response.writeHead(503, { 'retry-after': request.url === '/long' ? '600' : '1' }).end()
    }
    await crawl({ concurrency: 1, retries: 1 })
    expect(frontier.pauses).toHaveLength(1)
  })
})

describe('stopping', () => {
  test('gives pages in flight back at once, finishes what is done, and goes on later', async () => {
    const stop = new AbortController()
    let stuck = 0
    server.respond = (request, response) => {
      if (request.url === '/robots.txt') response.writeHead(404).end()
      else if (request.url === '/') response.setHeader('content-type', 'text/html').end(links('/1', '/2', '/3'))
      // No answer: only giving up ends these.
      else if (++stuck === 3) stop.abort()
    }
    expect(await crawl({ signal: stop.signal })).toMatchObject({ end: 'stopped', lines: 1 })
    expect(frontier.released.map(pathOf).sort()).toEqual(['/1', '/2', '/3'])
    expect(frontier.closed).toBe(true)
    server.respond = pages({})
    let opened: CrawlOpened | undefined
    expect(
      await crawl({
        onOpen: (found) => {
          opened = found
        },
      }),
    ).toMatchObject({ end: 'finished', lines: 4 })
    expect(opened).toMatchObject({ resumed: true, lines: 1, waiting: 3 })
    expect(paths().sort()).toEqual(['/', '/1', '/2', '/3'])
  })

  test('before the first page', async () => {
    expect(await crawl({ signal: AbortSignal.abort() })).toMatchObject({ end: 'stopped', lines: 0 })
    expect(server.asked).toEqual([])
  })

  test('a finished crawl has nothing left to do', async () => {
    await crawl()
    server.asked.length = 0
    expect(await crawl()).toMatchObject({ end: 'finished', lines: 1 })
    expect(server.asked).toEqual([])
  })

  test('a new seed goes into an old crawl', async () => {
    await crawl()
    await crawl({}, [`${server.origin}/`, `${server.origin}/new`])
    expect(paths()).toEqual(['/', '/new'])
  })
})

describe('a frontier that fails', () => {
  const noRoom = new HoldfastError('HOLDFAST_DISK_FULL', 'no room')

  test('ends the crawl with its error; what was not committed comes back later, once', async () => {
    server.respond = pages({ '/': links('/1', '/2', '/3', '/4') })
    let settled = 0
    const failing = crawl({
      prepare: (made) => {
        made.refuse = (verb) => (verb === 'ack' && ++settled > 2 ? noRoom : undefined)
      },
    })
    await expect(failing).rejects.toBe(noRoom)
    expect(frontier.closed).toBe(true)
    await crawl()
    expect(paths().sort()).toEqual(['/', '/1', '/2', '/3', '/4'])
  })

  test('a killed run is gone on with, each page once, wherever the kill came', async () => {
    server.respond = pages({ '/': links('/1', '/2', '/3'), '/2': links('/4') })
    for (let commits = 0; commits < 8; commits++) {
      disk = new FakeDisk()
      const job = join(temp.path, `job-${commits}`)
      mkdirSync(job)
      let left = commits
      let reached = (): void => {}
      const killed = new Promise<void>((resolve) => {
        reached = resolve
      })
      const stop = new AbortController()
      const first = crawl({
        directory: job,
        signal: stop.signal,
        prepare: (made) => {
          made.beforeCommit = async () => {
            if (left-- > 0) return
            made.kill()
            reached()
          }
        },
      })
      await Promise.race([first, killed])
      stop.abort()
      await crawl({ directory: job })
      const found = readLines(join(job, 'pages.ndjson')).map((line) => pathOf(line.url))
      expect(found.sort()).toEqual(['/', '/1', '/2', '/3', '/4'])
    }
  })
})

test('a file that is there already is refused before anything is fetched', async () => {
  writeFileSync(join(temp.path, 'pages.ndjson'), 'precious\n')
  await expect(crawl()).rejects.toMatchObject({ code: 'HOLDFAST_MISMATCH' })
  expect(server.asked).toEqual([])
  expect(frontier.closed).toBe(true)
})
