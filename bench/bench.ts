/**
 * What the store costs, beside the floor that no durable queue goes under (floor.ts), on one fixed workload (workload.ts).
 * Invariant: a figure is printed only when the run was right: counts, stats, and everything taken was added exactly once.
 * How to read the tables: bench/README.md.
 *
 * Usage: npm run bench [-- --only a,c] [--durability process|power] [--runs N] [--scale X] [--seed N] [--json FILE] [--dir DIR]
 */
import assert from 'node:assert/strict'
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { type Durability, type Frontier, type FrontierOptions, openFrontier } from 'holdfast'
import { type FloorResult, type FloorWork, readAll, runFloor, runLatencyFloor } from './floor.js'
import * as M from './measure.js'
import { type BenchRequest, indexOfUrl, LINKS_PER_PAGE, Workload } from './workload.js'

const SCENARIOS = {
  a: 'add, batches of 100, dedupe',
  b: 'single adds, 64 producers',
  c: 'take + ack, batches of 100',
  d: 'crawl step: take 1, ack + 50 links',
  e: 'reopen after SIGKILL',
  f: 'latency while a checkpoint runs',
}
type Key = keyof typeof SCENARIOS
const BATCH = 100
const PRODUCERS = 64
/** Adds of one producer between two turns of the event loop. */
const ADDS_A_TURN = 8
const REOPEN_MS_MAX = 1000
const LATENCY_MS_MAX = 5
const FLOOR_SHARE_MIN: Record<Durability, number> = { process: 0.5, power: 0.7 }
/** Operations at scale 1: long enough to be steady, short enough for three runs of everything in three minutes. */
const SIZES = { a: 100_000, b: 50_000, c: 50_000, d: 2_000, e: 500_000, f: 100_000 }

const { values: flags } = parseArgs({
  options: {
    only: { type: 'string' },
    durability: { type: 'string' },
    runs: { type: 'string', default: '3' },
    scale: { type: 'string', default: '1' },
    seed: { type: 'string', default: '1' },
    json: { type: 'string' },
    dir: { type: 'string' },
    child: { type: 'string' },
    jobs: { type: 'string', default: '0' },
  },
})
const workload = new Workload(Number(flags.seed))

// ---- one run of a scenario: what was done, in how long, and what the floor has to do for the same

interface Timed {
  readonly operations: number
  readonly ms: number
  /** Processor time of this process, all its threads: what a busy machine does not distort much. */
  readonly cpuMs: number
  /** Bytes of everything written meanwhile, segments and seen-set included. */
  readonly bytes: number
  readonly floor: FloorWork
}

/** Times `work`; everything before and after it is preparation and checking. */
async function timed(
  operations: number,
  requests: readonly BenchRequest[],
  acks: number,
  work: () => Promise<number>,
): Promise<Timed> {
  M.collectGarbage()
  M.disk.reset()
  const clock = M.startClock()
  const turns = await work()
  const { ms, cpuMs } = clock()
  const { writes, syncs } = M.disk.journal
  return { operations, ms, cpuMs, bytes: M.disk.total.bytes, floor: { requests, acks, writes, syncs, turns } }
}

async function withFrontier<T>(
  directory: string,
  options: FrontierOptions,
  use: (frontier: Frontier) => Promise<T>,
): Promise<T> {
  const frontier = await openFrontier(directory, options)
  frontier.on('warning', ({ code, message }) => assert.fail(`warning ${code}: ${message}`))
  try {
    return await use(frontier)
  } finally {
    await frontier.close()
  }
}

/** All of the requests were accepted, nobody else's. */
async function checkAdded(frontier: Frontier, added: number): Promise<void> {
  const stats = await frontier.stats()
  assert.deepEqual([stats.counters.added, stats.ready + stats.leased + stats.counters.acked], [added, added])
  assert.equal(stats.seen, added)
}

function checkTakenOnce(urls: readonly string[], added: number): void {
  const taken = new Uint8Array(added)
  for (const url of urls) {
    const index = indexOfUrl(url)
    assert.ok(index < added, `${url} was taken but never added`)
    assert.equal(taken[index]++, 0, `${url} was taken twice`)
  }
}

async function addInBatches(directory: string, options: FrontierOptions, size: number): Promise<Timed> {
  const requests = workload.requests(0, size)
  return withFrontier(directory, options, async (frontier) => {
    let added = 0
    const run = await timed(size, requests, 0, async () => {
      let turns = 0
      for (let at = 0; at < size; at += BATCH, turns++) {
        const result = await frontier.add(requests.slice(at, at + BATCH))
        added += result.added
        await M.turn()
      }
      return turns
    })
    assert.equal(added, size)
    const again = await frontier.add(requests.slice(0, BATCH))
    assert.deepEqual([again.added, again.duplicates], [0, Math.min(BATCH, size)])
    await checkAdded(frontier, size)
    return run
  })
}

async function addFromProducers(directory: string, options: FrontierOptions, size: number): Promise<Timed> {
  const requests = workload.requests(0, size)
  return withFrontier(directory, options, async (frontier) => {
    let added = 0
    let turns = 0
    const produce = async (first: number): Promise<void> => {
      let sinceTurn = 0
      for (let at = first; at < size; at += PRODUCERS) {
        // Not `added += (await …).added`: that reads `added` before the wait, and the producers would overwrite each other.
        const result = await frontier.add(requests[at])
        added += result.added
        if (++sinceTurn % ADDS_A_TURN !== 0) continue
        await M.sharedTurn()
        if (first === 0) turns++
      }
    }
    const run = await timed(size, requests, 0, async () => {
      await Promise.all(Array.from({ length: PRODUCERS }, (_, first) => produce(first)))
      return turns
    })
    assert.equal(added, size)
    await checkAdded(frontier, size)
    return run
  })
}

async function takeAndAck(directory: string, options: FrontierOptions, size: number): Promise<Timed> {
  return withFrontier(directory, options, async (frontier) => {
    await frontier.add(workload.requests(0, size))
    const urls: string[] = []
    const run = await timed(size, [], size, async () => {
      for (let turns = 0; ; turns++) {
        const visits = await frontier.take({ max: BATCH })
        if (visits.length === 0) return turns
        for (const visit of visits) urls.push(visit.url)
        await Promise.all(visits.map((visit) => visit.ack()))
        await M.turn()
      }
    })
    assert.equal(urls.length, size)
    checkTakenOnce(urls, size)
    const { ready, leased, counters } = await frontier.stats()
    assert.deepEqual([ready, leased, counters.acked], [0, 0, size])
    return run
  })
}

async function crawlSteps(directory: string, options: FrontierOptions, size: number): Promise<Timed> {
  const known = size * 10
  const pages = workload.pages(size, known)
  const fresh = pages.flatMap((page) => page.fresh)
  return withFrontier(directory, options, async (frontier) => {
    await frontier.add(workload.requests(0, known))
    // The known requests lie in a run on disk, as they do in a crawl that has gone on for a while.
    await frontier.checkpoint()
    const urls: string[] = []
    let added = 0
    let duplicates = 0
    const run = await timed(size, fresh, size, async () => {
      for (const { links } of pages) {
        const [visit] = await frontier.take()
        urls.push(visit.url)
        const result = await visit.ack({ add: links })
        added += result.added
        duplicates += result.duplicates
        await M.turn()
      }
      return size
    })
    assert.deepEqual([added, duplicates], [fresh.length, size * LINKS_PER_PAGE - fresh.length])
    checkTakenOnce(urls, known + fresh.length)
    await checkAdded(frontier, known + fresh.length)
    return run
  })
}

// ---- (e) reopen: children, because only another process meets what a killed one left

function child(task: string, directory: string, durability: Durability, jobs: number): ChildProcess {
  const common = ['--child', task, '--dir', directory, '--durability', durability]
  return spawn(
    process.execPath,
    [fileURLToPath(import.meta.url), ...common, '--jobs', `${jobs}`, '--seed', flags.seed],
    {
      stdio: ['ignore', 'pipe', 'inherit'],
    },
  )
}

/** Waits for the one line a child says when it is done, then kills it. A child that ends by itself has failed. */
async function lineThenKill(process: ChildProcess): Promise<Record<string, number>> {
  assert.ok(process.stdout)
  const lines = createInterface({ input: process.stdout })
  const exit = once(process, 'exit')
  const [line] = await Promise.race([once(lines, 'line'), exit.then(() => [''])])
  process.kill('SIGKILL')
  await exit
  if (line === '') throw new Error('a child of the benchmark ended before it was done')
  return JSON.parse(String(line))
}

async function runChild(task: string, directory: string, durability: Durability, jobs: number): Promise<void> {
  if (task === 'read') {
    say(readAll(directory))
  } else if (task === 'fill') {
    const frontier = await openFrontier(directory, { durability })
    for (let at = 0; at < jobs; at += 1000) {
      await frontier.add(workload.requests(at, Math.min(1000, jobs - at)))
      await M.turn()
    }
    await checkAdded(frontier, jobs)
    say({ journalBytes: (await frontier.stats()).bytes.journal })
  } else {
    const begun = performance.now()
    const frontier = await openFrontier(directory, { durability })
    const openMs = performance.now() - begun
    const [visit] = await frontier.take()
    const firstJobMs = performance.now() - begun
    const { ready, leased } = await frontier.stats()
    assert.deepEqual([ready, leased, indexOfUrl(visit.url) < jobs], [jobs - 1, 1, true])
    say({ openMs, firstJobMs, frames: frontier.recovery.frames })
  }
  // Stays until it is killed.
  setInterval(() => {}, 1 << 30)
}

const say = (result: object): void => void process.stdout.write(`${JSON.stringify(result)}\n`)

async function reopen(root: string, durability: Durability, jobs: number, runs: number) {
  const directory = join(root, `e-${durability}`)
  const { journalBytes } = await lineThenKill(child('fill', directory, durability, jobs))
  const opened: Record<string, number>[] = []
  const read: Record<string, number>[] = []
  for (let run = 0; run < runs; run++) {
    read.push(await lineThenKill(child('read', directory, durability, jobs)))
    opened.push(await lineThenKill(child('open', directory, durability, jobs)))
  }
  rmSync(directory, { recursive: true })
  const of = (from: Record<string, number>[], key: string): number => M.median(from.map((one) => one[key]))
  return {
    durability,
    jobs,
    journalBytes,
    openMs: of(opened, 'openMs'),
    firstJobMs: of(opened, 'firstJobMs'),
    floorMs: of(read, 'ms'),
    bytes: of(read, 'bytes'),
    met: of(opened, 'firstJobMs') < REOPEN_MS_MAX,
    runs: opened,
  }
}

// ---- (f) latency

const ADDS_PER_SECOND = 1000
const TAKES_PER_SECOND = 1000
const FILLS_PER_SECOND = 200
const FILL_BATCH = 50
/** Small, so that what the filler adds passes it several times in one run. */
const SMALL_MEMORY_BYTES = 4 * 2 ** 20

/** Loads the frontier for `durationMs`, forcing checkpoints at these moments. Keeps what overlapped a checkpoint. */
async function loadFrontier(frontier: Frontier, first: number, durationMs: number, forceAtMs: readonly number[]) {
  const spans: [number, number][] = []
  frontier.on('checkpoint', ({ durationMs: ms }) => spans.push([performance.now() - ms, performance.now()]))
  const perMs = (ADDS_PER_SECOND + FILLS_PER_SECOND * FILL_BATCH) / 1000
  const requests = workload.requests(first, Math.ceil(durationMs * perMs) + FILL_BATCH)
  let next = 0
  const urls: string[] = []
  const acks: Promise<unknown>[] = []
  const due = [...forceAtMs]
  const forced: Promise<void>[] = []
  const begun = performance.now()
  const [adds, takes] = await M.openLoop(
    [
      { perSecond: ADDS_PER_SECOND, run: () => frontier.add(requests[next++]) },
      {
        perSecond: TAKES_PER_SECOND,
        run: async () => {
          const [visit] = await frontier.take()
          urls.push(visit.url)
          acks.push(visit.ack())
        },
      },
      {
        perSecond: FILLS_PER_SECOND,
        run: () => {
          if (due.length > 0 && performance.now() - begun >= due[0]) {
            due.shift()
            forced.push(frontier.checkpoint())
          }
          next += FILL_BATCH
          return frontier.add(requests.slice(next - FILL_BATCH, next))
        },
      },
    ],
    durationMs,
  )
  await Promise.all([...acks, ...forced])
  checkTakenOnce(urls, first + next)
  await checkAdded(frontier, first + next)
  const inCheckpoint = ({ dueAt, ms }: M.Sample): boolean =>
    spans.some(([start, end]) => dueAt < end && dueAt + ms > start)
  const during = (samples: M.Sample[]): number[] => samples.filter(inCheckpoint).map((sample) => sample.ms)
  return { adds: during(adds), takes: during(takes), checkpoints: spans.length }
}

async function latency(root: string, durability: Durability, size: number, scale: number) {
  const durationMs = Math.max(500, 1500 * Math.min(1, scale))
  const forced = await withFrontier(join(root, 'f-forced'), { durability }, async (frontier) => {
    await frontier.add(workload.requests(0, size))
    return loadFrontier(frontier, size, durationMs, [durationMs * 0.1, durationMs * 0.6])
  })
  const small = { durability, memoryBytes: SMALL_MEMORY_BYTES * Math.min(1, scale) }
  const filled = await withFrontier(join(root, 'f-filled'), small, async (frontier) => {
    const first = size >> 3
    await frontier.add(workload.requests(0, first))
    return loadFrontier(frontier, first, durationMs, [])
  })
  return {
    add: M.latencyOf([...forced.adds, ...filled.adds]),
    take: M.latencyOf([...forced.takes, ...filled.takes]),
    checkpoints: { forced: forced.checkpoints, filled: filled.checkpoints },
    floorAdd: await runLatencyFloor(join(root, 'f.floor'), {
      power: durability === 'power',
      addsPerSecond: ADDS_PER_SECOND,
      fillsPerSecond: FILLS_PER_SECOND,
      fillBatch: FILL_BATCH,
      requests: workload.requests(0, 10_000),
      durationMs,
    }),
  }
}

// ---- all of it

const THROUGHPUT = { a: addInBatches, b: addFromProducers, c: takeAndAck, d: crawlSteps }

async function throughput(
  key: keyof typeof THROUGHPUT,
  root: string,
  durability: Durability,
  size: number,
  runs: number,
) {
  const pairs: { perSecond: number; floorPerSecond: number; run: Timed; floor: FloorResult }[] = []
  for (let i = 0; i < runs; i++) {
    const directory = join(root, `${key}-${i}`)
    const run = await THROUGHPUT[key](directory, { durability }, size)
    rmSync(directory, { recursive: true })
    const floor = await runFloor(`${directory}.floor`, run.floor)
    rmSync(`${directory}.floor`)
    const perSecond = (ms: number): number => (run.operations * 1000) / ms
    pairs.push({ perSecond: perSecond(run.ms), floorPerSecond: perSecond(floor.ms), run, floor })
  }
  const of = (pick: (pair: (typeof pairs)[number]) => number): number => M.median(pairs.map(pick))
  // Of each pair, not of the medians: contender and floor of one run met the same disk.
  const ratio = of((pair) => pair.perSecond / pair.floorPerSecond)
  const target = key === 'a' || key === 'b' ? FLOOR_SHARE_MIN[durability] : undefined
  return {
    scenario: key,
    durability,
    operations: size,
    perSecond: of((pair) => pair.perSecond),
    floorPerSecond: of((pair) => pair.floorPerSecond),
    ratio,
    bytes: of((pair) => pair.run.bytes),
    floorBytes: of((pair) => pair.floor.bytes),
    cpuMicroseconds: of((pair) => (pair.run.cpuMs * 1000) / size),
    floorCpuMicroseconds: of((pair) => (pair.floor.cpuMs * 1000) / size),
    writes: of((pair) => pair.run.floor.writes),
    syncs: of((pair) => pair.run.floor.syncs),
    target,
    met: target === undefined ? undefined : ratio >= target,
    runs: pairs.map(({ perSecond, floorPerSecond }) => ({ perSecond, floorPerSecond })),
  }
}

const verdict = (met: boolean | undefined): string => (met === undefined ? '' : met ? 'yes' : 'NO')

async function main(): Promise<void> {
  const only = flags.only === undefined ? (Object.keys(SCENARIOS) as Key[]) : (flags.only.split(',') as Key[])
  for (const key of only) if (!(key in SCENARIOS)) throw new TypeError(`--only ${key}: expected some of a,b,c,d,e,f`)
  const durabilities = flags.durability === undefined ? ['process', 'power'] : [flags.durability]
  const runs = Number(flags.runs)
  const scale = Number(flags.scale)
  if (!(runs >= 1) || !(scale > 0)) throw new TypeError('--runs and --scale are numbers, 1 and above 0 at least')
  const sizeOf = (key: Key): number => Math.max(BATCH, Math.round((SIZES[key] * scale) / BATCH) * BATCH)
  const host = M.machine()
  console.log(
    `${host.cpu}, ${host.cores} cores, Node ${host.node}, seed ${flags.seed}, medians of ${runs}, scale ${scale}`,
  )
  if (host.load > host.cores / 2) {
    console.log(`The machine is busy (load ${host.load.toFixed(1)}): figures are too low and latencies too high.`)
  }
  const root = mkdtempSync(join(flags.dir ?? tmpdir(), 'holdfast-bench-'))
  M.disk.watch()
  const begun = performance.now()
  const rates: Awaited<ReturnType<typeof throughput>>[] = []
  const reopens: Awaited<ReturnType<typeof reopen>>[] = []
  const latencies: { durability: Durability; operation: string; ours: M.Latency; floor?: M.Latency; met: boolean }[] =
    []
  const checkpoints: { durability: Durability; forced: number; filled: number }[] = []
  try {
    for (const durability of durabilities as Durability[]) {
      for (const key of only) {
        process.stderr.write(`${key} ${durability}: ${SCENARIOS[key]}\n`)
        if (key === 'e') reopens.push(await reopen(root, durability, sizeOf(key), runs))
        else if (key !== 'f') rates.push(await throughput(key, root, durability, sizeOf(key), runs))
        else {
          const all: Awaited<ReturnType<typeof latency>>[] = []
          for (let run = 0; run < runs; run++) {
            const directory = mkdtempSync(join(root, 'f-'))
            all.push(await latency(directory, durability, sizeOf(key), scale))
            rmSync(directory, { recursive: true })
          }
          const add = M.medianLatency(all.map((one) => one.add))
          const take = M.medianLatency(all.map((one) => one.take))
          const floor = M.medianLatency(all.map((one) => one.floorAdd))
          latencies.push({ durability, operation: 'add', ours: add, floor, met: add.p99 < LATENCY_MS_MAX })
          latencies.push({ durability, operation: 'take', ours: take, met: take.p99 < LATENCY_MS_MAX })
          const sum = (pick: (one: (typeof all)[number]) => number): number => all.reduce((n, one) => n + pick(one), 0)
          const forced = sum((one) => one.checkpoints.forced)
          const filled = sum((one) => one.checkpoints.filled)
          // Without a checkpoint there is no sample, and no target was met.
          assert.ok(forced > 0 && filled > 0, `${forced} forced and ${filled} other checkpoints ran`)
          checkpoints.push({ durability, forced, filled })
        }
      }
    }
  } finally {
    rmSync(root, { recursive: true, force: true })
  }
  print(rates, reopens, latencies, checkpoints)
  const seconds = (performance.now() - begun) / 1000
  console.log(`\n${seconds.toFixed(0)} s in all`)
  if (flags.json !== undefined) {
    const result = { date: new Date().toISOString(), machine: host, seed: Number(flags.seed), scale, runs, seconds }
    writeFileSync(flags.json, `${JSON.stringify({ ...result, rates, reopens, latencies, checkpoints }, null, 2)}\n`)
  }
}

function print(
  rates: readonly Awaited<ReturnType<typeof throughput>>[],
  reopens: readonly Awaited<ReturnType<typeof reopen>>[],
  latencies: readonly { durability: Durability; operation: string; ours: M.Latency; floor?: M.Latency; met: boolean }[],
  checkpoints: readonly { durability: Durability; forced: number; filled: number }[],
): void {
  if (rates.length > 0) {
    const head = [
      '',
      'durability',
      'ops',
      'ops/s',
      'floor ops/s',
      'ratio',
      'target',
      'met',
      'cpu us/op',
      'floor',
      'bytes/op',
      'floor',
      'writes',
      'syncs',
    ]
    const rows = rates.map((one) => [
      `${one.scenario} ${SCENARIOS[one.scenario]}`,
      one.durability,
      M.count(one.operations),
      M.count(one.perSecond),
      M.count(one.floorPerSecond),
      M.percent(one.ratio),
      one.target === undefined ? '' : `>= ${M.percent(one.target)}`,
      verdict(one.met),
      one.cpuMicroseconds.toFixed(1),
      one.floorCpuMicroseconds.toFixed(1),
      M.count(one.bytes / one.operations),
      M.count(one.floorBytes / one.operations),
      M.count(one.writes),
      M.count(one.syncs),
    ])
    console.log(`\n${M.table([head, ...rows])}`)
  }
  if (reopens.length > 0) {
    const head = [
      '',
      'durability',
      'jobs',
      'open ms',
      'first job ms',
      'floor ms',
      'target',
      'met',
      'MB on disk',
      'MB of journal',
    ]
    const rows = reopens.map((one) => [
      `e ${SCENARIOS.e}`,
      one.durability,
      M.count(one.jobs),
      M.ms(one.openMs),
      M.ms(one.firstJobMs),
      M.ms(one.floorMs),
      `< ${M.count(REOPEN_MS_MAX)} ms`,
      verdict(one.met),
      (one.bytes / 1e6).toFixed(1),
      (one.journalBytes / 1e6).toFixed(1),
    ])
    console.log(`\n${M.table([head, ...rows])}`)
  }
  if (latencies.length === 0) return
  const head = ['', 'durability', 'samples', 'p50 ms', 'p99 ms', 'max ms', 'floor p50', 'p99', 'max', 'target', 'met']
  const rows = latencies.map(({ durability, operation, ours, floor, met }) => [
    `f ${operation}, ${SCENARIOS.f}`,
    durability,
    M.count(ours.samples),
    M.ms(ours.p50),
    M.ms(ours.p99),
    M.ms(ours.max),
    ...(floor === undefined ? ['', '', ''] : [M.ms(floor.p50), M.ms(floor.p99), M.ms(floor.max)]),
    `p99 < ${LATENCY_MS_MAX} ms`,
    verdict(met),
  ])
  console.log(`\n${M.table([head, ...rows])}`)
  for (const { durability, forced, filled } of checkpoints) {
    console.log(
      `f ${durability}: ${forced} checkpoints by force, ${filled} because memoryBytes was passed, over all runs`,
    )
  }
}

if (flags.child === undefined) await main()
else await runChild(flags.child, flags.dir as string, flags.durability as Durability, Number(flags.jobs))
