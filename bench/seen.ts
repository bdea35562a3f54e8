/**
 * What the seen-set costs by itself, at sizes where its runs matter: straight against SeenSet on a real directory, with
 * checkpoints as the engine makes them and a manifest of its own. Keys come from a cheap seeded mixer: hashing URLs is not
 * the seen-set's cost, and is in none of these figures. Invariant: a figure is printed only when every answer was right.
 *
 * Usage: npm run bench:seen -- [--keys N] [--seed S] [--window OFFERS] [--memory MiB] [--json FILE] [--dir DIR]
 *
 * 85 % of the offers are duplicates: half of those go to 2,000 hot pages, a quarter by Zipf's law and a quarter evenly to all
 * keys known. With --window only that many offers at the end of each tenth are made like this and timed; the keys before
 * them are added without duplicates, so that large sets are reached sooner.
 */
import assert from 'node:assert/strict'
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import {
  closeSync,
  fsyncSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import type { SeenRunInfo, SeenSet as SeenSetType } from '../src/seen/seen-set.js'
import * as M from './measure.js'

// Of the built package, so that the worker thread is the one that users get.
const load = (path: string) => import(new URL(`../../dist/${path}`, import.meta.url).href)
const { SeenSet } = (await load('seen/seen-set.js')) as typeof import('../src/seen/seen-set.js')
const { nodeEnv } = (await load('env/node-env.js')) as typeof import('../src/env/node-env.js')
const { budgetOf } = (await load('seen/seen-budget.js')) as typeof import('../src/seen/seen-budget.js')

const KEY_BYTES = 16
const DUPLICATE_SHARE = 0.85
const HOT_KEYS = 2000
const BATCH_MIN = 50
const BATCH_MAX = 100
const TENTHS = 10
const LOOKUPS = 200_000
const JOB_ID = Uint8Array.from({ length: 16 }, (_, i) => i + 1)
/** Keys of these indexes are never added. */
const ABSENT_FROM = 2 ** 31

interface Settings {
  readonly keys: number
  readonly seed: number
  readonly window: number
  readonly memoryBytes: number
  readonly directory: string
}

interface Manifest {
  readonly size: number
  readonly runs: SeenRunInfo[]
}

interface Tenth {
  readonly size: number
  readonly offersPerSecond: number
  readonly rss: number
  readonly rssAnon: number
  readonly memoryBytes: number
  readonly runs: number
  /** Bytes that came from the device during the timed offers, not from the system's page cache; all threads. */
  readonly deviceBytes: number
}

interface Filled {
  readonly size: number
  readonly offers: number
  readonly seconds: number
  readonly tenths: Tenth[]
  /** ms of one batch of 50 to 100 offers: the call, and from one batch to the next with a turn of the event loop between. */
  readonly call: M.Latency
  readonly callBusy: M.Latency
  readonly turnBusy: M.Latency
  readonly waitedForRoomMs: number
  readonly checkpoints: number
  readonly memoryBytesMax: number
  readonly rssMax: number
  readonly bytesAtRest: number
  readonly bytesMax: number
  readonly lookupsPerSecond: { known: number; absent: number }
  readonly lookupDeviceBytes: number
}

interface Reopened {
  readonly openMs: number
  readonly firstAnswerMs: number
  readonly size: number
  readonly rss: number
}

/** The same index gives the same key in every process, and different ones give different keys: the first word is a bijection. */
function writeKey(into: Buffer, at: number, index: number, seed: number): void {
  const first = mix(index ^ seed)
  into.writeInt32LE(first, at)
  into.writeInt32LE(mix(first + 0x632be5ab), at + 4)
  into.writeInt32LE(mix(Math.imul(first, 0x85157af5) ^ seed), at + 8)
  into.writeInt32LE(mix(Math.imul(first, 0x58f38ded) + index), at + 12)
}

function mix(value: number): number {
  let h = Math.imul(value ^ (value >>> 16), 0x21f0aaad)
  h = Math.imul(h ^ (h >>> 15), 0x735a2d97)
  return h ^ (h >>> 15)
}

class Offers {
  readonly keys = Buffer.alloc(BATCH_MAX * KEY_BYTES)
  /** Of the batch: 1 for a key that is new. */
  readonly expected = new Uint8Array(BATCH_MAX)
  known = 0
  private readonly seed: number
  private state: number
  private owed = 0

  constructor(seed: number) {
    this.seed = seed
    this.state = seed | 1
  }

  /** In [0, 1). */
  random(): number {
    this.state = (this.state + 0x6d2b79f5) | 0
    return (mix(this.state) >>> 0) / 2 ** 32
  }

  make(count: number, duplicateShare: number, newMax: number): number {
    let fresh = 0
    for (let i = 0; i < count; i++) {
      this.owed += 1 - duplicateShare
      const isNew = (this.owed >= 1 || this.known === 0) && fresh < newMax
      if (isNew) this.owed = Math.max(0, this.owed - 1)
      this.expected[i] = isNew ? 1 : 0
      if (isNew) fresh++
      writeKey(this.keys, i * KEY_BYTES, isNew ? this.known++ : this.duplicate(), this.seed)
    }
    return fresh
  }

  private duplicate(): number {
    const kind = this.random()
    const at = this.random()
    if (kind < 0.5) return Math.floor(at * Math.min(HOT_KEYS, this.known))
    if (kind < 0.75) return Math.min(this.known - 1, Math.floor(this.known ** at))
    return Math.floor(at * this.known)
  }
}

/** The seen-set with what the engine does around it. */
class Store {
  readonly set: SeenSetType
  readonly checkpointKeys: number
  checkpoints = 0
  bytesMax = 0
  current: Promise<void> | undefined
  private readonly directory: string

  constructor(settings: Settings, manifest: Manifest) {
    this.directory = settings.directory
    const directory = join(settings.directory, 'requests.seen')
    const { memoryBytes } = settings
    const warn = (code: string, message: string): void => assert.fail(`${code}: ${message}`)
    this.set = SeenSet.open({ env: nodeEnv, directory, jobId: JOB_ID, ...manifest, memoryBytes, warn })
    this.checkpointKeys = budgetOf(memoryBytes).tableKeysMax
  }

  maybeCheckpoint(): void {
    if (this.current !== undefined) return
    if (this.set.tableCount > this.checkpointKeys || this.set.isMerged) this.startCheckpoint()
  }

  startCheckpoint(): void {
    this.current = this.checkpoint().finally(() => {
      this.current = undefined
    })
  }

  private async checkpoint(): Promise<void> {
    this.set.freeze()
    const manifest = await this.set.writeFrozen()
    this.bytesMax = Math.max(this.bytesMax, bytesIn(join(this.directory, 'requests.seen')))
    writeManifest(this.directory, manifest)
    this.set.commitFrozen()
    this.checkpoints++
  }

  async settle(): Promise<void> {
    do {
      await this.current
      this.startCheckpoint()
      await this.current
      await this.set.settled()
    } while (this.set.isMerged)
  }
}

function writeManifest(directory: string, manifest: Manifest): void {
  const path = join(directory, 'manifest.json')
  const file = openSync(`${path}.tmp`, 'w')
  writeFileSync(file, JSON.stringify(manifest))
  fsyncSync(file)
  closeSync(file)
  renameSync(`${path}.tmp`, path)
  const parent = openSync(directory, 'r')
  fsyncSync(parent)
  closeSync(parent)
}

const readManifest = (directory: string): Manifest =>
  JSON.parse(readFileSync(join(directory, 'manifest.json'), 'utf8')) as Manifest

const bytesIn = (directory: string): number =>
  readdirSync(directory).reduce((sum, name) => sum + statSync(join(directory, name)).size, 0)

/** Bytes of this process that are its own: files it has in the page cache are not among them. */
function rssAnon(): number {
  const found = /RssAnon:\s+(\d+) kB/.exec(readFileSync('/proc/self/status', 'utf8'))
  return Number(found?.[1] ?? Number.NaN) * 1024
}

/** What this process had to wait for the device to read. */
function deviceBytesRead(): number {
  return Number(/^read_bytes: (\d+)/m.exec(readFileSync('/proc/self/io', 'utf8'))?.[1] ?? Number.NaN)
}

/** Millions of times in a few kB, so that measuring does not show in the memory that is measured. Exact to one percent. */
class Histogram {
  private static readonly perOctave = 70
  private readonly counts = new Uint32Array(Histogram.perOctave * 32)
  private samples = 0
  private max = 0

  push(ms: number): void {
    const bucket = Math.floor(Math.log2(1 + ms * 1000) * Histogram.perOctave)
    this.counts[Math.min(this.counts.length - 1, bucket)]++
    this.samples++
    this.max = Math.max(this.max, ms)
  }

  latency(): M.Latency {
    return { samples: this.samples, p50: this.at(0.5), p99: this.at(0.99), max: this.max }
  }

  private at(share: number): number {
    let left = share * this.samples
    const bucket = this.counts.findIndex((count) => {
      left -= count
      return left <= 0
    })
    return (2 ** ((bucket + 1) / Histogram.perOctave) - 1) / 1000
  }
}

async function fill(settings: Settings): Promise<Filled> {
  mkdirSync(settings.directory, { recursive: true })
  writeManifest(settings.directory, { size: 0, runs: [] })
  const store = new Store(settings, { size: 0, runs: [] })
  const { set } = store
  const offers = new Offers(settings.seed)
  const isNew = new Uint8Array(BATCH_MAX)
  const [call, callBusy, turnBusy] = [new Histogram(), new Histogram(), new Histogram()]
  const tenths: Tenth[] = []
  let [offered, seconds, waitedForRoomMs, memoryBytesMax, rssMax] = [0, 0, 0, 0, 0]

  /** Adds until so many keys are known. */
  const addUntil = async (size: number, duplicateShare: number, timed: boolean): Promise<number> => {
    let count = 0
    const begun = performance.now()
    while (offers.known < size) {
      const wanted = BATCH_MIN + Math.floor(offers.random() * (BATCH_MAX - BATCH_MIN + 1))
      const turnBegun = performance.now()
      const fresh = offers.make(wanted, duplicateShare, size - offers.known)
      const callBegun = performance.now()
      const added = set.addBatch(offers.keys, wanted, isNew)
      const ended = performance.now()
      assert.equal(added, fresh)
      for (let i = 0; i < wanted; i++) if (isNew[i] !== offers.expected[i]) assert.fail(`a wrong answer for offer ${i}`)
      count += wanted
      store.maybeCheckpoint()
      await M.turn()
      if (timed) (store.current === undefined ? call : callBusy).push(ended - callBegun)
      if (timed && store.current !== undefined) turnBusy.push(performance.now() - turnBegun)
      if (store.current !== undefined && set.tableCount >= 2 * store.checkpointKeys) {
        const waitBegun = performance.now()
        await store.current
        waitedForRoomMs += performance.now() - waitBegun
      }
      memoryBytesMax = Math.max(memoryBytesMax, set.memoryBytes)
    }
    const took = (performance.now() - begun) / 1000
    if (timed) {
      offered += count
      seconds += took
    }
    return count / took
  }

  for (let tenth = 1; tenth <= TENTHS; tenth++) {
    const end = Math.round((settings.keys * tenth) / TENTHS)
    const windowKeys = Math.round(settings.window * (1 - DUPLICATE_SHARE))
    if (end - windowKeys > offers.known) await addUntil(end - windowKeys, 0, false)
    const deviceBefore = deviceBytesRead()
    const offersPerSecond = await addUntil(end, DUPLICATE_SHARE, true)
    const deviceBytes = deviceBytesRead() - deviceBefore
    const { rss } = process.memoryUsage()
    rssMax = Math.max(rssMax, rss)
    const at = { size: set.size, memoryBytes: set.memoryBytes, runs: set.runs.length }
    tenths.push({ ...at, offersPerSecond, deviceBytes, rss, rssAnon: rssAnon() })
    process.stderr.write(`${M.count(set.size)} keys, ${M.count(offersPerSecond)} offers/s\n`)
  }
  await store.settle()
  assert.equal(set.size, settings.keys)
  const bytesAtRest = bytesIn(join(settings.directory, 'requests.seen'))
  const lookupsBefore = deviceBytesRead()
  const lookupsPerSecond = lookUp(set, settings, settings.keys)
  const lookupDeviceBytes = deviceBytesRead() - lookupsBefore
  rssMax = Math.max(rssMax, process.resourceUsage().maxRSS * 1024)
  return {
    size: set.size,
    offers: offered,
    seconds,
    tenths,
    call: call.latency(),
    callBusy: callBusy.latency(),
    turnBusy: turnBusy.latency(),
    waitedForRoomMs,
    checkpoints: store.checkpoints,
    memoryBytesMax,
    rssMax,
    bytesAtRest,
    bytesMax: store.bytesMax,
    lookupsPerSecond,
    lookupDeviceBytes,
  }
}

/** Evenly over all keys, one by one: each that is known must be seen, none that is not. */
function lookUp(set: SeenSetType, { seed }: Settings, size: number): { known: number; absent: number } {
  const key = Buffer.alloc(KEY_BYTES)
  const random = new Offers(seed ^ 0x5bd1e995)
  const run = (first: number, range: number, expected: boolean): number => {
    const begun = performance.now()
    for (let i = 0; i < LOOKUPS; i++) {
      writeKey(key, 0, first + Math.floor(random.random() * range), seed)
      if (set.has(key, 0) !== expected) assert.fail(`look-up ${i}: expected ${expected}`)
    }
    return LOOKUPS / ((performance.now() - begun) / 1000)
  }
  return { known: run(0, size, true), absent: run(ABSENT_FROM, ABSENT_FROM / 2, false) }
}

async function fillAndDie(settings: Settings): Promise<void> {
  const filled = await fill(settings)
  await new Promise<void>((resolve) => process.send?.(filled, () => resolve()))
  // Dies while a checkpoint writes, as crawls do.
  const store = new Store(settings, readManifest(settings.directory))
  const offers = new Offers(settings.seed)
  offers.known = settings.keys
  for (let i = 0; i < 1000; i++) {
    offers.make(BATCH_MAX, 0, BATCH_MAX)
    store.set.addBatch(offers.keys, BATCH_MAX, new Uint8Array(BATCH_MAX))
  }
  store.startCheckpoint()
  const files = readdirSync(join(settings.directory, 'requests.seen')).length
  while (readdirSync(join(settings.directory, 'requests.seen')).length <= files) await M.turn()
  process.kill(process.pid, 'SIGKILL')
}

function reopen(settings: Settings): Reopened {
  const key = Buffer.alloc(KEY_BYTES)
  writeKey(key, 0, settings.keys >> 1, settings.seed)
  const begun = performance.now()
  const { set } = new Store(settings, readManifest(settings.directory))
  set.removeUnnamed()
  const openMs = performance.now() - begun
  assert.equal(set.has(key, 0), true)
  const firstAnswerMs = performance.now() - begun
  assert.equal(set.size, settings.keys)
  lookUp(set, settings, settings.keys)
  const { rss } = process.memoryUsage()
  set.close()
  return { openMs, firstAnswerMs, size: set.size, rss }
}

/** Runs a role in a process of its own and returns what it sends. */
async function inChild<T>(role: string, settings: Settings, signal: string | null): Promise<T> {
  const child: ChildProcess = spawn(process.execPath, [fileURLToPath(import.meta.url)], {
    env: { ...process.env, HOLDFAST_BENCH_ROLE: role, HOLDFAST_BENCH_SETTINGS: JSON.stringify(settings) },
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
  })
  let result: T | undefined
  child.on('message', (message) => {
    result = message as T
  })
  const [code, killed] = await once(child, 'exit')
  assert.ok(result !== undefined && (signal === null ? code === 0 : killed === signal), `${role} ended with ${code}`)
  return result
}

const mib = (bytes: number): string => `${(bytes / 2 ** 20).toFixed(1)} MiB`

function report(settings: Settings, filled: Filled, reopened: Reopened): void {
  const { tenths, size } = filled
  const [first, last] = [tenths[0], tenths[tenths.length - 1]]
  console.log(
    M.table([
      ['keys', 'offers/s', 'runs', 'from device', 'set', 'RSS', 'private RSS'],
      ...tenths.map((one) => [
        M.count(one.size),
        M.count(one.offersPerSecond),
        String(one.runs),
        mib(one.deviceBytes),
        mib(one.memoryBytes),
        mib(one.rss),
        mib(one.rssAnon),
      ]),
    ]),
  )
  const latency = ({ p50, p99, max, samples }: M.Latency): string =>
    `p50 ${M.ms(p50)}  p99 ${M.ms(p99)}  max ${M.ms(max)} ms  (${M.count(samples)} batches)`
  const rows = [
    ['offers/s, 85 % duplicates', `${M.count(filled.offers / filled.seconds)} over ${M.count(filled.offers)} offers`],
    ['last tenth / first', M.percent(last.offersPerSecond / first.offersPerSecond)],
    ['waited for checkpoints', `${M.count(filled.waitedForRoomMs)} ms; ${filled.checkpoints} checkpoints`],
    ['batch of 50-100, quiet', latency(filled.call)],
    ['batch, checkpoint runs', latency(filled.callBusy)],
    ['turn, checkpoint runs', latency(filled.turnBusy)],
    ['memory of the set, most', `${mib(filled.memoryBytesMax)} of ${mib(settings.memoryBytes)} allowed`],
    ['RAM', `${(filled.memoryBytesMax / size).toFixed(2)} bytes a key; RSS at most ${mib(filled.rssMax)}`],
    [
      'disk',
      `${(filled.bytesAtRest / size).toFixed(2)} bytes a key at rest, ${(filled.bytesMax / size).toFixed(2)} at most`,
    ],
    [
      'look-ups/s, even, one by one',
      `known ${M.count(filled.lookupsPerSecond.known)}, absent ${M.count(filled.lookupsPerSecond.absent)}; ${mib(filled.lookupDeviceBytes)} from the device`,
    ],
    [
      'reopened after SIGKILL',
      `open ${M.ms(reopened.openMs)} ms, first answer ${M.ms(reopened.firstAnswerMs)} ms, RSS ${mib(reopened.rss)}`,
    ],
  ]
  console.log(`\n${rows.map(([name, value]) => `${name.padEnd(30)}${value}`).join('\n')}`)
}

const role = process.env['HOLDFAST_BENCH_ROLE']
if (role !== undefined) {
  const settings = JSON.parse(process.env['HOLDFAST_BENCH_SETTINGS'] ?? '') as Settings
  if (role === 'fill') await fillAndDie(settings)
  else process.send?.(reopen(settings), () => process.exit(0))
} else {
  const { values } = parseArgs({
    options: {
      keys: { type: 'string', default: '10000000' },
      seed: { type: 'string', default: '1' },
      window: { type: 'string' },
      memory: { type: 'string', default: '128' },
      json: { type: 'string' },
      dir: { type: 'string', default: tmpdir() },
    },
  })
  const directory = mkdtempSync(join(values.dir, 'holdfast-bench-seen-'))
  try {
    const settings: Settings = {
      keys: Number(values.keys),
      seed: Number(values.seed),
      window: Number(values.window ?? Number.MAX_SAFE_INTEGER),
      memoryBytes: Number(values.memory) * 2 ** 20,
      directory,
    }
    assert.ok(settings.keys >= 1000 && settings.keys < ABSENT_FROM, '--keys is a number from 1,000 to 2^31')
    const machine = M.machine()
    console.log(
      `${machine.cpu}, ${machine.cores} cores, ${machine.memoryGiB} GiB, Node ${machine.node}, load ${machine.load.toFixed(2)}`,
    )
    console.log('Keys from a cheap mixer (no URL is hashed); files in the page cache, as far as memory goes.\n')
    const filled = await inChild<Filled>('fill', settings, 'SIGKILL')
    const reopened = await inChild<Reopened>('reopen', settings, null)
    report(settings, filled, reopened)
    if (values.json !== undefined) {
      writeFileSync(values.json, `${JSON.stringify({ machine, settings, filled, reopened }, null, 2)}\n`)
    }
  } finally {
    rmSync(directory, { recursive: true, force: true })
  }
}
