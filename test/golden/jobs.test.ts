/**
 * Whole directories of format 1, made once and kept: copied to a real disk they open, and hold exactly what is written
 * down of them. Their journals, and those that today's engine writes, come out of the format's own encoder byte for byte.
 */
import { cpSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, describe, expect, test } from 'vitest'
import { annotateJournal, annotateJson, annotateSegment } from '../../fixtures/formats/annotate.js'
import {
  AFTER_DUE,
  buildFrontier,
  buildQueue,
  DIRECTORY,
  type FrontierMeaning,
  NOW,
  type QueueMeaning,
  readFrontier,
  readQueue,
  readReady,
} from '../../fixtures/formats/job-fixture.js'
import { decodeJournal, encodeJournal } from '../../fixtures/formats/journal-fixture.js'
import { verifyDirectory } from '../../src/engine/verify.js'
import type { Env } from '../../src/env/env.js'
import { nodeEnv } from '../../src/env/node-env.js'
import { SimClock } from '../../src/env/sim-clock.js'
import { simEnv } from '../../src/env/sim-env.js'
import type { SimFileSystem } from '../../src/env/sim-file-system.js'
import { openFrontier } from '../../src/frontier/frontier.js'
import { openQueue } from '../../src/frontier/queue.js'
import { asJson, golden, goldenFiles, goldenJson, V1 } from './fixtures.js'

const made: string[] = []

/** A copy on the real disk, removed after the test. */
function copyOf(name: string): string {
  const parent = mkdtempSync(join(tmpdir(), 'holdfast-golden-'))
  made.push(parent)
  const directory = join(parent, name)
  cpSync(V1 + name, directory, { recursive: true })
  return directory
}

afterEach(() => {
  for (const parent of made.splice(0)) rmSync(parent, { recursive: true })
})

/** The real disk under a clock that stands. */
const nodeEnvAt = (wallMs: number): Env => ({ ...nodeEnv, clock: new SimClock({ wallMs }) })

describe('job-v1', () => {
  const expected = goldenJson<FrontierMeaning>('job-v1.expected.json')

  test('opens on a real disk and holds what is written down of it', async () => {
    const { due: _due, ...now } = expected
    await using frontier = await openFrontier(copyOf('job-v1'), { env: nodeEnv })
    expect(asJson(await readFrontier(frontier))).toEqual(now)
  })

  test('holds its delayed jobs until their time, and then all of them', async () => {
    await using frontier = await openFrontier(copyOf('job-v1'), { env: nodeEnvAt(AFTER_DUE) })
    expect(asJson(await readReady(frontier))).toEqual(expected.due)
    expect(expected.due.length - expected.ready.length).toBe((expected.stats as { delayed: number }).delayed)
  })

  test('is found whole by a full check, before it is opened and after it was closed', async () => {
    const directory = copyOf('job-v1')
    const before = await verifyDirectory(directory, nodeEnv)
    expect(before).toMatchObject({ ok: true, problems: [], kind: 'frontier', order: 'fifo', tornBytes: 0 })
    const { leases } = expected.recovery as { leases: number }
    const { ready, delayed, dead } = expected.stats as Record<string, number>
    expect(before.jobs).toEqual({ ready: ready - leases, leased: leases, delayed, dead })
    await (await openFrontier(directory, { env: nodeEnv })).close()
    expect(await verifyDirectory(directory, nodeEnv)).toMatchObject({
      ok: true,
      jobs: { ready, leased: 0, delayed, dead },
    })
  })

  test('has files of every kind', () => {
    const names = goldenFiles('job-v1')
    const kinds = new Set(names.map((name) => name.replace(/\d+(\.log)?$/, '#$1').replace(/-?\d+(s?)\//, '#$1/')))
    expect([...kinds].sort()).toEqual([
      'dead/info.json',
      'dead/q#',
      'requests.queue/#/info.json',
      'requests.queue/#/q#',
      'requests.queue/#s/info.json',
      'requests.queue/#s/q#',
      'requests.queue/active.json',
      'requests.queue/delayed/info.json',
      'requests.queue/delayed/q#',
      'requests.queue/journal/#.log',
      'requests.queue/reserve',
      'requests.seen/r#',
    ])
    expect(names.filter((name) => name.endsWith('.log'))).toHaveLength(2)
  })
})

describe('queue-v1', () => {
  test('opens on a real disk and holds what is written down of it', async () => {
    await using queue = await openQueue<unknown>(copyOf('queue-v1'), { env: nodeEnv })
    expect(asJson(await readQueue(queue))).toEqual(goldenJson<QueueMeaning>('queue-v1.expected.json'))
  })

  test('is found whole by a full check', async () => {
    const report = await verifyDirectory(copyOf('queue-v1'), nodeEnv)
    expect(report).toMatchObject({ ok: true, problems: [], kind: 'queue', order: 'lifo' })
  })
})

describe('every file of a directory reads as the document says', () => {
  test.each(['job-v1', 'queue-v1'])('%s', (name) => {
    for (const file of goldenFiles(name)) {
      const bytes = golden(`${name}/${file}`)
      // A queue's payloads are not a frontier's: only the frames around them are told by the annotator.
      if (file.endsWith('.json')) expect(annotateJson(bytes)).toContain('right')
      else if (name === 'job-v1' && file.endsWith('.log')) expect(annotateJournal(bytes)).toContain('batch')
      else if (name === 'job-v1' && /\/q\d+$/.test(file)) expect(annotateSegment(bytes)).toContain('trailer')
    }
  })
})

describe('what the engine writes', () => {
  /** The engine encodes records where it makes them; this is the only thing that ties its bytes to the encoder above. */
  test.each([
    ['the golden frontier', () => goldenFiles('job-v1').map((file) => golden(`job-v1/${file}`))],
    ['a frontier of today', async () => contentsOf(await buildFrontier())],
  ])('%s: each journal is what the format encodes it to', async (_name, load) => {
    const journals = (await load()).filter((bytes) => bytes.toString('latin1', 0, 8) === 'HFJRNL\r\n')
    expect(journals).toHaveLength(2)
    for (const bytes of journals) {
      const { meaning } = decodeJournal(bytes)
      const again = await encodeJournal(meaning)
      expect(again.toString('hex')).toBe(bytes.toString('hex'))
    }
  })

  test('the same seed and the same calls give the same bytes', async () => {
    for (const build of [buildFrontier, buildQueue]) {
      const [one, two] = [await build(), await build()]
      expect(one.allFiles()).toEqual(two.allFiles())
      for (const path of one.allFiles()) expect(one.contents(path), path).toEqual(two.contents(path))
    }
  })

  test('the calls that made the golden directories give a store of the same content today', async () => {
    const clock = (): SimClock => new SimClock({ wallMs: NOW + 7_200_000 })
    const { due: _due, ...now } = goldenJson<FrontierMeaning>('job-v1.expected.json')
    const frontier = await openFrontier(DIRECTORY, {
      env: simEnv({ seed: 3, files: await buildFrontier(), clock: clock() }),
    })
    // How many frames and files it takes is not part of the format.
    expect(asJson(await readFrontier(frontier))).toEqual({ ...now, recovery: expect.anything() })
    const queue = await openQueue<unknown>(DIRECTORY, {
      env: simEnv({ seed: 3, files: await buildQueue(), clock: clock() }),
    })
    const expected = goldenJson<QueueMeaning>('queue-v1.expected.json')
    expect(asJson(await readQueue(queue))).toEqual({ ...expected, recovery: expect.anything() })
  })
})

function contentsOf(files: SimFileSystem): Buffer[] {
  return files.allFiles().map((path) => files.contents(path))
}
