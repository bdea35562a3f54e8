import { createHash } from 'node:crypto'
import { brotliCompressSync, deflateSync, gzipSync } from 'node:zlib'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { HttpFetcher, PAGE_TIMEOUTS } from '../../src/crawl/fetch-page.js'
import { networkErrorLabel } from '../../src/crawl/retry-policy.js'
import { nodeClock } from '../../src/env/clock.js'
import { SimClock } from '../../src/env/sim-clock.js'
import { type PageServer, pageServer } from '../support/crawl-world.js'

let server: PageServer
let fetcher: HttpFetcher

beforeEach(async () => {
  server = await pageServer((_request, response) => response.end())
  fetcher = new HttpFetcher({ clock: nodeClock, userAgent: 'tester/1', timeoutMs: 10_000, connections: 2 })
})
afterEach(async () => {
  await fetcher.close()
  await server.close()
})

const fetchPage = (options: { bytesMax?: number; keep?: boolean; signals?: AbortSignal[] } = {}, from = fetcher) =>
  from.fetch(`${server.origin}/`, {
    signals: options.signals ?? [],
    bytesMax: options.bytesMax ?? 1000,
    keepBody: () => options.keep ?? true,
  })
const sha256 = (body: string | Buffer): string => createHash('sha256').update(body).digest('hex')

test('says what came, and follows no redirect', async () => {
  server.respond = (_request, response) => {
    response.writeHead(302, {
      location: '/next',
      'content-type': 'text/html',
      'retry-after': '7',
      'x-robots-tag': 'none',
    })
    response.end('body')
  }
  expect(await fetchPage()).toEqual({
    status: 302,
    contentType: 'text/html',
    location: '/next',
    retryAfter: '7',
    robotsTag: 'none',
    bytes: 4,
    sha256: sha256('body'),
    cut: false,
    body: Buffer.from('body'),
  })
  expect(server.asked).toEqual(['/'])
})

test('says who asks', async () => {
  let userAgent: string | undefined
  server.respond = (request, response) => {
    userAgent = request.headers['user-agent']
    response.end()
  }
  await fetchPage()
  expect(userAgent).toBe('tester/1')
})

test('a body nobody wants is counted and hashed, not kept', async () => {
  server.respond = (_request, response) => response.end('body')
  expect(await fetchPage({ keep: false })).toMatchObject({ bytes: 4, sha256: sha256('body'), body: undefined })
})

describe('compression', () => {
  test.each([
    ['gzip', gzipSync],
    ['deflate', deflateSync],
    ['br', brotliCompressSync],
  ] as const)('%s', async (encoding, compress) => {
    server.respond = (_request, response) => {
      response.writeHead(200, { 'content-encoding': encoding }).end(compress('hello'))
    }
    expect(await fetchPage()).toMatchObject({ bytes: 5, body: Buffer.from('hello') })
  })

  test('what does not decompress is an error', async () => {
    server.respond = (_request, response) => response.writeHead(200, { 'content-encoding': 'gzip' }).end('not gzip')
    await expect(fetchPage()).rejects.toMatchObject({ code: 'Z_DATA_ERROR' })
  })

  test('the limit counts what comes out, so that a small answer cannot fill the memory', async () => {
    server.respond = (_request, response) => {
      response.writeHead(200, { 'content-encoding': 'gzip' }).end(gzipSync(Buffer.alloc(50_000_000)))
    }
    expect(await fetchPage({ bytesMax: 10_000 })).toMatchObject({ bytes: 10_000, cut: true })
  })
})

describe('size limit', () => {
  test.each([
    [99, true],
    [100, false],
    [101, false],
  ])('of %i for 100 bytes', async (bytesMax, cut) => {
    const body = 'x'.repeat(100)
    server.respond = (_request, response) => response.end(body)
    const page = await fetchPage({ bytesMax })
    const kept = body.slice(0, bytesMax)
    expect(page).toMatchObject({ cut, bytes: kept.length, sha256: sha256(kept), body: Buffer.from(kept) })
  })

  test('an endless body is left at the limit', async () => {
    server.respond = (_request, response) => {
      const more = (): void => {
        if (!response.destroyed) response.write('x'.repeat(10_000), more)
      }
      more()
    }
    expect(await fetchPage({ bytesMax: 25_000 })).toMatchObject({ cut: true, bytes: 25_000 })
  })
})

describe('ends', () => {
  test('when a signal is aborted, before or during', async () => {
    const before = AbortSignal.abort()
    await expect(fetchPage({ signals: [before] })).rejects.toThrow()
    const during = new AbortController()
    server.respond = () => during.abort()
    await expect(fetchPage({ signals: [new AbortController().signal, during.signal] })).rejects.toThrow()
    server.respond = (_request, response) => response.write('half', () => during.abort())
    await expect(fetchPage({ signals: [during.signal] })).rejects.toThrow()
  })

  test('at the deadline, though the server drips on', async () => {
    const clock = new SimClock()
    const slow = new HttpFetcher({ clock, userAgent: 'x', timeoutMs: 1000, connections: 1 })
    let dripping = (): void => {}
    const drips = new Promise<void>((resolve) => {
      dripping = resolve
    })
    server.respond = (_request, response) => response.write('drip', () => dripping())
    const page = fetchPage({}, slow)
    const failed = expect(page).rejects.toSatisfy((error) => networkErrorLabel(error) === 'timeout (whole page)')
    await drips
    await clock.advance(1000 * PAGE_TIMEOUTS)
    await failed
    expect(clock.pendingTimers).toBe(0)
    await slow.close()
  })

  test('with a name when nobody listens', async () => {
    await server.close()
    await expect(fetchPage()).rejects.toSatisfy((error) => networkErrorLabel(error) === 'ECONNREFUSED')
    server = await pageServer((_request, response) => response.end())
  })

  test('with a name when the connection breaks in the middle', async () => {
    server.respond = (_request, response) => response.write('half', () => response.destroy())
    await expect(fetchPage()).rejects.toSatisfy((error) => networkErrorLabel(error) === 'connection closed')
  })
})
