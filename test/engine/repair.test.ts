/** Repair of undamaged jobs, of jobs without their manifest, and what it refuses. Damage: repair-damage.test.ts. */
import { describe, expect, test } from 'vitest'
import { crc32 } from '../../src/bytes/crc32.js'
import { repairDirectory } from '../../src/engine/repair.js'
import { simEnv } from '../../src/env/sim-env.js'
import { errorCode } from '../../src/errors.js'
import { openFrontier } from '../../src/frontier/frontier.js'
import { openQueue } from '../../src/frontier/queue.js'
import { TINY } from '../support/checked.js'
import {
  contentsUnder,
  DAY_MS,
  JOB,
  killed,
  makeJob,
  NEW,
  OPTIONS,
  repair,
  snapshot,
  urls,
  type World,
} from './repair-support.js'

const healthy = await makeJob()
const original = await snapshot(healthy, JOB)

describe('an undamaged job', () => {
  test('is repaired into an equal one', async () => {
    const env = killed(healthy)
    const report = await repair(env, { tuning: TINY })
    expect(report).toMatchObject({ lost: { records: 0, bytes: 0 }, guessed: [], problems: [], values: 2 })
    expect(await snapshot(env, NEW)).toEqual(original)
    expect(report.seen).toBe(original.rest.seenCount)
    const { ready, delayed, dead } = report.jobs
    expect(ready + delayed).toBe(original.jobs.length)
    expect(dead).toBe(original.dead.length)
  })

  test('lifo, closed in order', async () => {
    const env = await makeJob('lifo')
    const frontier = await openFrontier(JOB, { env, ...OPTIONS })
    await frontier.close()
    const before = await snapshot(env, JOB)
    expect(await repair(env, { tuning: TINY })).toMatchObject({ guessed: [], problems: [] })
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

  test('jobs of segments, as they changed since', async () => {
    const env = simEnv({ seed: 3 })
    const frontier = await openFrontier(JOB, { env, ...OPTIONS })
    await frontier.add(urls('a', 0, 30))
    await frontier.checkpoint()
    const visits = await frontier.take({ max: 4 })
    await visits[0].retry({ delayMs: 2 * DAY_MS, reason: 'later' })
    await visits[1].bury({ reason: 'no' })
    await visits[2].release()
    const copy = killed(env)
    const before = await snapshot(copy, JOB)
    expect(before.dead).toMatchObject([{ id: 2, reason: 'no', buriedAt: env.clock.now() }])
    await repair(copy)
    expect(await snapshot(copy, NEW)).toEqual(before)
  })

  test('counts and ids go on when nothing else is left', async () => {
    const env = simEnv({ seed: 3 })
    const frontier = await openFrontier(JOB, { env, ...OPTIONS })
    await frontier.add(['http://a.test/', 'http://a.test/', 'http://a.test/'])
    for (const visit of await frontier.take({ max: 5 })) await visit.ack()
    await frontier.forget('http://a.test/')
    await frontier.close()
    const before = await snapshot(env, JOB)
    expect(before.rest.counters).toMatchObject({ added: 1, duplicates: 2, acked: 1 })
    await repair(env)
    expect(await snapshot(env, NEW)).toEqual(before)
  })

  test('repaired again gives the same once more', async () => {
    const env = killed(healthy)
    await repair(env)
    await repairDirectory(NEW, '/third', env, { tuning: TINY })
    expect(await snapshot(env, '/third')).toEqual(original)
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

  test.each(['.log', '0/q', 'seen/r'])('a newer format: %s', async (part) => {
    const env = killed(healthy)
    const path = env.files.allFiles().find((name) => name.includes(part)) as string
    const bytes = env.files.contents(path)
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
