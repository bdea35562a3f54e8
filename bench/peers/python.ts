/**
 * Peers written in Python: the parent writes the requests as JSON lines, a script does the timed work by itself, and what it
 * gave back is read and checked here with the code that checks everybody. Python is the system's, where the packages of
 * the distribution are.
 */
import { spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { createWriteStream, existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { finished } from 'node:stream/promises'
import { type BenchRequest, LINKS_PER_PAGE, type Workload } from '../workload.js'
import { checkOrder, checkSteps, type Step } from './check.js'
import { absent, type Peer } from './driver.js'
import { peersDirectory } from './modules.js'
import { HOSTS, type Outcome, requestsOfHosts } from './scenarios.js'

const PYTHON = '/usr/bin/python3'

interface Answer {
  readonly operations: number
  readonly ms: number
  readonly cpuMs: number
  readonly whole: boolean
  readonly metrics?: Record<string, number>
  readonly cannot?: string
}

export interface PythonFiles {
  readonly input: string
  readonly pages: string
  readonly output: string
}

export function pythonPeer(name: string, script: string, module: string, share: number, setting: string): Peer {
  return {
    name,
    order: 'priority',
    share,
    python: script,
    unkept: 'what a killed process pushed and popped is not kept, only what was closed',
    setting,
    lacks: (scenario, durability) => {
      if (durability === 'power') return 'it never syncs'
      if (scenario === '4') return 'it never syncs'
      const { status } = spawnSync(PYTHON, ['-c', `import ${module}`])
      return status === 0 ? undefined : `${PYTHON} has no ${module}`
    },
    load: () => absent(name, 'module for Node'),
  }
}

export function pythonCommand(script: string, orders: object): [string, string[]] {
  return [PYTHON, ['-B', join(peersDirectory, script), JSON.stringify(orders)]]
}

/** Writes what the script reads before its clock starts. */
export async function writeInput(
  directory: string,
  scenario: string,
  workload: Workload,
  size: number,
): Promise<PythonFiles> {
  const of = (name: string): string => join(directory, `${name}.ndjson`)
  const files = { input: of('input'), pages: of('pages'), output: of('output') }
  if (existsSync(files.input)) return files
  const count = scenario === '6' ? 2 * size : scenario === '7' ? Math.ceil(2.5 * size) + 1 : size
  if (scenario === '8') {
    const hosts = Math.max(1, Math.round(Math.min(HOSTS, size / 10)))
    await writeLines(files.input, size, requestsOfHosts(workload, size, hosts))
  } else await writeLines(files.input, count, generate(workload, count))
  if (scenario === '5') {
    const pages = workload.pages(Math.ceil(size / LINKS_PER_PAGE), size).map(({ links }) => links)
    await writeLines(files.pages, pages.length, pages)
  }
  return files
}

function* generate(workload: Workload, count: number): Generator<BenchRequest> {
  for (let index = 0; index < count; index++) yield workload.request(index)
}

async function writeLines(path: string, count: number, values: Iterable<unknown>): Promise<void> {
  const stream = createWriteStream(path)
  const CHUNK = 1000
  let lines: string[] = []
  let left = count
  for (const value of values) {
    lines.push(`${JSON.stringify(value)}\n`)
    if (--left > 0 && lines.length < CHUNK) continue
    if (!stream.write(lines.join(''))) await once(stream, 'drain')
    lines = []
  }
  stream.end()
  await finished(stream)
}

/** The outcome of a script's answer, once what it gave back was right. */
export function pythonOutcome(
  answer: Answer,
  scenario: string,
  files: PythonFiles,
  workload: Workload,
  size: number,
): Outcome {
  const { operations, ms, cpuMs, whole, metrics, cannot } = answer
  if (cannot !== undefined) return { operations: 0, metrics: {}, notes: [cannot] }
  if (metrics !== undefined) return { operations, metrics }
  const lines = readFileSync(files.output, 'utf8').trimEnd().split('\n')
  const back = lines.map((line) => JSON.parse(line) as unknown)
  if (scenario === '5') {
    const pages = workload.pages(Math.ceil(size / LINKS_PER_PAGE), size)
    checkSteps(workload.requests(0, size), pages, back as Step[], 'priority')
  } else {
    const pushed = scenario === '1' ? operations : size
    checkOrder(workload.requests(0, pushed), back as BenchRequest[], 'priority', whole)
  }
  return { operations, metrics: { rate: (operations * 1000) / ms, cpuUs: (cpuMs * 1000) / operations } }
}

export const queuelib = pythonPeer(
  'queuelib',
  'queuelib_peer.py',
  'queuelib',
  0.25,
  'Python, PriorityQueue of FifoDiskQueues, pickle, set in memory; closing is timed',
)
export const scrapy = pythonPeer(
  'scrapy',
  'scrapy_peer.py',
  'scrapy',
  0.1,
  'Scrapy 2.8 Scheduler with JOBDIR, PickleFifoDiskQueue, else defaults; closing is timed',
)
