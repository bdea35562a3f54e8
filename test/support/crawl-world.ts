/** What tests of the crawler share: a temp directory, an environment, a page server whose answers are a function, plans. */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { closeServer, listen } from '../../fixtures/site/serve.js'
import type { PageLine } from '../../src/crawl/page-line.js'
import type { CrawlPlan } from '../../src/crawl/run-crawl.js'
import { nodeClock } from '../../src/env/clock.js'
import type { Env } from '../../src/env/env.js'
import { nodeFiles } from '../../src/env/node-file-system.js'
import { seededRandom } from '../../src/env/random.js'

export function tempDirectory(): { readonly path: string; remove(): void } {
  const path = mkdtempSync(join(tmpdir(), 'holdfast-test-'))
  return { path, remove: () => rmSync(path, { recursive: true, force: true }) }
}

export function crawlEnv(seed = 1): Pick<Env, 'files' | 'clock' | 'random'> {
  return { files: nodeFiles, clock: nodeClock, random: seededRandom(seed) }
}

export type Respond = (request: IncomingMessage, response: ServerResponse) => void

export interface PageServer {
  readonly origin: string
  /** Paths asked for, in order, robots.txt included. */
  readonly asked: string[]
  respond: Respond
  close(): Promise<void>
}

export async function pageServer(respond: Respond): Promise<PageServer> {
  const asked: string[] = []
  const server = createServer((request, response) => {
    asked.push(request.url ?? '')
    served.respond(request, response)
  })
  await listen(server)
  const served: PageServer = {
    origin: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    asked,
    respond,
    close: () => closeServer(server),
  }
  return served
}

/** Answers from a table; everything else is 404. A string is an HTML page. */
export function pages(table: Record<string, string | Respond>): Respond {
  return (request, response) => {
    const answer = table[request.url ?? '']
    if (answer === undefined) response.writeHead(404, { 'content-type': 'text/html' }).end('<title>No</title>')
    else if (typeof answer === 'string') response.writeHead(200, { 'content-type': 'text/html' }).end(answer)
    else answer(request, response)
  }
}

export const links = (...targets: string[]): string => targets.map((target) => `<a href="${target}">x</a>`).join('')

export function crawlPlan(directory: string, seeds: readonly string[], overrides: Partial<CrawlPlan> = {}): CrawlPlan {
  return {
    directory,
    seeds,
    out: undefined,
    scope: 'host',
    depthMax: Number.POSITIVE_INFINITY,
    pagesMax: Number.POSITIVE_INFINITY,
    concurrency: 4,
    perHost: 4,
    delayMs: 0,
    order: 'bfs',
    robots: true,
    userAgent: 'holdfast/0.0',
    durability: 'process',
    retries: 3,
    timeoutMs: 10_000,
    bytesMax: 1024 * 1024,
    ...overrides,
  }
}

export function readLines(path: string): PageLine[] {
  return readFileSync(path, 'utf8')
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as PageLine)
}
