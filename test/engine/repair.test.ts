/**
 * Repairs one job after damaging each of its files in turn, and holds what comes out against the undamaged job: what does
 * not lie in the damaged part is there and unchanged, the damage is named, and the damaged directory is left alone.
 */
import { describe, expect, test } from 'vitest'
import { type RepairReport, repairDirectory } from '../../src/engine/repair.js'
import { verifyDirectory } from '../../src/engine/verify.js'
import { SimClock } from '../../src/env/sim-clock.js'
import { simEnv } from '../../src/env/sim-env.js'
import type { SimFileSystem } from '../../src/env/sim-file-system.js'
import { errorCode } from '../../src/errors.js'
import { openFrontier } from '../../src/frontier/frontier.js'
import { openQueue } from '../../src/frontier/queue.js'
import { decodeFileHeader, JOURNAL_MAGIC, SEGMENT_MAGIC } from '../../src/store/format.js'
import { readFrame } from '../../src/store/frame.js'
import { TINY } from '../support/checked.js'

const JOB = '/job'
const NEW = '/new/job'
const FOREVER_MS = 1e12
const DAY_MS = 86_400_000
const OPTIONS = { tuning: TINY, leaseMs: FOREVER_MS, maxAttempts: 1000, syncEveryMs: 30_000 } as const

type World = ReturnType<typeof simEnv>

const urls = (host: string, from: number, to: number): string[] =>
  Array.from({ length: to - from }, (_, i) => `http://${host}.test/page/${from + i}`)

/** Everything that is or was in the job below. */
const UNIVERSE = ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 's']
  .flatMap((host) => urls(host, 0, 60))
  .concat(urls('m', 0, 320))

/** A checkpoint that fails leaves its journal behind: the next one goes on beside it. */
async function failCheckpoint(env: World, checkpoint: () => Promise<void>): Promise<void> {
  env.files.failAt(6, { kind: 'EIO' })
  await expect(checkpoint()).rejects.toThrow()
  env.files.clearFaults()
}

/**
 * A frontier in the middle of its life, as a kill leaves it: segments of several buckets, delayed and dead jobs, runs of
 * the seen-set, three journals, leases at work.
 */
async function makeJob(order: 'fifo' | 'lifo' = 'fifo'): Promise<World> {
  const env = simEnv({ seed: 5 })
  const frontier = await openFrontier(JOB, { env, order, ...OPTIONS })
  const { clock } = env
  const take = (max: number) => frontier.take({ max })
  await frontier.add(urls('m', 0, 320), { priority: 9 })
  for (const visit of await take(320)) await visit.ack()
  await frontier.add(urls('a', 0, 30), { meta: { depth: 1 } })
  await frontier.add(urls('b', 0, 30), { priority: 5 })
  await frontier.add(urls('s', 0, 4), { start: true })
  await frontier.add(urls('d', 0, 12), { notBefore: clock.now() + 90_000 })
  await frontier.add(urls('d', 12, 20), { notBefore: clock.now() + 2 * DAY_MS })
  await frontier.add(urls('e', 0, 8), { priority: -3, dontFilter: true })
  await frontier.checkpoint()
  for (const visit of await take(12)) await visit.bury({ reason: `gave up on ${visit.id}` })
  await frontier.checkpoint()
  const visits = await take(14)
  for (const visit of visits.slice(0, 3)) await visit.ack({ add: urls('c', visit.id * 2, visit.id * 2 + 2) })
  for (const visit of visits.slice(3, 6)) await visit.retry({ delayMs: 5 * DAY_MS, reason: 'not now' })
  for (const visit of visits.slice(6, 9)) await visit.retry({ reason: 'once more' })
  await frontier.setState({ cursor: { page: 7 }, gone: 1 })
  await frontier.add(urls('f', 0, 10))
  await frontier.forget('http://m.test/page/11')
  await frontier.checkpoint()
  await visits[9].ack()
  await frontier.add(urls('g', 0, 14), { priority: 1 })
  await failCheckpoint(env, () => frontier.checkpoint())
  await visits[10].ack({ state: { gone: undefined, last: 'x' } })
  await frontier.add(urls('h', 0, 9))
  for (const visit of (await take(4)).slice(0, 2)) await visit.ack()
  await frontier.forget('http://m.test/page/12')
  await failCheckpoint(env, () => frontier.checkpoint())
  await frontier.pauseSlot('b.test', clock.now() + 3_600_000)
  for (const visit of await take(3)) await visit.bury({ reason: 'late' })
  await frontier.add(urls('c', 0, 5), { priority: 2 })
  await clock.advance(10)
  return killed(env)
}

/** The same disk in another world: what a kill leaves. */
function killed(env: World): World {
  return copyOf(env.files, env.clock.now())
}

function copyOf(files: SimFileSystem, wallMs: number): World {
  return simEnv({ seed: 7, files: files.crash({ seed: 0, unsynced: 'kept' }), clock: new SimClock({ wallMs }) })
}

interface Snapshot {
  /** In the order they are handed out. */
  readonly jobs: readonly { readonly id: number }[]
  readonly dead: readonly { readonly id: number }[]
  readonly seen: readonly string[]
  readonly rest: object
}

/** Opens a copy and takes everything out of it. */
async function snapshot(env: World, directory: string): Promise<Snapshot> {
  const world = killed(env)
  const frontier = await openFrontier(directory, { env: world, ...OPTIONS })
  const stats = await frontier.stats()
  const jobs = []
  for (const days of [0, 1, 3, 7]) {
    await world.clock.advance(days * DAY_MS)
    for (const visit of await frontier.take({ max: 1000 })) {
      const { id, url, attempt, failures, lastReason, priority, slot, addedAt, start, meta } = visit
      jobs.push({ days, id, url, attempt, failures, lastReason, priority, slot, addedAt, start, meta })
    }
  }
  const dead = []
  for await (const letter of frontier.dead()) dead.push({ ...letter, raw: Buffer.from(letter.raw).toString('hex') })
  dead.sort((a, b) => a.id - b.id)
  const seen = UNIVERSE.filter((url) => frontier.has(url))
  const state = Object.fromEntries(['cursor', 'gone', 'last'].map((key) => [key, frontier.state(key)]))
  const { recovered: _, ...counters } = stats.counters
  await frontier.add('http://next.test/', { priority: 100 })
  const [next] = await frontier.take()
  await frontier.close()
  const rest = { state, counters, delayed: stats.delayed, seenCount: stats.seen, nextId: next.id }
  return { jobs, dead, seen, rest }
}

function contentsUnder(files: SimFileSystem, directory: string): Record<string, string> {
  const paths = files.allFiles().filter((path) => path.startsWith(`${directory}/`))
  return Object.fromEntries(paths.map((path) => [path, files.contents(path).toString('latin1')]))
}

/** Repairs, and asserts what holds of every repair. */
async function repair(env: World, options: { order?: 'fifo' | 'lifo' } = {}): Promise<RepairReport> {
  const before = contentsUnder(env.files, JOB)
  const report = await repairDirectory(JOB, NEW, env, { tuning: TINY, ...options })
  expect(contentsUnder(env.files, JOB)).toEqual(before)
  expect(env.files.openHandles()).toBe(0)
  expect((await verifyDirectory(NEW, env)).problems).toEqual([])
  expect(JSON.parse(JSON.stringify(report))).toEqual(report)
  return report
}

const healthy = await makeJob()
const original = await snapshot(healthy, JOB)
/** Every file of the job but those that hold nothing of it. */
const FILES = healthy.files.allFiles().filter((path) => path.startsWith(JOB) && !path.endsWith('/reserve'))
const kindOf = (path: string): string =>
  path.endsWith('.log') ? 'journal' : /\/q\d+$/.test(path) ? 'segment' : /\/r\d+$/.test(path) ? 'run' : 'json'
const filesOf = (kind: string): string[] => FILES.filter((path) => kindOf(path) === kind)

test('the job has what the tests below need', () => {
  expect(filesOf('journal').length).toBeGreaterThanOrEqual(3)
  expect(new Set(filesOf('segment').map((path) => path.split('/').at(-2)))).toEqual(
    new Set(['0', '-5', 'dead', 'delayed']),
  )
  expect(filesOf('run').length).toBeGreaterThan(0)
  expect(filesOf('run').some((path) => healthy.files.contents(path).length > 4 * 4096)).toBe(true)
  expect(original.dead.length).toBeGreaterThan(12)
  expect(original.jobs.length).toBeGreaterThan(100)
})

describe('an undamaged job', () => {
  test('is repaired into an equal one', async () => {
    const env = killed(healthy)
    const report = await repair(env)
    expect(report).toMatchObject({ lost: { records: 0, bytes: 0 }, guessed: [], problems: [], values: 2 })
    expect(await snapshot(env, NEW)).toEqual(original)
    expect(report.seen).toBe((original.rest as { seenCount: number }).seenCount)
    const { ready, delayed, dead } = report.jobs
    expect(ready + delayed).toBe(original.jobs.length)
    expect(dead).toBe(original.dead.length)
  })

  test('lifo, closed in order', async () => {
    const env = await makeJob('lifo')
    const frontier = await openFrontier(JOB, { env, ...OPTIONS })
    await frontier.close()
    const before = await snapshot(env, JOB)
    expect(await repair(env)).toMatchObject({ guessed: [], problems: [] })
    expect(await snapshot(env, NEW)).toEqual(before)
  })

  test('a queue', async () => {
    const env = simEnv({ seed: 3 })
    const queue = await openQueue<number>(JOB, { env, ...OPTIONS })
    await queue.pushAll(Array.from({ length: 50 }, (_, i) => i))
    await queue.checkpoint()
    for (const job of await queue.take({ max: 10 })) await job.ack()
    await queue.push(50)
    const after = killed(env)
    expect(await repair(after)).toMatchObject({ problems: [], jobs: { ready: 41, delayed: 0, dead: 0 }, seen: 0 })
    const repaired = await openQueue<number>(NEW, { env: after, ...OPTIONS })
    const payloads = (await repaired.take({ max: 100 })).map((job) => job.payload)
    expect(payloads).toEqual(Array.from({ length: 41 }, (_, i) => i + 10))
    await repaired.close()
  })

  test('an empty job', async () => {
    const env = simEnv({ seed: 3 })
    await (await openFrontier(JOB, { env, ...OPTIONS })).close()
    expect(await repair(env)).toMatchObject({
      problems: [],
      jobs: { ready: 0, delayed: 0, dead: 0 },
      seen: 0,
      values: 0,
    })
  })

  test('repaired again gives the same once more', async () => {
    const env = killed(healthy)
    await repair(env)
    await repairDirectory(NEW, '/third', env, { tuning: TINY })
    expect(await snapshot(env, '/third')).toEqual(original)
  })
})

/** The frames of an undamaged journal or segment. */
function framesOf(bytes: Buffer): { at: number; end: number }[] {
  const magic = bytes.latin1Slice(0, 8) === JOURNAL_MAGIC ? JOURNAL_MAGIC : SEGMENT_MAGIC
  const read = decodeFileHeader(bytes, magic)
  if (read.kind !== 'header') throw new Error('the undamaged file has a header')
  const frames = []
  for (let at = 64; ; ) {
    const frame = readFrame(bytes, at, read.header.salt)
    if (frame.kind !== 'frame') return frames
    frames.push({ at, end: frame.end })
    at = frame.end
  }
}

/** URLs that stand in the part of the file that a damage to [from, to) costs: whole frames. */
function endangered(path: string, from: number, to: number): Set<string> {
  const bytes = healthy.files.contents(path)
  const text = framesOf(bytes)
    .filter(({ at, end }) => at < to && end > from)
    .map(({ at, end }) => bytes.latin1Slice(at, end))
    .join('\n')
  return new Set(UNIVERSE.filter((url) => new RegExp(`${url.replaceAll('.', '\\.')}(?!\\d)`).test(text)))
}

type Damage = (files: SimFileSystem, path: string) => { from: number; to: number }

const flip =
  (share: number): Damage =>
  (files, path) => {
    const { length } = files.contents(path)
    const offset = Math.min(length - 1, Math.floor(length * share))
    files.corrupt(path, offset, 0x40)
    return { from: offset, to: offset + 1 }
  }

const flipAt =
  (offset: number): Damage =>
  (files, path) => {
    files.corrupt(path, offset, 0x01)
    return { from: offset, to: offset + 1 }
  }

const truncate =
  (share: number): Damage =>
  (files, path) => {
    const bytes = files.contents(path)
    const length = Math.floor(bytes.length * share)
    files.setContents(path, bytes.subarray(0, length))
    return { from: length, to: bytes.length }
  }

const zero =
  (from: number, to: number): Damage =>
  (files, path) => {
    const bytes = files.contents(path)
    bytes.fill(0, from, to)
    files.setContents(path, bytes)
    return { from, to: Math.min(to, bytes.length) }
  }

const remove: Damage = (files, path) => {
  const { length } = files.contents(path)
  files.unlink(path)
  return { from: 0, to: length }
}

const unreadable: Damage = (files, path) => {
  const { length } = files.contents(path)
  files.failReads(path)
  return { from: 0, to: length }
}

const DAMAGES: readonly (readonly [string, Damage])[] = [
  ['a flip in the magic', flipAt(3)],
  ['a flip in the job id', flipAt(20)],
  ['a flip in the salt', flipAt(37)],
  ['a flip behind the header', flipAt(66)],
  ['a flip at a quarter', flip(0.25)],
  ['a flip at a half', flip(0.5)],
  ['a flip at two thirds', flip(0.66)],
  ['a flip in the last byte', flip(1)],
  ['cut at a third', truncate(0.33)],
  ['cut at two thirds', truncate(0.66)],
  ['cut short by a little', truncate(0.995)],
  ['made empty', truncate(0)],
  ['zeros in front', zero(0, 100)],
  ['removed', remove],
  ['an unreadable device', unreadable],
]

interface Case {
  readonly env: World
  readonly report: RepairReport
  readonly after: Snapshot
  readonly from: number
  readonly to: number
}

async function damaged(path: string, damage: Damage): Promise<Case> {
  const env = killed(healthy)
  const { from, to } = damage(env.files, path)
  // Reading is how the test looks at the damaged directory too: not while the device fails.
  const report = damage === unreadable ? await repairDirectory(JOB, NEW, env, { tuning: TINY }) : await repair(env)
  env.files.clearFaults()
  expect(report.problems.map((problem) => problem.path)).toContain(path)
  expect((await verifyDirectory(NEW, env)).ok).toBe(true)
  return { env, report, after: await snapshot(env, NEW), from, to }
}

const byId = <T extends { readonly id: number }>(list: readonly T[]): Map<number, T> =>
  new Map(list.map((one) => [one.id, one]))

interface Told {
  readonly id: number
  readonly url: string
}

const jobUrl = (job: { readonly id: number }): string => {
  const { url, payload } = job as unknown as { url?: string; payload?: { url: string } }
  return url ?? payload?.url ?? ''
}

/** Jobs of the undamaged job that did not come through; those that did have kept everything. */
function missingAfter(after: Snapshot): Told[] {
  const [jobs, dead] = [byId(after.jobs), byId(after.dead)]
  const missing: Told[] = []
  for (const job of original.jobs) {
    const found = jobs.get(job.id)
    if (found === undefined) missing.push({ id: job.id, url: jobUrl(job) })
    else expect(found).toEqual(job)
  }
  for (const letter of original.dead) {
    const found = dead.get(letter.id)
    if (found === undefined) missing.push({ id: letter.id, url: jobUrl(letter) })
    else expect(found).toEqual(letter)
  }
  return missing
}

describe.each(filesOf('segment'))('segment %s', (path) => {
  test.each(DAMAGES)('%s', async (_, damage) => {
    const { report, after, from, to } = await damaged(path, damage)
    const missing = missingAfter(after)
    const atRisk = endangered(path, from, to)
    for (const job of missing) expect(atRisk, `job ${job.id} was elsewhere`).toContain(job.url)
    expect(report.lost.records).toBe(missing.length)
    expect(report.guessed).toEqual([])
    // Nothing comes back, and the rest is as it was, order included.
    const gone = new Set(missing.map((job) => job.id))
    expect(after.jobs).toEqual(original.jobs.filter((job) => !gone.has(job.id)))
    expect(after.dead).toEqual(original.dead.filter((letter) => !gone.has(letter.id)))
    expect(after.seen).toEqual(original.seen)
    expect(after.rest).toMatchObject({ state: (original.rest as { state: object }).state })
  })
})

test('a header without its salt costs nothing: it follows from the checksums', async () => {
  for (const path of [...filesOf('segment'), ...filesOf('journal'), ...filesOf('run')]) {
    const { report, after } = await damaged(path, zero(32, 44))
    expect(report.lost, path).toEqual({ records: 0, bytes: 0 })
    expect(after, path).toEqual(original)
  }
})

describe.each(filesOf('run'))('seen-set run %s', (path) => {
  test.each(DAMAGES)('%s', async (_, damage) => {
    const { report, after, from, to } = await damaged(path, damage)
    // Jobs are not in it.
    expect(after.jobs).toEqual(original.jobs)
    expect(after.dead).toEqual(original.dead)
    expect(report.lost.records).toBe(0)
    const pages = [...keysByPage(healthy.files.contents(path))].filter(([page]) => page < to && page + 4096 > from)
    const lostMost = pages.reduce((sum, [, count]) => sum + count, 0)
    const seen = new Set(after.seen)
    const lost = original.seen.filter((url) => !seen.has(url))
    expect(lost.length).toBeLessThanOrEqual(lostMost)
    // What waits is seen, whatever became of the run.
    for (const job of original.jobs) if (original.seen.includes(jobUrl(job))) expect(seen).toContain(jobUrl(job))
    if (lostMost === 0) {
      expect(after).toEqual(original)
      expect(report.guessed).toEqual([])
    } else expect(report.guessed.join()).toMatch(/seen-set/)
  })
})

/** Offset of each page of keys, and how many it holds. */
function keysByPage(bytes: Buffer): Map<number, number> {
  const pages = new Map<number, number>()
  for (let at = 4096; at + 4096 <= bytes.length; at += 4096) {
    if (bytes.readUInt32LE(at + 4080) !== at / 4096 - 1) break
    pages.set(at, bytes.readUInt32LE(at + 4084))
  }
  return pages
}

describe.each(filesOf('journal'))('journal %s', (path) => {
  test.each(DAMAGES)('%s', async (_, damage) => {
    const { report, after, from, to } = await damaged(path, damage)
    const [jobs, dead] = [byId(after.jobs), byId(after.dead)]
    const atRisk = endangered(path, from, to)
    for (const job of [...original.jobs, ...original.dead]) {
      if (!atRisk.has(jobUrl(job))) expect(jobs.has(job.id) || dead.has(job.id), `job ${job.id}`).toBe(true)
    }
    const header = { from: Math.min(from, 64), to: Math.min(to, 64) }
    if (header.from < header.to && to <= 64) expect(after).toEqual(original)
    else if (report.lost.bytes > 0) expect(report.problems.some(({ offset }) => offset !== undefined)).toBe(true)
    // What is in the runs and in the other journals is seen still, and no less.
    const seen = new Set(after.seen)
    const known = [...after.jobs, ...after.dead].map(jobUrl)
    for (const url of known) if (original.seen.includes(url)) expect(seen).toContain(url)
    for (const url of urls('m', 20, 320)) expect(seen).toContain(url)
  })
})

describe.each(filesOf('json'))('%s', (path) => {
  test.each(DAMAGES)('%s', async (_, damage) => {
    const { report, after } = await damaged(path, damage)
    // Finished jobs may come back; nothing that was there is gone, or changed.
    expect(missingAfter(after)).toEqual([])
    expect(report.lost).toEqual({ records: 0, bytes: 0 })
    expect(report.guessed).toHaveLength(1)
    const ids = new Set([...original.jobs, ...original.dead].map((job) => job.id))
    expect(after.jobs.filter((job) => ids.has(job.id))).toEqual(original.jobs)
    expect(after.seen).toEqual(original.seen)
    expect((after.rest as { state: object }).state).toEqual((original.rest as { state: object }).state)
  })
})

describe('without active.json', () => {
  const gone = (env: World) => env.files.unlink(`${JOB}/requests.queue/active.json`)

  test('the order is what the caller says', async () => {
    const env = await makeJob('lifo')
    const before = await snapshot(env, JOB)
    gone(env)
    const report = await repair(env, { order: 'lifo' })
    expect(report.guessed).toEqual([expect.stringMatching(/frontier of order 'lifo'/)])
    const after = await snapshot(env, NEW)
    expect(after.jobs).toEqual(before.jobs)
    expect(after.dead).toEqual(before.dead)
    expect(after.seen).toEqual(before.seen)
  })

  test('jobs without fingerprints make a queue', async () => {
    const env = simEnv({ seed: 3 })
    const queue = await openQueue<number>(JOB, { env, ...OPTIONS })
    await queue.push(1)
    await queue.close()
    gone(env)
    expect((await repair(env)).guessed).toEqual([expect.stringMatching(/queue of order 'fifo'/)])
    await (await openQueue(NEW, { env, ...OPTIONS })).close()
  })
})

describe('refused, with nothing written', () => {
  const refusal = async (env: World, directory: string, target: string): Promise<string | undefined> => {
    const before = env.files.mutations
    const error = await repairDirectory(directory, target, env).catch((thrown: unknown) => thrown)
    expect(env.files.mutations).toBe(before)
    return errorCode(error)
  }

  test('no job there', async () => {
    expect(await refusal(simEnv({ seed: 1 }), '/nothing', NEW)).toBe('HOLDFAST_NOT_FOUND')
  })

  test('a new directory that is not empty', async () => {
    const env = killed(healthy)
    env.files.setContents(`${NEW}/notes.txt`, Buffer.from('mine'))
    expect(await refusal(env, JOB, NEW)).toBe('HOLDFAST_MISMATCH')
  })

  test.each([JOB, `${JOB}/`, `${JOB}/repaired`, `${JOB}/../job/x`])(
    'a new directory inside the damaged one: %s',
    async (target) => {
      expect(await refusal(killed(healthy), JOB, target)).toBe('HOLDFAST_MISMATCH')
    },
  )

  test.each(['journal', 'segment', 'run'])('a %s of a newer format', async (kind) => {
    const env = killed(healthy)
    const [path] = filesOf(kind)
    const bytes = env.files.contents(path)
    const { crc32 } = await import('../../src/bytes/crc32.js')
    bytes.writeUInt32LE(2, 8)
    const end = bytes.readUInt32LE(12) - 4
    bytes.writeUInt32LE(crc32(bytes.subarray(0, end), 0x48464c44), end)
    env.files.setContents(path, bytes)
    expect(await refusal(env, JOB, NEW)).toBe('HOLDFAST_UNSUPPORTED_FORMAT')
  })
})

test('an existing empty directory is used, and a full disk leaves the damaged job alone', async () => {
  const env = killed(healthy)
  env.files.makeDirectory(NEW)
  const before = contentsUnder(env.files, JOB)
  env.files.capacityBytes = env.files.usedBytes + 3000
  await expect(repairDirectory(JOB, NEW, env, { tuning: TINY })).rejects.toMatchObject({ code: 'HOLDFAST_DISK_FULL' })
  expect(contentsUnder(env.files, JOB)).toEqual(before)
  expect(env.files.openHandles()).toBe(0)
})
