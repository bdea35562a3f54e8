/**
 * One HTTP request: no redirect is followed, nothing is retried, no more than `bytesMax` of the body is kept.
 *
 * Invariant: each fetch ends. Connecting, waiting for headers and each gap in the body have a timeout, and all together
 * has a deadline of PAGE_TIMEOUTS times that, so that a server that drips one byte at a time cannot hold a lease for ever.
 */
import { createHash } from 'node:crypto'
import { pipeline, type Readable } from 'node:stream'
import { createBrotliDecompress, createGunzip, createInflate } from 'node:zlib'
import { Agent, type Dispatcher, request } from 'undici'
import type { Clock } from '../env/clock.js'

/** The whole page may take this many times `timeoutMs`. */
export const PAGE_TIMEOUTS = 4

export interface FetcherOptions {
  readonly clock: Clock
  readonly userAgent: string
  readonly timeoutMs: number
  /** Connections to one origin. */
  readonly connections: number
}

export interface FetchOptions {
  readonly signals: readonly AbortSignal[]
  /** Of the decompressed body. */
  readonly bytesMax: number
  /** Whether the body is wanted; otherwise it is only counted and hashed. */
  readonly keepBody: (contentType: string | undefined) => boolean
}

export interface FetchedPage {
  readonly status: number
  readonly contentType: string | undefined
  readonly location: string | undefined
  readonly retryAfter: string | undefined
  readonly robotsTag: string | undefined
  readonly bytes: number
  readonly sha256: string
  /** The body was longer than `bytesMax` and was cut there. */
  readonly cut: boolean
  readonly body: Buffer | undefined
}

/** What robots.txt and pages are fetched with; a test may put something simpler in its place. */
export interface Fetcher {
  fetch(url: string, options: FetchOptions): Promise<FetchedPage>
  /** Drops all connections at once. */
  close(): Promise<void>
}

export class HttpFetcher implements Fetcher {
  readonly #options: FetcherOptions
  readonly #agent: Agent

  constructor(options: FetcherOptions) {
    const { timeoutMs, connections } = options
    this.#options = options
    this.#agent = new Agent({
      connections,
      connect: { timeout: timeoutMs },
      headersTimeout: timeoutMs,
      bodyTimeout: timeoutMs,
    })
  }

  async fetch(url: string, options: FetchOptions): Promise<FetchedPage> {
    const controller = new AbortController()
    const abort = (): void => controller.abort()
    const cancelDeadline = this.#options.clock.after(this.#options.timeoutMs * PAGE_TIMEOUTS, () =>
      controller.abort(Object.assign(new Error('deadline passed'), { code: 'timeout (whole page)' })),
    )
    for (const signal of options.signals) {
      if (signal.aborted) abort()
      signal.addEventListener('abort', abort)
    }
    try {
      return await this.#exchange(url, options, controller.signal)
    } catch (error) {
      // The stream layer replaces the reason by an error of its own.
      throw controller.signal.aborted ? controller.signal.reason : error
    } finally {
      cancelDeadline()
      // By hand, not with AbortSignal.any: the crawl's signal outlives a million of these.
      for (const signal of options.signals) signal.removeEventListener('abort', abort)
    }
  }

  async close(): Promise<void> {
    await this.#agent.destroy()
  }

  async #exchange(url: string, options: FetchOptions, signal: AbortSignal): Promise<FetchedPage> {
    const response = await request(url, {
      dispatcher: this.#agent,
      signal,
      headers: {
        'user-agent': this.#options.userAgent,
        accept: 'text/html,application/xhtml+xml;q=0.9,*/*;q=0.5',
        'accept-encoding': 'gzip, deflate, br',
      },
    })
    const header = (name: string): string | undefined => headerValue(response, name)
    const contentType = header('content-type')
    const body = await readBody(decoded(response.body, header('content-encoding')), {
      bytesMax: options.bytesMax,
      keep: options.keepBody(contentType),
    })
    return {
      status: response.statusCode,
      contentType,
      location: header('location'),
      retryAfter: header('retry-after'),
      robotsTag: header('x-robots-tag'),
      ...body,
    }
  }
}

function headerValue(response: Dispatcher.ResponseData, name: string): string | undefined {
  const value = response.headers[name]
  return Array.isArray(value) ? value.join(', ') : value
}

/** The body as the server meant it. An unknown encoding is left as it is: it is then no HTML, but still has a hash. */
function decoded(body: Readable, encoding: string | undefined): Readable {
  // Cutting a body short destroys it, which it reports as an error: we know.
  body.on('error', () => {})
  const decoder = decoderFor(encoding?.trim().toLowerCase())
  if (decoder === undefined) return body
  return pipeline(body, decoder, () => {})
}

function decoderFor(encoding: string | undefined): (Readable & NodeJS.ReadWriteStream) | undefined {
  if (encoding === 'gzip' || encoding === 'x-gzip') return createGunzip()
  if (encoding === 'deflate') return createInflate()
  if (encoding === 'br') return createBrotliDecompress()
  return undefined
}

async function readBody(
  stream: Readable,
  options: { readonly bytesMax: number; readonly keep: boolean },
): Promise<Pick<FetchedPage, 'bytes' | 'sha256' | 'cut' | 'body'>> {
  const hash = createHash('sha256')
  const chunks: Buffer[] = []
  let bytes = 0
  let cut = false
  for await (const chunk of stream as AsyncIterable<Buffer>) {
    const room = options.bytesMax - bytes
    const part = chunk.length > room ? chunk.subarray(0, room) : chunk
    hash.update(part)
    bytes += part.length
    if (options.keep) chunks.push(part)
    if (chunk.length > room) {
      cut = true
      // Leaving the loop destroys the stream, and with it the connection.
      break
    }
  }
  return { bytes, sha256: hash.digest('hex'), cut, body: options.keep ? Buffer.concat(chunks) : undefined }
}
