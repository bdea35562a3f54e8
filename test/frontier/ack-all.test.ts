/** Many leases ended in one commit: all of them or none. */
import { expect, test } from 'vitest'
import { SimClock } from '../../src/env/sim-clock.js'
import { simEnv } from '../../src/env/sim-env.js'
import { openQueue } from '../../src/frontier/queue.js'
import type { StoreOptions } from '../../src/frontier/types.js'
import { closeChecked, TINY } from '../support/checked.js'

async function open(env = simEnv({ seed: 1 }), options: StoreOptions = {}) {
  const queue = await openQueue<unknown>('/queue', { env, tuning: TINY, ...options })
  return { env, queue, close: () => closeChecked(queue, env, '/queue') }
}

test('ends every lease, with the state that belongs to it, and a kill brings none back', async () => {
  const { env, queue } = await open()
  await queue.pushAll(Array.from({ length: 50 }, (_, i) => i))
  const jobs = await queue.take({ max: 30 })
  await queue.ackAll([...jobs, jobs[0]], { state: { done: 30 } })
  expect(jobs.every((job) => !job.live)).toBe(true)
  const files = env.files.crash({ seed: 1, unsynced: 'kept' })
  const again = await open(simEnv({ seed: 2, files, clock: new SimClock({ wallMs: env.clock.now() }) }))
  expect(again.queue.state('done')).toBe(30)
  expect((await again.queue.stats()).counters.acked).toBe(30)
  const left = await again.queue.take({ max: 100 })
  expect(left.map((job) => job.payload)).toEqual(Array.from({ length: 20 }, (_, i) => i + 30))
  await again.close()
})

test('one that is over already: refused, and none is ended', async () => {
  const { queue, close } = await open()
  await queue.pushAll([1, 2, 3])
  const jobs = await queue.take({ max: 3 })
  await jobs[1].ack()
  await expect(queue.ackAll(jobs)).rejects.toMatchObject({ code: 'HOLDFAST_STALE_LEASE' })
  expect(jobs.map((job) => job.live)).toEqual([true, false, true])
  await queue.ackAll([jobs[0], jobs[2]])
  expect((await queue.stats()).counters.acked).toBe(3)
  await close()
})

test('one that ran out meanwhile: refused, and the others stay leased', async () => {
  const { env, queue, close } = await open(undefined, { leaseMs: 1000 })
  await queue.pushAll([1, 2])
  const jobs = await queue.take({ max: 2 })
  jobs[0].extend(5000)
  await env.clock.advance(2000)
  await expect(queue.ackAll(jobs)).rejects.toMatchObject({ code: 'HOLDFAST_STALE_LEASE' })
  expect(jobs[0].live).toBe(true)
  await close()
})

test('state over its bound: none is ended, and all can be again', async () => {
  const { queue, close } = await open()
  await queue.pushAll([1, 2, 3])
  const jobs = await queue.take({ max: 3 })
  await expect(queue.ackAll(jobs, { state: { large: 'x'.repeat(2 ** 20) } })).rejects.toMatchObject({
    code: 'HOLDFAST_TOO_LARGE',
  })
  expect(jobs.every((job) => job.live)).toBe(true)
  expect((await queue.stats()).leased).toBe(3)
  await queue.ackAll(jobs)
  expect((await queue.stats()).counters.acked).toBe(3)
  await close()
})

test('an error of the disk: none is ended, and all can be again', async () => {
  const { env, queue, close } = await open()
  await queue.pushAll([1, 2, 3])
  const jobs = await queue.take({ max: 3 })
  env.files.failAt(0, { kind: 'EIO' })
  await expect(queue.ackAll(jobs)).rejects.toMatchObject({ code: 'HOLDFAST_IO' })
  expect(jobs.every((job) => job.live)).toBe(true)
  await queue.ackAll(jobs)
  expect((await queue.stats()).counters.acked).toBe(3)
  await close()
})

test('leases of another store are a mistake of the caller; none at all is fine', async () => {
  const { queue, close } = await open()
  const other = await open(simEnv({ seed: 3 }))
  await queue.push(1)
  await other.queue.push(1)
  const [job] = await other.queue.take()
  await expect(queue.ackAll([job])).rejects.toThrow(TypeError)
  await expect(queue.ackAll([{} as typeof job])).rejects.toThrow(TypeError)
  await queue.ackAll([])
  await queue.ackAll([], { state: { only: 'state' } })
  expect(queue.state('only')).toBe('state')
  await other.close()
  await close()
})

test('memory-only jobs too', async () => {
  const { queue, close } = await open()
  await queue.pushAll([1, () => 2])
  await queue.ackAll(await queue.take({ max: 2 }))
  expect(await queue.stats()).toMatchObject({ leased: 0, memoryOnly: 0, ready: 0 })
  await close()
})

test('pushAll with a function gives each job its own options', async () => {
  const { env, queue, close } = await open()
  const now = env.clock.now()
  const options = (n: unknown) => ({ priority: n as number, ...(n === 9 ? { notBefore: now + 1000 } : {}) })
  await queue.pushAll([1, 9, 5, 3], options)
  expect((await queue.take({ max: 9 })).map((job) => [job.payload, job.priority])).toEqual([
    [5, 5],
    [3, 3],
    [1, 1],
  ])
  expect((await queue.stats()).delayed).toBe(1)
  await expect(queue.pushAll([1, 0.5], options)).rejects.toThrow(TypeError)
  expect((await queue.stats()).counters.added).toBe(4)
  await close()
})
