/**
 * The queue at sizes that do not fit memory: how much memory, disk and time it takes to hold, to hand out and to give back.
 * Each scenario runs in a process of its own and says what it found beside what it should be. Invariant: a figure is
 * printed only when every job came out exactly once, or was counted as still there.
 *
 * Usage: npm run bench:scale -- [--only pending,slots,…] [--scale X] [--json FILE] [--dir DIR]
 */
import assert from 'node:assert/strict'
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { type Frontier, openFrontier, openQueue } from 'holdfast'
import * as M from './measure.js'
import { indexOfUrl, Workload } from './workload.js'

interface Fact {
  readonly what: string
  readonly value: number
  readonly unit: string
  /** The most it should be. */
  readonly limit?: number
}

const MB = 1_000_000
const BATCH = 1000
const GOLDEN = (Math.sqrt(5) - 1) / 2
const workload = new Workload(1)

function memoryOf(field: 'VmRSS' | 'RssAnon' | 'VmHWM'): number {
  const line = new RegExp(`^${field}:\\s+(\\d+) kB`, 'm').exec(readFileSync('/proc/self/status', 'utf8'))
  return line === null ? Number.NaN : Number(line[1]) * 1024
}

function diskBytes(path: string): number {
  let bytes = 0
  for (const entry of readdirSync(path, { withFileTypes: true })) {
    const inside = join(path, entry.name)
    bytes += entry.isDirectory() ? diskBytes(inside) : statSync(inside).size
  }
  return bytes
}

function filesIn(path: string): number {
  return readdirSync(path, { withFileTypes: true }).reduce(
    (sum, entry) => sum + (entry.isDirectory() ? filesIn(join(path, entry.name)) : 1),
    0,
  )
}

class Latencies {
  private readonly values: number[] = []

  async of<T>(work: () => Promise<T>): Promise<T> {
    const begun = performance.now()
    const result = await work()
    this.values.push(performance.now() - begun)
    return result
  }

  facts(what: string, p99Max: number, max: number): Fact[] {
    const sorted = this.values.sort((a, b) => a - b)
    const at = (share: number): number => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))]
    return [
      { what: `${what} p99`, value: at(0.99), unit: 'ms', limit: p99Max },
      { what: `${what} max`, value: at(1), unit: 'ms', limit: max },
    ]
  }
}

/** Adds `count` requests of the workload without the seen-set: it has a benchmark of its own. */
async function fill(frontier: Frontier, count: number, latencies?: Latencies): Promise<number> {
  let liveBytes = 0
  for (let at = 0; at < count; at += BATCH) {
    const batch = workload.requests(at, Math.min(BATCH, count - at))
    for (const { url, meta } of batch) liveBytes += url.length + meta.r.length + 12
    for (let from = 0; from < batch.length; from += 100) {
      const part = batch.slice(from, from + 100)
      const add = () => frontier.add(part, { dontFilter: true })
      await (latencies === undefined ? add() : latencies.of(add))
    }
    await M.turn()
  }
  return liveBytes
}

const report = (facts: readonly Fact[]): void => void process.stdout.write(`${JSON.stringify(facts)}\n`)

/** Many pending: fill, be killed, open again, take some, drain to nothing. */
async function pendingFill(directory: string, count: number): Promise<void> {
  const frontier = await openFrontier(directory)
  const adds = new Latencies()
  const begun = performance.now()
  const liveBytes = await fill(frontier, count, adds)
  const seconds = (performance.now() - begun) / 1000
  await frontier.checkpoint()
  report([
    { what: 'added', value: count / seconds, unit: '/s' },
    ...adds.facts('add of 100, checkpoints running', 5, 50),
    { what: 'RSS peak while filling', value: memoryOf('VmHWM') / MB, unit: 'MB', limit: 350 },
    { what: 'private memory at the end', value: memoryOf('RssAnon') / MB, unit: 'MB' },
    { what: 'disk over live bytes', value: diskBytes(directory) / liveBytes, unit: 'x', limit: 1.5 },
    { what: 'files', value: filesIn(directory), unit: '' },
  ])
  await new Promise(() => {})
}

async function pendingDrain(directory: string, count: number): Promise<void> {
  const begun = performance.now()
  const frontier = await openFrontier(directory)
  const openMs = performance.now() - begun
  const [first] = await frontier.take()
  const firstMs = performance.now() - begun
  await first.release()
  const takes = new Latencies()
  const taken = new Uint8Array(count)
  let done = 0
  const drainBegun = performance.now()
  let halfDisk = 0
  while (done < count) {
    const visits = await takes.of(() => frontier.take({ max: 100 }))
    assert.ok(visits.length > 0, `${count - done} jobs are missing`)
    for (const visit of visits) assert.equal(taken[indexOfUrl(visit.url)]++, 0, `${visit.url} came twice`)
    await frontier.ackAll(visits)
    done += visits.length
    if (halfDisk === 0 && done >= count / 2) halfDisk = diskBytes(directory)
    await M.turn()
  }
  const seconds = (performance.now() - drainBegun) / 1000
  const rss = memoryOf('VmHWM')
  await frontier.checkpoint()
  await frontier.close()
  report([
    { what: 'open after SIGKILL', value: openMs, unit: 'ms' },
    { what: 'first job after SIGKILL', value: firstMs, unit: 'ms', limit: 1000 },
    { what: 'taken and acked', value: count / seconds, unit: '/s' },
    ...takes.facts('take of 100', 5, 50),
    { what: 'RSS peak while draining', value: rss / MB, unit: 'MB', limit: 350 },
    { what: 'disk at half', value: halfDisk / MB, unit: 'MB' },
    { what: 'disk when empty', value: diskBytes(directory) / MB, unit: 'MB', limit: 5 },
    { what: 'files when empty', value: filesIn(directory), unit: '' },
  ])
}

/** A host for each request. */
async function slots(directory: string, count: number): Promise<void> {
  M.collectGarbage()
  const before = memoryOf('RssAnon')
  const frontier = await openFrontier(directory)
  for (let at = 0; at < count; at += BATCH) {
    const urls = Array.from({ length: Math.min(BATCH, count - at) }, (_, i) => `https://host${at + i}.example.org/`)
    await frontier.add(urls, { dontFilter: true })
    await M.turn()
  }
  await frontier.checkpoint()
  M.collectGarbage()
  const used = memoryOf('RssAnon') - before
  assert.equal((await frontier.stats()).slots, count)
  const takes = new Latencies()
  const hosts = new Set<string>()
  let rounds = 0
  for (; rounds * 100 < Math.min(count, 200_000); rounds++) {
    const visits = await takes.of(() => frontier.take({ max: 100 }))
    for (const visit of visits) hosts.add(visit.slot)
    await frontier.ackAll(visits)
    await M.turn()
  }
  assert.equal(hosts.size, rounds * 100, 'each host is served once before any is served twice')
  await frontier.close()
  report([
    { what: 'memory of the slots and what waits in memory', value: used / MB, unit: 'MB', limit: 150 },
    ...takes.facts('take of 100', 5, 50),
    { what: 'files', value: filesIn(directory), unit: '' },
  ])
}

/** A priority for each job. */
async function priorities(directory: string, count: number): Promise<void> {
  const queue = await openQueue<number>(directory)
  const order = Array.from({ length: count }, (_, i) => i)
  // Not in order: a step that shares no factor with the count visits each once.
  const step = 7919
  for (let at = 0; at < count; at += BATCH) {
    const batch = Array.from({ length: Math.min(BATCH, count - at) }, (_, i) => ((at + i) * step) % count)
    await queue.pushAll(batch, (priority) => ({ priority }))
  }
  const begun = performance.now()
  await queue.checkpoint()
  const checkpointMs = performance.now() - begun
  const files = filesIn(directory)
  await queue.close()
  const openBegun = performance.now()
  const again = await openQueue<number>(directory)
  const openMs = performance.now() - openBegun
  while (order.length > 0) {
    const jobs = await again.take({ max: 100 })
    for (const job of jobs) assert.equal(job.payload, order.pop(), 'highest priority first')
    await again.ackAll(jobs)
  }
  await again.checkpoint()
  await again.close()
  report([
    { what: 'checkpoint of them all', value: checkpointMs, unit: 'ms' },
    { what: 'open', value: openMs, unit: 'ms' },
    { what: 'files', value: files, unit: '' },
    { what: 'files when empty', value: filesIn(directory), unit: '' },
    { what: 'private memory', value: memoryOf('RssAnon') / MB, unit: 'MB' },
  ])
}

/** A rolling window of live large items: the disk stays near what lives. */
async function rolling(directory: string, count: number): Promise<void> {
  // A smaller run has a smaller window: without a look at the disk behind it the run would say nothing.
  const live = Math.min(400, Math.floor(count / 4))
  assert.ok(live >= 25, `${count} pushes are too few for a window`)
  const queue = await openQueue<Uint8Array>(directory)
  const item = new Uint8Array(MB).fill(7)
  let most = 0
  for (let at = 0; at < count; at++) {
    await queue.push(item)
    if (at >= live) {
      const [job] = await queue.take()
      await job.ack()
    }
    if (at % 10 === 0 && at > live) most = Math.max(most, diskBytes(directory))
    await M.turn()
  }
  await queue.close()
  assert.ok(most > 0)
  report([
    { what: 'largest disk over the live bytes', value: most / (live * MB), unit: 'x', limit: 1.5 },
    { what: 'RSS peak', value: memoryOf('VmHWM') / MB, unit: 'MB' },
  ])
}

/** Jobs spread over 30 days: only those of the current slice are in memory. */
async function delayed(directory: string, count: number): Promise<void> {
  const queue = await openQueue<string>(directory)
  const now = Date.now()
  const spread = 30 * 24 * 3600_000
  for (let at = 0; at < count; at += BATCH) {
    const batch = Array.from({ length: Math.min(BATCH, count - at) }, (_, i) => `https://example.org/page/${at + i}`)
    // Spread evenly, and not in order: the golden ratio never comes back to where it was.
    let next = at
    await queue.pushAll(batch, () => ({ notBefore: now + 60_000 + Math.floor(((next++ * GOLDEN) % 1) * spread) }))
    await M.turn()
  }
  await queue.checkpoint()
  M.collectGarbage()
  const { delayed: waiting, bytes } = await queue.stats()
  assert.equal(waiting, count)
  const used = memoryOf('RssAnon')
  await queue.close()
  report([
    { what: 'jobs in memory, bytes', value: bytes.memory / MB, unit: 'MB', limit: 10 },
    { what: 'private memory', value: used / MB, unit: 'MB' },
    { what: 'RSS peak', value: memoryOf('VmHWM') / MB, unit: 'MB' },
    { what: 'disk a job', value: diskBytes(directory) / count, unit: 'B' },
  ])
}

type Step = (directory: string, count: number) => Promise<void>
const SCENARIOS: Record<string, { title: string; count: number; files?: number; steps: Record<string, Step> }> = {
  pending: { title: 'pending on disk', count: 10_000_000, steps: { pendingFill, pendingDrain } },
  slots: { title: 'slots, at most 256 open files', count: 1_000_000, files: 256, steps: { slots } },
  priorities: { title: 'distinct priorities', count: 100_000, steps: { priorities } },
  rolling: { title: 'pushes of 1 MB, at most 400 of them live', count: 10_000, steps: { rolling } },
  delayed: { title: 'delayed over 30 days', count: 10_000_000, steps: { delayed } },
}

const self = fileURLToPath(import.meta.url)

/** Runs one step in a process of its own and reads its line; then, as a crash would, kills it. */
async function run(step: string, directory: string, count: number, files: number | undefined): Promise<Fact[]> {
  const command = [process.execPath, '--expose-gc', self, '--step', step, '--job', directory, '--count', String(count)]
  const [file, ...args] =
    files === undefined ? command : ['sh', '-c', `ulimit -n ${files}; exec "$@"`, 'sh', ...command]
  const child: ChildProcess = spawn(file, args, { stdio: ['ignore', 'pipe', 'inherit'] })
  const lines = createInterface({ input: child.stdout as NodeJS.ReadableStream })
  let facts: Fact[] | undefined
  for await (const line of lines) {
    facts = JSON.parse(line) as Fact[]
    child.kill('SIGKILL')
    break
  }
  if (child.exitCode === null && child.signalCode === null) await once(child, 'exit')
  assert.ok(facts, `${step} ended without a result`)
  return facts
}

async function main(): Promise<void> {
  const { values: flags } = parseArgs({
    options: {
      only: { type: 'string' },
      scale: { type: 'string', default: '1' },
      json: { type: 'string' },
      dir: { type: 'string' },
      step: { type: 'string' },
      job: { type: 'string' },
      count: { type: 'string' },
    },
  })
  if (flags.step !== undefined) {
    const steps = Object.assign({}, ...Object.values(SCENARIOS).map((one) => one.steps)) as Record<string, Step>
    return steps[flags.step](flags.job as string, Number(flags.count))
  }
  const { cpu, cores, node, load } = M.machine()
  const today = new Date().toISOString().slice(0, 10)
  process.stdout.write(`${cpu}, ${cores} cores, Node ${node}, ${today}, load ${load.toFixed(1)}\n`)
  const results: Record<string, { count: number; facts: Fact[] }> = {}
  for (const name of flags.only?.split(',') ?? Object.keys(SCENARIOS)) {
    const { title, count: whole, files, steps } = SCENARIOS[name]
    const count = Math.round(whole * Number(flags.scale))
    const directory = mkdtempSync(join(flags.dir ?? tmpdir(), 'holdfast-scale-'))
    process.stdout.write(`\n${name}: ${count.toLocaleString('en')} ${title}\n`)
    const facts: Fact[] = []
    try {
      for (const step of Object.keys(steps)) facts.push(...(await run(step, join(directory, 'job'), count, files)))
    } finally {
      rmSync(directory, { recursive: true, force: true })
    }
    results[name] = { count, facts }
    for (const { what, value, unit, limit } of facts) {
      const number = value >= 100 ? Math.round(value).toLocaleString('en') : value.toFixed(2)
      const verdict = limit === undefined ? '' : `  should be <= ${limit}: ${value <= limit ? 'yes' : 'NO'}`
      process.stdout.write(`  ${what.padEnd(48)} ${number.padStart(10)} ${unit.padEnd(3)}${verdict}\n`)
    }
  }
  if (flags.json !== undefined) writeFileSync(flags.json, JSON.stringify({ machine: M.machine(), results }, null, 2))
}

await main()
