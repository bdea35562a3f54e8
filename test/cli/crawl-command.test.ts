/** `holdfast crawl` in this process: its words, its JSON, its exit codes and signals, on a real job directory. */
import { existsSync, readdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import type { StopSignal } from '../../src/cli/cli-io.js'
import { crawlAndReport } from '../../src/cli/crawl-command.js'
import { exitCodeOf } from '../../src/cli/exit-codes.js'
import { runProgram } from '../../src/cli/program.js'
import type { FileSystem } from '../../src/env/file-system.js'
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
import { type TestIo, testIo } from '../support/test-io.js'

let temp: ReturnType<typeof tempDirectory>
let server: PageServer
let io: TestIo
let job: string

beforeEach(async () => {
  temp = tempDirectory()
  job = join(temp.path, 'job')
  server = await pageServer(pages({ '/': links('/1', '/2') }))
  io = testIo()
})
afterEach(async () => {
  await server.close()
  temp.remove()
})

const run = (...args: string[]): Promise<number> => runProgram(['crawl', ...args], io)
const crawl = (...args: string[]): Promise<number> => run(`${server.origin}/`, '--job', job, ...args)
const lines = () => readLines(join(job, 'pages.ndjson'))

describe('a crawl', () => {
  test('says what it did to people, and nothing to stdout', async () => {
    expect(await crawl()).toBe(0)
    expect(io.out).toBe('')
    expect(io.err).toContain(`Crawling ${server.origin}/ into ${job}/pages.ndjson`)
    expect(io.err).toMatch(/Finished: 3 pages in /)
    expect(lines()).toHaveLength(3)
  })

  test('--json is one document on stdout', async () => {
    expect(await crawl('--json')).toBe(0)
    expect(io.out.endsWith('\n')).toBe(true)
    expect(JSON.parse(io.out)).toMatchObject({
      end: 'finished',
      signal: null,
      resumed: false,
      pages: 3,
      lines: 3,
      errors: 0,
      waiting: 0,
      dead: 0,
      seen: 3,
      out: join(job, 'pages.ndjson'),
      firstPageMs: expect.any(Number),
    })
  })

  test('what robots.txt forbids is no error', async () => {
    server.respond = pages({
      '/robots.txt': (_request, response) => response.end('User-agent: *\nDisallow: /2'),
      '/': links('/1', '/2'),
    })
    expect(await crawl('--json')).toBe(0)
    expect(JSON.parse(io.out)).toMatchObject({ errors: 0, forbidden: 1, lines: 3 })
    expect(io.err).toContain('1 forbidden by robots.txt')
  })

  test('again has nothing left to do', async () => {
    await crawl()
    const second = testIo()
    expect(await runProgram(['crawl', `${server.origin}/`, '--job', job, '--json'], second)).toBe(0)
    expect(second.err).toContain('Resuming: 3 done, 0 waiting')
    expect(second.err).toContain('finished: nothing left to do')
    expect(JSON.parse(second.out)).toMatchObject({ resumed: true, pages: 0, lines: 3, firstPageMs: null })
  })

  test('stops at --max-pages, and a higher one goes on', async () => {
    expect(await crawl('--max-pages', '2')).toBe(0)
    expect(io.err).toContain('Stopped at --max-pages 2')
    expect(io.err).toContain('1 waiting')
    expect(await crawl('--max-pages', '9')).toBe(0)
    expect(lines()).toHaveLength(3)
  })

  test('takes several seeds, fragments dropped, each once', async () => {
    const seeds = [`${server.origin}/1#a`, `${server.origin}/1`, `${server.origin}/2`]
    expect(await run(...seeds, '--job', job, '--max-depth', '0')).toBe(0)
    expect(lines().map((line) => line.url)).toEqual([`${server.origin}/1`, `${server.origin}/2`])
  })

  test.each(['--durability=power', '--order=dfs', '--ignore-robots', '--scope=prefix'])('%s', async (flag) => {
    expect(await crawl(flag)).toBe(0)
    expect(lines()).toHaveLength(3)
  })

  test('says who it is', async () => {
    const agents = new Set<string | undefined>()
    server.respond = (request, response) => {
      agents.add(request.headers['user-agent'])
      response.end()
    }
    await crawl('--user-agent', 'mybot/2 (+http://me.example)')
    expect([...agents]).toEqual(['mybot/2 (+http://me.example)'])
  })

  test('writes where --out says, and finds it again without', async () => {
    const out = join(temp.path, 'elsewhere.ndjson')
    expect(await crawl('--out', out, '--max-pages', '1')).toBe(0)
    expect(await crawl()).toBe(0)
    expect(readLines(out)).toHaveLength(3)
    expect(existsSync(join(job, 'pages.ndjson'))).toBe(false)
  })
})

describe('exit code 2', () => {
  test.each([
    ['no URL', ['--job', 'x'], /missing required argument/],
    ['no job', ['http://a.example/'], /--job/],
    ['no scheme', ['example.org', '--job', 'x'], /did you mean https:\/\/example\.org/],
    ['host and port', ['localhost:3000', '--job', 'x'], /did you mean http:\/\/localhost:3000/],
    ['another scheme', ['ftp://a.example/', '--job', 'x'], /not an http or https URL/],
    ['an unknown flag', ['http://a.example/', '--job', 'x', '--fast'], /unknown option '--fast'/],
    ['an unknown scope', ['http://a.example/', '--job', 'x', '--scope', 'all'], /Allowed choices are host/],
    ['a number that is none', ['http://a.example/', '--job', 'x', '--max-depth', 'two'], /integer of at least 0/],
    ['a negative number', ['http://a.example/', '--job', 'x', '--delay=-1'], /integer of at least 0/],
    ['zero at once', ['http://a.example/', '--job', 'x', '--concurrency', '0'], /at least 1 and at most 1024/],
    ['a fraction', ['http://a.example/', '--job', 'x', '--retries', '1.5'], /integer/],
    ['a line break in the user agent', ['http://a.example/', '--job', 'x', '--user-agent', 'a\nb'], /printable ASCII/],
  ])('%s', async (_name, args, message) => {
    expect(await run(...args)).toBe(2)
    expect(io.err).toMatch(message)
    expect(io.out).toBe('')
    expect(existsSync('x')).toBe(false)
  })

  test('a file in the way of a new crawl', async () => {
    const out = join(temp.path, 'precious.ndjson')
    writeFileSync(out, 'precious\n')
    expect(await crawl('--out', out)).toBe(2)
    expect(io.err).toContain(out)
    expect(server.asked).toEqual([])
  })

  test('another order than the job was made with', async () => {
    await crawl('--max-pages', '1')
    expect(await crawl('--order', 'dfs')).toBe(2)
    expect(io.err).toContain("made with order 'fifo'")
  })
})

test('exit code 4: the output has lost what was committed', async () => {
  await crawl('--max-pages', '1')
  writeFileSync(join(job, 'pages.ndjson'), '')
  expect(await crawl()).toBe(4)
  expect(io.err).toMatch(/the crawl wrote \d+ bytes .* only 0 are there/)
})

test('exit code 4: a job of a newer version', async () => {
  const failing = {
    env: crawlEnv(),
    openFrontier: async () => {
      throw new HoldfastError('HOLDFAST_UNSUPPORTED_FORMAT', 'format 99')
    },
  }
  await expect(crawlAndReport(crawlPlan(job, [`${server.origin}/`]), false, io, failing)).rejects.toThrow('format 99')
})

test('exit code 3: the job is in use', async () => {
  let second: number | undefined
  server.respond = (request, response) => {
    if (request.url === '/robots.txt') {
      response.end()
      return
    }
    void runProgram(['crawl', `${server.origin}/`, '--job', job], io).then((code) => {
      second = code
      response.end()
    })
  }
  expect(await crawl()).toBe(0)
  expect(second).toBe(3)
})

test('exit code 1: no room for the output', async () => {
  const env = crawlEnv()
  const files: FileSystem = {
    ...env.files,
    open(path, mode) {
      const real = env.files.open(path, mode)
      return {
        path,
        write: () => 0,
        read: (into, position) => real.read(into, position),
        size: () => real.size(),
        truncate: (length) => real.truncate(length),
        sync: () => real.sync(),
        syncNow: () => real.syncNow(),
        close: () => real.close(),
      }
    },
  }
  const world = { env: { ...env, files }, openFrontier: async () => new FakeFrontier(new FakeDisk()) }
  const error = await crawlAndReport(crawlPlan(job, [`${server.origin}/`]), false, io, world).catch((thrown) => thrown)
  expect(error).toMatchObject({ code: 'HOLDFAST_DISK_FULL', path: join(job, 'pages.ndjson') })
  expect(exitCodeOf(error)).toBe(1)
})

describe('signals', () => {
  /** Answers only robots.txt and the first page; calls `onStuck` when all others hang. */
  const hang = (onStuck: () => void): PageServer['respond'] => {
    let stuck = 0
    return (request, response) => {
      if (request.url === '/robots.txt') response.writeHead(404).end()
      else if (request.url === '/') response.setHeader('content-type', 'text/html').end(links('/1', '/2'))
      else if (++stuck === 2) onStuck()
    }
  }

  test.each<[StopSignal, number]>([
    ['SIGINT', 130],
    ['SIGTERM', 143],
  ])('%s once: in good order, exit code %i, and the same command goes on', async (signal, code) => {
    server.respond = hang(() => io.signal(signal))
    expect(await crawl('--json')).toBe(code)
    expect(io.err).toContain('Run the same command again to go on.')
    expect(JSON.parse(io.out)).toMatchObject({ end: 'stopped', signal, lines: 1, waiting: 2 })
    expect(io.exits).toEqual([])
    expect(readdirSync(job)).not.toContain('holdfast.lock')
    server.respond = pages({})
    const second = testIo()
    expect(await runProgram(['crawl', `${server.origin}/`, '--job', job], second)).toBe(0)
    expect(second.err).toContain('Resuming: 1 done, 2 waiting')
    expect(lines()).toHaveLength(3)
  })

  test('twice: at once', async () => {
    server.respond = hang(() => {
      io.signal('SIGINT')
      io.signal('SIGINT')
    })
    await crawl()
    expect(io.exits).toEqual([130])
  })

  test('nobody listens for signals any more when it is over', async () => {
    await crawl()
    expect(io.listeners()).toBe(0)
  })
})

describe('the progress line', () => {
  test('is for terminals', async () => {
    await crawl()
    expect(io.err).not.toContain('\x1b')
  })

  test('is erased before the summary', async () => {
    const tty = testIo({ isTTY: true })
    expect(await runProgram(['crawl', `${server.origin}/`, '--job', job], tty)).toBe(0)
    const summary = tty.err.slice(tty.err.lastIndexOf('\x1b[2K'))
    expect(summary).toMatch(/^\x1b\[2KFinished: 3 pages/)
  })
})
