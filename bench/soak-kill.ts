/**
 * Kills a real process with SIGKILL at random, again and again, and holds what it had promised against what is there.
 *
 * A child crawls a made-up graph of pages on a frontier with small bounds, so that checkpoints, segments and merges happen
 * all the time. It writes down each hand-out before the work and each promise after its `await`. The parent kills it, checks
 * the directory with `verify`, checks the record (nothing acked is handed out again), and starts it again. At the end every
 * page must be in the output exactly once.
 *
 *   npm run soak:kill -- --rounds 300 --seed 1 [--durability power] [--keep]
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { closeSync, existsSync, mkdtempSync, openSync, readFileSync, rmSync, truncateSync, writeSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { openFrontier, verifyDirectory } from 'holdfast'

const { values: args } = parseArgs({
  options: {
    rounds: { type: 'string', default: '300' },
    seed: { type: 'string', default: '1' },
    durability: { type: 'string', default: 'process' },
    keep: { type: 'boolean', default: false },
    child: { type: 'string' },
    pages: { type: 'string', default: '0' },
  },
})
const durability = args.durability === 'power' ? 'power' : 'process'
const HOSTS = 7
const PAGES_PER_ROUND = 250
const TUNING = {
  journalBytes: 60_000,
  carryBucketBytes: 2_000,
  carryTotalBytes: 20_000,
  segmentBytes: 20_000,
  seenTableKeys: 500,
  reserveBytes: 64 * 1024,
}

/** mulberry32: the run repeats with its seed, as far as the machine's timing allows. */
function random(seed: number): () => number {
  let state = seed >>> 0
  return () => {
    state = (state + 0x6d2b79f5) >>> 0
    let t = state
    t = Math.imul(t ^ (t >>> 15), t | 1)
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61)
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32
  }
}

const urlOf = (page: number): string => `http://h${page % HOSTS}.test/p/${page}`
const pageOf = (url: string): number => Number(url.slice(url.lastIndexOf('/') + 1))

/** A ternary tree with extra links back and ahead, so that most offered links are known. */
function linksOf(page: number, pages: number): string[] {
  const links: string[] = []
  for (const next of [3 * page + 1, 3 * page + 2, 3 * page + 3, page >>> 1, (page * 7 + 5) % pages]) {
    if (next < pages) links.push(urlOf(next))
  }
  return links
}

async function child(directory: string, pages: number): Promise<void> {
  const record = openSync(join(directory, 'record'), 'a')
  const write = (line: string): void => {
    writeSync(record, `${line}\n`)
  }
  const frontier = await openFrontier(join(directory, 'job'), {
    durability,
    memoryBytes: 400_000,
    maxAttempts: 10_000,
    ...({ tuning: TUNING } as object),
  })
  frontier.on('warning', ({ code, message }) => write(`W ${code} ${message}`))
  const outPath = join(directory, 'out')
  const out = openSync(outPath, existsSync(outPath) ? 'r+' : 'w+')
  let position = (frontier.state('out') as number | undefined) ?? 0
  truncateSync(outPath, position)
  write(`O ${frontier.recovery.leases} ${frontier.recovery.tornBytes}`)
  await frontier.add(urlOf(0), { start: true })
  write('S')
  await frontier.crawl(
    async (visit) => {
      const page = pageOf(visit.url)
      write(`T ${page}`)
      // In flight for a while: some are killed before their hand-out is on disk, some after.
      await sleep(page % 13)
      if (visit.failures === 0 && page % 17 === 3) {
        await visit.retry({ delayMs: page % 2 === 0 ? 0 : 20, reason: 'once more' })
        write(`R ${page}`)
        return
      }
      // The line first, then the commit that says how far the output counts: cut back to it after a kill.
      const line = Buffer.from(`${page}\n`)
      position += writeSync(out, line, 0, line.length, position)
      await visit.ack({ add: linksOf(page, pages), addOptions: { priority: page % 3 }, state: { out: position } })
      write(`A ${page}`)
    },
    { concurrency: 32 },
  )
  write('F')
  await frontier.close()
  closeSync(out)
}

interface Tally {
  handedOut: number
  acked: Set<number>
  recovered: number
  torn: number
  warnings: string[]
  finished: boolean
}

/** Reads what the child wrote since `from`; throws when something acked was handed out again. */
function readRecord(path: string, from: number, tally: Tally): number {
  const bytes = existsSync(path) ? readFileSync(path) : Buffer.alloc(0)
  const end = bytes.lastIndexOf(0x0a) + 1
  for (const line of bytes.toString('utf8', from, end).split('\n')) {
    const [kind, first, second] = line.split(' ')
    if (kind === 'O') {
      tally.recovered += Number(first)
      tally.torn += Number(second)
    } else if (kind === 'T') {
      tally.handedOut++
      if (tally.acked.has(Number(first))) throw new Error(`page ${first} was acked and came back`)
    } else if (kind === 'A') tally.acked.add(Number(first))
    else if (kind === 'W') tally.warnings.push(line.slice(2))
    else if (kind === 'F') tally.finished = true
  }
  return end
}

function start(directory: string, pages: number): ChildProcess {
  const self = fileURLToPath(import.meta.url)
  const argv = [self, '--child', directory, '--pages', String(pages), '--durability', durability]
  return spawn(process.execPath, argv, { stdio: ['ignore', 'inherit', 'inherit'] })
}

const exited = (process: ChildProcess): Promise<void> =>
  new Promise((resolve) => {
    process.once('exit', () => resolve())
  })

async function parent(): Promise<void> {
  const rounds = Number(args.rounds)
  const seed = Number(args.seed)
  const pages = PAGES_PER_ROUND * Math.max(4, rounds)
  const next = random(seed)
  const directory = mkdtempSync(join(tmpdir(), 'holdfast-soak-'))
  const record = join(directory, 'record')
  const tally: Tally = { handedOut: 0, acked: new Set(), recovered: 0, torn: 0, warnings: [], finished: false }
  console.log(`soak: ${rounds} kills, seed ${seed}, durability ${durability}, ${pages} pages, in ${directory}`)
  const begun = performance.now()
  let read = 0
  let kills = 0
  let verified = 0
  while (kills < rounds && !tally.finished) {
    const crawler = start(directory, pages)
    const gone = exited(crawler)
    const before = read
    // Killed a random time after it has begun to write; every tenth round at any instant, the opening included.
    if (next() >= 0.1) while (readSize(record) === before && crawler.exitCode === null) await sleep(2)
    await sleep(next() * 160)
    crawler.kill('SIGKILL')
    await gone
    kills++
    read = readRecord(record, read, tally)
    if (existsSync(join(directory, 'job', 'requests.queue', 'active.json'))) {
      const report = await verifyDirectory(join(directory, 'job'))
      if (!report.ok) throw new Error(`after kill ${kills}: ${JSON.stringify(report.problems)}`)
      if (report.seen !== report.counters?.added) throw new Error(`after kill ${kills}: seen and added differ`)
      verified++
    }
    if (kills % 50 === 0) console.log(`  ${kills} kills, ${tally.acked.size} pages acked`)
  }
  const last = start(directory, pages)
  await exited(last)
  read = readRecord(record, read, tally)
  const counts = new Map<number, number>()
  for (const line of readFileSync(join(directory, 'out'), 'utf8').split('\n')) {
    if (line !== '') counts.set(Number(line), (counts.get(Number(line)) ?? 0) + 1)
  }
  const missing = Array.from({ length: pages }, (_, page) => page).filter((page) => !counts.has(page)).length
  const twice = [...counts.values()].filter((count) => count > 1).length
  const report = await verifyDirectory(join(directory, 'job'))
  const result = {
    kills,
    verified,
    pages,
    inOutput: counts.size,
    missing,
    twice,
    handedOut: tally.handedOut,
    leasesRecovered: tally.recovered,
    tornBytes: tally.torn,
    warnings: tally.warnings.length,
    finalVerify: report.ok,
    leftOver: report.jobs.ready + report.jobs.delayed + report.jobs.leased + report.jobs.dead,
    seconds: Math.round((performance.now() - begun) / 1000),
  }
  console.table(result)
  for (const warning of new Set(tally.warnings)) console.log(`warning: ${warning}`)
  if (!args.keep) rmSync(directory, { recursive: true, force: true })
  const failed = missing > 0 || twice > 0 || !report.ok || result.leftOver > 0 || !tally.finished
  console.log(failed ? `FAILED; repeat with --seed ${seed}` : 'nothing lost, nothing twice')
  process.exitCode = failed ? 1 : 0
}

function readSize(path: string): number {
  return existsSync(path) ? readFileSync(path).length : 0
}

await (args.child === undefined ? parent() : child(args.child, Number(args.pages)))
