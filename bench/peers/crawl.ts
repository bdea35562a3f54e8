/**
 * A whole crawl of the same site by `holdfast crawl`, Scrapy with JOBDIR and Crawlee's CheerioCrawler: first in one go, then
 * killed once with SIGKILL and started again with the same line. Pages are counted on the server and in the output, and held
 * against a walk of the links without any crawler, so that "finished" is nobody's own word.
 *
 * Usage: npm run bench:crawl [-- DIR] [--pages 2000] [--runs 3] [--kill 0.25] [--only holdfast,scrapy] [--json FILE]
 */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { seededNumbers } from '../../fixtures/site/random.js'
import { count, machine, median, percent, table } from '../measure.js'
import { serveFiles } from '../static-files.js'
import { identity, walkFiles } from '../static-walk.js'
import { peersDirectory } from './modules.js'

const { values: flags, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    pages: { type: 'string', default: '2000' },
    runs: { type: 'string', default: '3' },
    kill: { type: 'string', default: '0.25' },
    only: { type: 'string' },
    json: { type: 'string' },
  },
})

const LINKS_PER_PAGE = 40
const TEXT_BYTES = 8_000
const SAMPLE_EVERY_MS = 10
/** A crawler that asks for nothing for so long hangs. Crawlee's locks last two minutes. */
const SILENCE_MS = 180_000
const PYTHON = '/usr/bin/python3'
const CLI = fileURLToPath(new URL('../../../dist/cli/main.js', import.meta.url))
const CRAWLEE = fileURLToPath(new URL('crawl-crawlee.js', import.meta.url))

interface Crawler {
  readonly name: string
  readonly setting: string
  command(start: string, directory: string, output: string): string[]
  /** Why it does not run here. */
  lacks(): string | undefined
}

const CRAWLERS: Crawler[] = [
  {
    name: 'holdfast',
    setting: 'holdfast crawl --concurrency 16 --per-host 16, durability process',
    command: (start, directory, output) => [
      ...[process.execPath, CLI, 'crawl', start, '--job', join(directory, 'job'), '--out', output],
      ...['--concurrency', '16', '--per-host', '16'],
    ],
    lacks: () => undefined,
  },
  {
    name: 'scrapy',
    setting: 'Scrapy with JOBDIR, LinkExtractor, 16 requests at once, feed export as JSON lines',
    command: (start, directory, output) => [
      ...[PYTHON, '-B', join(peersDirectory, 'crawl_scrapy.py'), start, join(directory, 'job'), output],
    ],
    lacks: () =>
      spawnSync(PYTHON, ['-c', 'import scrapy']).status === 0 ? undefined : `${PYTHON} has no module scrapy`,
  },
  {
    name: 'crawlee',
    setting: 'CheerioCrawler, storage on disk that is not purged, 16 requests at once from the first on',
    command: (start, directory, output) => [process.execPath, CRAWLEE, start, join(directory, 'storage'), output],
    lacks: () => (existsSync(join(peersDirectory, 'node_modules')) ? undefined : 'npm ci in bench/peers was not run'),
  },
]

/** Pages in a tree of links with many more across, as on any site: the first links of a page lead to pages of its own. */
function makeSite(root: string, pages: number): void {
  const random = seededNumbers(1)
  const text = 'All that is on this page is text that a crawler reads and has no use for. '
  const filler = text.repeat(Math.ceil(TEXT_BYTES / text.length))
  for (let page = 0; page < pages; page++) {
    const links: string[] = []
    for (let link = 0; link < LINKS_PER_PAGE; link++) {
      const to = link < 8 ? page * 8 + link + 1 : random.uint32() % pages
      if (to < pages) links.push(`<li><a href="/${to % 50}/page-${to}.html">Page ${to}</a></li>`)
    }
    const html = `<!doctype html><title>Page ${page}</title><p>${filler}</p><ul>${links.join('')}</ul>`
    const directory = join(root, String(page % 50))
    mkdirSync(directory, { recursive: true })
    writeFileSync(join(directory, `page-${page}.html`), html)
  }
  writeFileSync(join(root, 'index.html'), '<!doctype html><title>Home</title><a href="/0/page-0.html">first</a>')
}

interface Usage {
  cpuMs: number
  peakMb: number
}

/** Processor time and the most memory of a process; one that has ended and is not yet reaped has no memory any more. */
function usageOf(pid: number): Usage | undefined {
  try {
    const fields = readFileSync(`/proc/${pid}/stat`, 'latin1').split(') ')[1].split(' ')
    const peak = /^VmHWM:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))
    // Ticks of a hundredth of a second: fixed by Linux for what it shows to programs.
    return { cpuMs: (Number(fields[11]) + Number(fields[12])) * 10, peakMb: (Number(peak?.[1] ?? 0) * 1024) / 1e6 }
  } catch {
    return undefined
  }
}

interface Run extends Usage {
  ms: number
  firstPageMs: number | undefined
  code: number | null
  hung: boolean
  said: string
}

/** What the server sees. */
const asked = new Map<string, number>()
let onPage: () => void = () => {}

/** Runs a crawler until it ends, or until so many pages were asked for. */
async function run(command: readonly string[], killAfter = Number.POSITIVE_INFINITY): Promise<Run> {
  const begun = performance.now()
  let pages = 0
  let lastAt = begun
  let firstPageMs: number | undefined
  const child: ChildProcess = spawn(command[0], command.slice(1), { stdio: ['ignore', 'ignore', 'pipe'] })
  let said = ''
  child.stderr?.on('data', (chunk) => {
    said = (said + String(chunk)).slice(-2000)
  })
  onPage = () => {
    lastAt = performance.now()
    firstPageMs ??= lastAt - begun
    if (++pages === killAfter) child.kill('SIGKILL')
  }
  let usage: Usage = { cpuMs: 0, peakMb: 0 }
  let hung = false
  const sampler = setInterval(() => {
    const { peakMb } = usage
    usage = usageOf(child.pid as number) ?? usage
    usage.peakMb = Math.max(usage.peakMb, peakMb)
    if (performance.now() - lastAt > SILENCE_MS) hung = child.kill('SIGKILL')
  }, SAMPLE_EVERY_MS)
  const code = await new Promise<number | null>((resolve, reject) => {
    child.once('error', reject)
    child.once('exit', resolve)
  })
  const ms = performance.now() - begun
  clearInterval(sampler)
  onPage = () => {}
  return { ...usage, ms, firstPageMs, code, hung, said }
}

interface Result {
  readonly crawler: string
  readonly pagesPerSecond: number
  readonly cpuMsPerPage: number
  readonly peakMb: number
  /** Of the crawl that was killed once: pages that were never asked for, that are not in the output, that are twice in it. */
  readonly neverAsked: number
  readonly notInOutput: number
  readonly twiceInOutput: number
  readonly askedAgain: number
  readonly firstPageMs: number | undefined
  readonly wholeMs: number
  readonly ended: string
}

function missingFrom(output: string, expected: ReadonlySet<string>): { missing: number; twice: number } {
  const counts = new Map<string, number>()
  for (const line of existsSync(output) ? readFileSync(output, 'utf8').split('\n') : []) {
    let url: unknown
    try {
      url = (JSON.parse(line) as { url: unknown }).url
    } catch {
      // Half a line, as a kill leaves it.
      continue
    }
    const id = identity(String(url))
    if (expected.has(id)) counts.set(id, (counts.get(id) ?? 0) + 1)
  }
  let twice = 0
  for (const times of counts.values()) if (times > 1) twice++
  return { missing: expected.size - counts.size, twice }
}

async function measure(crawler: Crawler, start: string, expected: ReadonlySet<string>): Promise<Result> {
  const directory = mkdtempSync(join(tmpdir(), 'holdfast-crawl-'))
  try {
    const whole = await run(crawler.command(start, join(directory, 'whole'), join(directory, 'whole.jsonl')))
    if (whole.code !== 0) throw new Error(`${crawler.name} ended with ${whole.code}: ${whole.said}`)
    const { missing } = missingFrom(join(directory, 'whole.jsonl'), expected)
    if (missing > 0) throw new Error(`${crawler.name} left ${missing} pages out of a crawl that nobody disturbed`)
    asked.clear()
    const output = join(directory, 'killed.jsonl')
    const command = crawler.command(start, join(directory, 'killed'), output)
    await run(command, Math.round(expected.size * Number(flags.kill)))
    const again = await run(command)
    const found = missingFrom(output, expected)
    let askedAgain = 0
    for (const times of asked.values()) askedAgain += times - 1
    return {
      crawler: crawler.name,
      pagesPerSecond: (expected.size * 1000) / whole.ms,
      cpuMsPerPage: whole.cpuMs / expected.size,
      peakMb: whole.peakMb,
      neverAsked: [...expected].filter((id) => !asked.has(id)).length,
      notInOutput: found.missing,
      twiceInOutput: found.twice,
      askedAgain,
      firstPageMs: again.firstPageMs,
      wholeMs: again.ms,
      ended: again.hung ? 'hung' : again.code === 0 ? 'finished' : `exit ${again.code}`,
    }
  } finally {
    rmSync(directory, { recursive: true, force: true, maxRetries: 3 })
  }
}

function print(results: readonly Result[]): void {
  const head = ['', 'pages/s', 'cpu ms/page', 'MB peak', 'killed once: it says', 'never asked for', 'not in output']
  const rows = [[...head, 'twice', 'asked again', 'first page after', 'the rest took']]
  for (const name of new Set(results.map(({ crawler }) => crawler))) {
    const mine = results.filter(({ crawler }) => crawler === name)
    const of = (key: 'pagesPerSecond' | 'cpuMsPerPage' | 'peakMb' | 'wholeMs'): number =>
      median(mine.map((one) => one[key]))
    const worst = (key: 'neverAsked' | 'notInOutput' | 'twiceInOutput' | 'askedAgain'): string =>
      count(Math.max(...mine.map((one) => one[key])))
    const first = mine.map(({ firstPageMs }) => firstPageMs).filter((value) => value !== undefined)
    rows.push([
      ...[name, count(of('pagesPerSecond')), of('cpuMsPerPage').toFixed(2), count(of('peakMb'))],
      ...[[...new Set(mine.map(({ ended }) => ended))].join(', '), worst('neverAsked'), worst('notInOutput')],
      ...[worst('twiceInOutput'), worst('askedAgain')],
      first.length === 0 ? 'none' : `${(median(first) / 1000).toFixed(2)} s`,
      `${(of('wholeMs') / 1000).toFixed(1)} s`,
    ])
  }
  console.log(table(rows))
}

async function main(root: string): Promise<void> {
  const served = await serveFiles(root, (path) => {
    if (path === '/robots.txt') return
    const id = identity(`${served.origin}${path}`)
    asked.set(id, (asked.get(id) ?? 0) + 1)
    onPage()
  })
  try {
    const start = `${served.origin}/`
    const expected = walkFiles(root, start)
    const host = machine()
    const date = new Date().toISOString()
    const { cpu, cores, platform, node } = host
    console.log(`${cpu}, ${cores} cores, ${platform}, Node ${node}, ${date.slice(0, 10)}`)
    const killed = `killed after ${percent(Number(flags.kill))}`
    console.log(`${count(expected.size)} URLs; medians of ${flags.runs} runs, counts are the worst of them; ${killed}`)
    const chosen = CRAWLERS.filter(({ name }) => flags.only === undefined || flags.only.split(',').includes(name))
    const running = chosen.filter((crawler) => {
      const reason = crawler.lacks()
      console.log(`${crawler.name}: ${reason === undefined ? crawler.setting : `SKIPPED, ${reason}`}`)
      return reason === undefined
    })
    const results: Result[] = []
    for (let round = 1; round <= Number(flags.runs); round++) {
      for (const crawler of running) {
        process.stderr.write(`  round ${round}: ${crawler.name}\n`)
        results.push(await measure(crawler, start, expected))
      }
    }
    console.log('')
    print(results)
    if (flags.json !== undefined)
      writeFileSync(flags.json, `${JSON.stringify({ date, machine: host, pages: expected.size, results }, null, 2)}\n`)
  } finally {
    await served.close()
  }
}

if (positionals.length > 0) await main(resolve(positionals[0]))
else {
  const root = mkdtempSync(join(tmpdir(), 'holdfast-site-'))
  try {
    makeSite(root, Number(flags.pages))
    await main(root)
  } finally {
    rmSync(root, { recursive: true, force: true })
  }
}
