/**
 * Holdfast beside its peers, on the same work and the same promises. Every run is a fresh process in a fresh directory, and
 * rounds interleave the peers, so that a machine that slows down slows all of them. Invariant: no figure without a check of
 * what came back; a peer that cannot run here is named with the reason, never guessed.
 *
 * Usage: npm run bench:peers [-- --only 1,5] [--peers lmdb,sqlite] [--scale 0.1] [--runs N] [--seed N] [--json FILE] [--dir DIR]
 */
import { type ChildProcessByStdio, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Readable } from 'node:stream'
import { text } from 'node:stream/consumers'
import { parseArgs } from 'node:util'
import { machine } from '../measure.js'
import { Workload } from '../workload.js'
import { childPath, type Orders } from './child.js'
import type { Durability, Peer } from './driver.js'
import { peersDirectory } from './modules.js'
import { PEERS, peerNamed } from './peers.js'
import { pythonCommand, pythonOutcome, writeInput } from './python.js'
import { printScenario, type Row } from './report.js'
import { restart } from './restart.js'
import { BATCH, type Outcome, SCENARIOS } from './scenarios.js'

const { values: flags } = parseArgs({
  options: {
    only: { type: 'string' },
    peers: { type: 'string' },
    scale: { type: 'string', default: '1' },
    runs: { type: 'string', default: '3' },
    seed: { type: 'string', default: '1' },
    json: { type: 'string' },
    dir: { type: 'string' },
  },
})
const scale = Number(flags.scale)
const runs = Number(flags.runs)
const seed = Number(flags.seed)
if (!(scale > 0) || !(runs >= 1)) throw new TypeError('--scale and --runs are numbers, above 0 and 1 at least')
const root = mkdtempSync(join(flags.dir ?? tmpdir(), 'holdfast-peers-'))

/** Peers with modules of their own get them on the first run. Says why when that fails; the probe then skips them. */
function install(): void {
  if (existsSync(join(peersDirectory, 'node_modules'))) return
  process.stderr.write('installing the peers (npm ci in bench/peers); better-sqlite3 may be compiled\n')
  const { status } = spawnSync('npm', ['ci', '--prefix', peersDirectory, '--no-audit', '--no-fund'], {
    stdio: ['ignore', 'inherit', 'inherit'],
    shell: process.platform === 'win32',
  })
  if (status !== 0) process.stderr.write('npm ci failed: the peers that need it are skipped\n')
}

function startChild(orders: Orders): ChildProcessByStdio<null, Readable, Readable> {
  const script = peerNamed(orders.peer).python
  const command: [string, string[]] =
    script === undefined ? [process.execPath, [childPath, JSON.stringify(orders)]] : pythonCommand(script, orders)
  const limited: [string, string[]] = ['sh', ['-c', 'ulimit -n 1024; exec "$@"', 'sh', command[0], ...command[1]]]
  const [file, args] = orders.scenario === '8' ? limited : command
  return spawn(file, args, { stdio: ['ignore', 'pipe', 'pipe'] })
}

/** Runs one child to its end, and gives the last line it said. */
async function runChild<T>(orders: Orders): Promise<T> {
  const child = startChild(orders)
  const [out, error, [code, signal]] = await Promise.all([text(child.stdout), text(child.stderr), once(child, 'exit')])
  if (code !== 0) throw new Error(`${lastWords(error)} (exit ${code ?? signal})`)
  return JSON.parse(out.trim().split('\n').at(-1) as string) as T
}

/** The line of a stack trace that says what was wrong. */
function lastWords(error: string): string {
  const lines = error.split('\n').filter((line) => line.trim() !== '')
  return lines.find((line) => /Error/.test(line))?.trim() ?? lines.at(-1) ?? 'no message'
}

/** One run; of a restart, all of them: they open what one writer left. */
async function runOne(peer: Peer, scenario: string, durability: Durability, size: number): Promise<Outcome[]> {
  const files = mkdtempSync(join(root, 'run-'))
  const directory = join(files, 'store')
  mkdirSync(directory)
  const orders: Orders = { peer: peer.name, scenario, durability, directory, size, seed }
  try {
    if (peer.python === undefined) {
      return scenario === '6' ? await restart(startChild, orders, runs) : [await runChild<Outcome>(orders)]
    }
    const workload = new Workload(seed)
    const written = await writeInput(files, scenario, workload, size)
    if (scenario === '6') return await restart(startChild, { ...orders, ...written }, runs)
    const answer = await runChild<Parameters<typeof pythonOutcome>[0]>({ ...orders, ...written })
    return [pythonOutcome(answer, scenario, written, workload, size)]
  } finally {
    rmSync(files, { recursive: true, force: true, maxRetries: 3 })
  }
}

/** Memory takes the longest, so whoever is slow gets a tenth at most; how many hosts there are must not depend on pace. */
function shareOf({ share }: Peer, scenario: string): number {
  if (scenario === '8') return 1
  return scenario === '7' && share < 1 ? Math.min(share, 0.1) : share
}

async function runScenario(scenario: string, durability: Durability, peers: readonly Peer[]): Promise<Row[]> {
  const rows = peers.map((peer): Row => {
    const reason = skipped.get(peer) ?? peer.lacks(scenario, durability)
    return { scenario, durability, peer: peer.name, outcomes: [], ...(reason === undefined ? {} : { skipped: reason }) }
  })
  // Filling millions three times over would say nothing new about memory.
  const rounds = ONCE.has(scenario) ? 1 : runs
  for (let round = 0; round < rounds; round++) {
    for (const [at, peer] of peers.entries()) {
      const row = rows[at]
      if (row.skipped !== undefined || row.failed !== undefined) continue
      process.stderr.write(`  ${scenario} ${durability} round ${round + 1}: ${peer.name}\n`)
      const share = SCENARIOS[scenario].size * scale * shareOf(peer, scenario)
      const size = Math.max(BATCH, Math.round(share / BATCH) * BATCH)
      try {
        row.outcomes.push(...(await runOne(peer, scenario, durability, size)))
      } catch (error) {
        row.failed = (error as Error).message
        process.stderr.write(`  ${peer.name} FAILED in scenario ${scenario}: ${row.failed}\n`)
      }
    }
  }
  return rows
}

const ONCE = new Set(['6', '7'])
const skipped = new Map<Peer, string>()

async function main(): Promise<void> {
  const peers = flags.peers === undefined ? PEERS : ['holdfast', ...flags.peers.split(',')].map(peerNamed)
  const chosen = [...new Set(peers)]
  const only = flags.only === undefined ? Object.keys(SCENARIOS) : flags.only.split(',')
  for (const key of only)
    if (!(key in SCENARIOS)) throw new TypeError(`--only ${key}: expected some of ${Object.keys(SCENARIOS)}`)
  if (chosen.some((peer) => peer.modules)) install()
  const host = machine()
  const date = new Date().toISOString()
  console.log(
    `${host.cpu}, ${host.cores} cores, ${host.memoryGiB} GiB, ${host.platform}, Node ${host.node}, ${date.slice(0, 10)}, ` +
      `seed ${seed}, medians of ${runs}, scale ${scale}`,
  )
  if (host.load > host.cores / 2)
    console.log(`The machine is busy (load ${host.load.toFixed(1)}): compare ratios only.`)
  const begun = performance.now()
  for (const peer of chosen) {
    try {
      if (peer.python === undefined) await runOne(peer, 'probe', 'process', 1)
      console.log(`${peer.name}: ${peer.setting}`)
    } catch (error) {
      skipped.set(peer, (error as Error).message)
      console.log(`${peer.name}: SKIPPED, it does not run here: ${(error as Error).message}`)
    }
  }
  const rows: Row[] = []
  for (const key of only) {
    for (const durability of SCENARIOS[key].durabilities) {
      const found = await runScenario(key, durability, chosen)
      printScenario(key, durability, found)
      rows.push(...found)
    }
  }
  const seconds = (performance.now() - begun) / 1000
  console.log(`\n${seconds.toFixed(0)} s in all`)
  if (flags.json !== undefined) {
    const settings = Object.fromEntries(chosen.map(({ name, setting }) => [name, setting]))
    const result = { date, machine: host, seed, scale, runs, seconds, settings, scenarios: SCENARIOS, rows }
    writeFileSync(flags.json, `${JSON.stringify(result, null, 2)}\n`)
  }
  if (rows.some((row) => row.failed !== undefined)) process.exitCode = 1
}

try {
  await main()
} finally {
  rmSync(root, { recursive: true, force: true })
}
