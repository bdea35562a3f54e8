/**
 * Damages each file of one job in turn and holds what a repair makes of it against the undamaged job: what does not lie in
 * the damaged part is there and unchanged, the damage is named, and the damaged directory is left alone.
 */
import { describe, expect, test } from 'vitest'
import { type RepairReport, repairDirectory } from '../../src/engine/repair.js'
import { verifyDirectory } from '../../src/engine/verify.js'
import type { FileSystem } from '../../src/env/file-system.js'
import { simEnv } from '../../src/env/sim-env.js'
import type { SimFileSystem } from '../../src/env/sim-file-system.js'
import { openFrontier } from '../../src/frontier/frontier.js'
import { decodeFileHeader, JOURNAL_MAGIC, SEGMENT_MAGIC } from '../../src/store/format.js'
import { readFrame } from '../../src/store/frame.js'
import {
  JOB,
  killed,
  makeJob,
  NEW,
  OPTIONS,
  repair,
  type Snapshot,
  snapshot,
  UNIVERSE,
  urls,
  type World,
} from './repair-support.js'

const healthy = await makeJob()
const original = await snapshot(healthy, JOB)
/** Every file of the job but those that hold nothing of it. */
const FILES = healthy.files.allFiles().filter((path) => path.startsWith(JOB) && !path.endsWith('/reserve'))
const kindOf = (path: string): string =>
  path.endsWith('.log') ? 'journal' : /\/q\d+$/.test(path) ? 'segment' : /\/r\d+$/.test(path) ? 'run' : 'json'
const filesOf = (kind: string): string[] => FILES.filter((path) => kindOf(path) === kind)

test('the job has what the tests below need', () => {
  expect(filesOf('journal').length).toBeGreaterThanOrEqual(3)
  for (const bucket of ['0', '-5', 'dead', 'delayed']) {
    expect(filesOf('segment').filter((path) => path.includes(`/${bucket}/`)).length, bucket).toBeGreaterThan(0)
  }
  expect(filesOf('run').length).toBeGreaterThan(0)
  expect(filesOf('run').some((path) => healthy.files.contents(path).length > 3 * 4096)).toBe(true)
  expect(original.dead.length).toBeGreaterThan(12)
  expect(original.jobs.length).toBeGreaterThan(100)
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

/** For files in which one place is like another. */
const SOME_DAMAGES = DAMAGES.filter(([name]) => /half|third$|empty|removed|unreadable/.test(name))

/** One segment of each kind sees everything, the others the worst. */
function thorough(path: string): boolean {
  const isOf = (name: string): boolean => ['/-5/', '/dead/', '/delayed/'].some((bucket) => name.includes(bucket))
  const before = filesOf('segment').filter((name) => name < path)
  return isOf(path) && !before.some((name) => name.split('/').at(-2) === path.split('/').at(-2))
}

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
  const report = damage === unreadable ? await repairDirectory(JOB, NEW, env) : await repair(env)
  env.files.clearFaults()
  // That there was a journal behind the last one, only a clean stop writes down.
  const isGone = !env.files.exists(path) || env.files.contents(path).length === 0
  const untold = path === filesOf('journal').at(-1) && isGone
  if (!untold) expect(report.problems.map((problem) => problem.path)).toContain(path)
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
  test.each(thorough(path) ? DAMAGES : SOME_DAMAGES)('%s', async (_, damage) => {
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
    expect(after.rest).toMatchObject({ state: original.rest.state })
  })
})

test('a header without its salt costs nothing: it follows from the checksums', async () => {
  for (const path of [...filesOf('segment'), ...filesOf('journal'), ...filesOf('run')]) {
    const { report, after } = await damaged(path, zero(32, 44))
    expect(report.lost, path).toEqual({ records: 0, bytes: 0 })
    expect(after, path).toEqual(original)
  }
})

test('a journal of one batch gives its salt away as well', async () => {
  const env = simEnv({ seed: 2 })
  await openFrontier(JOB, { env, ...OPTIONS })
  const copy = killed(env)
  const path = `${JOB}/requests.queue/journal/00000001.log`
  expect(framesOf(copy.files.contents(path))).toHaveLength(1)
  copy.files.corrupt(path, 38, 1)
  const report = await repair(copy)
  expect(report.lost).toEqual({ records: 0, bytes: 0 })
  expect(report.problems).toEqual([expect.objectContaining({ path, offset: 0 })])
})

describe('a journal cut at the edge of a batch', () => {
  const cutLast = (env: World, path: string): number => {
    const { at } = framesOf(env.files.contents(path)).at(-1) as { at: number }
    env.files.setContents(path, env.files.contents(path).subarray(0, at))
    return at
  }

  test('after a clean stop: active.json says how far it went', async () => {
    const env = killed(healthy)
    await (await openFrontier(JOB, { env, ...OPTIONS })).close()
    const path = env.files
      .allFiles()
      .filter((name) => name.endsWith('.log'))
      .at(-1) as string
    cutLast(env, path)
    const report = await repair(env)
    expect(report.problems).toEqual([{ path, message: expect.stringMatching(/^batch \d+ is gone$/) }])
    expect(report.guessed).toHaveLength(1)
  })

  test('before another journal: its header says so, even if nothing else of it is left', async () => {
    const env = killed(healthy)
    const [before, path] = filesOf('journal').slice(-2)
    cutLast(env, before)
    env.files.setContents(path, env.files.contents(path).subarray(0, 64))
    const report = await repair(env)
    expect(report.problems).toEqual([{ path: before, message: expect.stringMatching(/^batch \d+ is gone$/) }])
    expect(report.guessed).toHaveLength(1)
  })
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
    expect(seen).not.toContain('http://a.test/page/29')
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
    const frames = framesOf(healthy.files.contents(path))
    const isTold = report.guessed.some((sentence) => sentence.includes('the journal is lost'))
    if (frames.some(({ at, end }) => at < to && end > from) && frames.some(({ at }) => at > to))
      expect(isTold).toBe(true)
    // What is in the runs and in the other journals is seen still, and no less.
    const seen = new Set(after.seen)
    const known = [...after.jobs, ...after.dead].map(jobUrl)
    for (const url of known) if (original.seen.includes(url)) expect(seen).toContain(url)
    for (const url of urls('m', 20, 280)) expect(seen).toContain(url)
  })
})

describe.each(filesOf('json'))('%s', (path) => {
  test.each(SOME_DAMAGES)('%s', async (_, damage) => {
    const { report, after } = await damaged(path, damage)
    // Finished jobs may come back; nothing that was there is gone, or changed.
    expect(missingAfter(after)).toEqual([])
    expect(report.lost).toEqual({ records: 0, bytes: 0 })
    expect(report.guessed).toHaveLength(1)
    const ids = new Set([...original.jobs, ...original.dead].map((job) => job.id))
    expect(after.jobs.filter((job) => ids.has(job.id))).toEqual(original.jobs)
    expect(after.seen).toEqual(original.seen)
    expect(after.rest.state).toEqual(original.rest.state)
  })
})

describe('what is saved from more than one place', () => {
  const journalsOf = (env: World): string[] => env.files.allFiles().filter((path) => path.endsWith('.log'))
  const segmentsOf = (env: World): string[] => env.files.allFiles().filter((path) => /\/q\d+$/.test(path))

  test('a job whose carried copy is lost comes from its old segment, as later records have it', async () => {
    const env = simEnv({ seed: 2 })
    const frontier = await openFrontier(JOB, { env, ...OPTIONS })
    await frontier.add(urls('a', 0, 30))
    await frontier.checkpoint()
    const visits = await frontier.take({ max: 3 })
    await frontier.checkpoint()
    await visits[0].ack()
    await visits[1].retry({ reason: 'again' })
    const copy = killed(env)
    expect(segmentsOf(copy).length).toBeGreaterThan(0)
    const [journal] = journalsOf(copy)
    const [first] = framesOf(copy.files.contents(journal))
    expect(copy.files.contents(journal).includes('http://a.test/page/1')).toBe(true)
    copy.files.corrupt(journal, first.at + 40, 1)
    const report = await repair(copy)
    expect(report.problems).toEqual([
      expect.objectContaining({ path: journal, offset: first.at, message: expect.stringMatching(/batch \d+ is gone/) }),
    ])
    const after = await snapshot(copy, NEW)
    // The third as well: the mark that it was handed out rode along.
    expect(after.jobs.map((job) => job.id)).toEqual(Array.from({ length: 29 }, (_, i) => i + 2))
    expect(after.jobs[0]).toMatchObject({ id: 2, attempt: 2, failures: 1, lastReason: 'again' })
  })

  test('of two copies of a job the newer counts, and no job comes twice', async () => {
    const env = simEnv({ seed: 2 })
    const frontier = await openFrontier(JOB, { env, ...OPTIONS })
    await frontier.add(urls('a', 0, 30))
    await frontier.checkpoint()
    for (const visit of await frontier.take({ max: 8 })) await visit.retry({ reason: 'again' })
    await frontier.checkpoint()
    const copy = killed(env)
    const before = await snapshot(copy, JOB)
    expect(segmentsOf(copy).filter((path) => copy.files.contents(path).includes('http://a.test/page/7')).length).toBe(2)
    copy.files.unlink(`${JOB}/requests.queue/0/info.json`)
    await repair(copy)
    expect((await snapshot(copy, NEW)).jobs).toEqual(before.jobs)
  })

  test('a journal that is there twice counts once', async () => {
    const env = killed(healthy)
    const journals = filesOf('journal')
    const [first] = journals
    const next = 1 + Number.parseInt(journals[journals.length - 1].split('/').at(-1) as string, 10)
    const stray = first.replace(/\d+\.log/, `${String(next).padStart(8, '0')}.log`)
    env.files.setContents(stray, env.files.contents(first))
    const report = await repair(env)
    expect(
      report.problems
        .filter(({ path }) => path === stray)
        .map(({ message }) => message)
        .join('\n'),
    ).toMatch(/under another name[\s\S]*again: left out/)
    const after = await snapshot(env, NEW)
    expect({ ...after, rest: {} }).toEqual({ ...original, rest: {} })
  })

  test('records about a job whose content is gone are counted', async () => {
    const env = simEnv({ seed: 2 })
    const frontier = await openFrontier(JOB, { env, ...OPTIONS })
    await frontier.add(urls('a', 0, 5))
    const visits = await frontier.take({ max: 3 })
    await visits[0].ack()
    await visits[1].retry({ reason: 'again' })
    await visits[2].bury()
    const copy = killed(env)
    const [journal] = journalsOf(copy)
    const add = framesOf(copy.files.contents(journal))[1]
    copy.files.corrupt(journal, add.end - 1, 1)
    const report = await repair(copy)
    expect(report.jobs).toEqual({ ready: 0, delayed: 0, dead: 0 })
    expect(report.lost).toEqual({ records: 2, bytes: add.end - add.at })
    expect(report.problems.map(({ message }) => message).join('\n')).toMatch(/2 jobs whose content is gone \(2, 3\)/)
  })

  test('a segment of many blocks loses the damaged one, with or without its footer', async () => {
    const env = simEnv({ seed: 2 })
    const tuning = { ...OPTIONS.tuning, segmentBytes: 1_000_000, journalBytes: 1_000_000 }
    const frontier = await openFrontier(JOB, { env, ...OPTIONS, tuning })
    await frontier.add(urls('a', 0, 300), { meta: { filler: 'x'.repeat(400) } })
    await frontier.checkpoint()
    for (const visit of await frontier.take({ max: 10 })) await visit.ack()
    await frontier.close()
    const [path] = segmentsOf(env)
    const frames = framesOf(env.files.contents(path))
    expect(frames.length).toBeGreaterThan(6)
    const [, , third] = frames
    const bytes = env.files.contents(path).latin1Slice(third.at, third.end)
    const inThird = urls('a', 0, 300).filter((url) => new RegExp(`${url}(?!\\d)`).test(bytes))
    const kept = urls('a', 10, 300).filter((url) => !inThird.includes(url))

    for (const length of [env.files.contents(path).length, (frames.at(-1) as { at: number }).at]) {
      const copy = killed(env)
      copy.files.setContents(path, copy.files.contents(path).subarray(0, length))
      copy.files.corrupt(path, third.at + 500, 1)
      const report = await repair(copy)
      expect(report.lost).toEqual({ records: inThird.length, bytes: third.end - third.at })
      expect(report.problems).toContainEqual(expect.objectContaining({ path, offset: third.at }))
      const after = await snapshot(copy, NEW)
      expect(after.jobs.map(jobUrl)).toEqual(kept)
    }
  })

  test('an unreadable spot of the device costs that spot', async () => {
    const env = simEnv({ seed: 2 })
    const tuning = { ...OPTIONS.tuning, segmentBytes: 1_000_000, journalBytes: 1_000_000 }
    const frontier = await openFrontier(JOB, { env, ...OPTIONS, tuning })
    await frontier.add(urls('a', 0, 300), { meta: { filler: 'x'.repeat(400) } })
    await frontier.checkpoint()
    await frontier.close()
    const [path] = segmentsOf(env)
    const [, second] = framesOf(env.files.contents(path))
    const spot = Math.ceil(second.at / 4096) * 4096
    expect(spot + 4096).toBeLessThanOrEqual(second.end)
    const report = await repairDirectory(JOB, NEW, { ...env, files: withBadSpot(env.files, path, spot) })
    expect(report.problems).toContainEqual(expect.objectContaining({ path, offset: spot }))
    expect(report.problems).toContainEqual(expect.objectContaining({ path, offset: second.at }))
    expect(report.lost.bytes).toBe(second.end - second.at)
    expect(report.lost.records).toBeGreaterThan(10)
    expect(report.jobs.ready).toBe(300 - report.lost.records)
  })

  test('a file that must not be read stops the repair before anything is written', async () => {
    const env = killed(healthy)
    env.files.failReads(filesOf('segment')[0], 'EACCES')
    const before = env.files.mutations
    await expect(repairDirectory(JOB, NEW, env)).rejects.toMatchObject({ code: 'HOLDFAST_IO' })
    expect(env.files.mutations).toBe(before)
    expect(env.files.openHandles()).toBe(0)
  })
})

/** Reading `path` fails wherever the 4096 bytes at `spot` are part of it. */
function withBadSpot(files: SimFileSystem, path: string, spot: number): FileSystem {
  const open: FileSystem['open'] = (name, mode) => {
    const handle = files.open(name, mode)
    if (name !== path) return handle
    return new Proxy(handle, {
      get(target, key) {
        if (key !== 'read') return Reflect.get(target, key, target).bind?.(target) ?? Reflect.get(target, key, target)
        return (into: Uint8Array, position: number) => {
          if (position < spot + 4096 && position + into.length > spot)
            throw Object.assign(new Error('EIO'), { code: 'EIO' })
          return target.read(into, position)
        }
      },
    })
  }
  return new Proxy(files, {
    get: (target, key) => (key === 'open' ? open : Reflect.get(target, key, target).bind?.(target)),
  })
}
