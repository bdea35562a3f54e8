/** The queue of any payloads: the same engine without URLs, slots and a seen-set. */
import { describe, expect, test } from 'vitest'
import { SimClock } from '../../src/env/sim-clock.js'
import { simEnv } from '../../src/env/sim-env.js'
import { openQueue, type Queue } from '../../src/frontier/queue.js'
import type { StoreOptions } from '../../src/frontier/types.js'
import { closeChecked, TINY } from '../support/checked.js'

const DIRECTORY = '/queue'

async function open(env = simEnv({ seed: 1 }), options: StoreOptions = {}) {
  const queue = await openQueue<unknown>(DIRECTORY, { env, tuning: TINY, ...options })
  return { env, queue, close: () => closeChecked(queue, env, DIRECTORY) }
}

async function payloads(queue: Queue<unknown>): Promise<unknown[]> {
  return (await queue.take({ max: 1000 })).map((job) => job.payload)
}

describe('queue', () => {
  test('any payload, falsy ones too, comes back in order after a kill and a checkpoint', async () => {
    const { env, queue } = await open()
    const all = [0, '', false, null, undefined, Number.NaN, [], {}, new Map(), 'x'.repeat(1000), { deep: [undefined] }]
    for (const payload of all) expect(await queue.push(payload)).toMatchObject({ added: 1, duplicates: 0 })
    await queue.checkpoint()
    const files = env.files.crash({ seed: 1, unsynced: 'kept' })
    const again = await open(simEnv({ seed: 2, files, clock: new SimClock({ wallMs: env.clock.now() }) }))
    expect(await payloads(again.queue)).toEqual(all)
    await again.close()
  })

  test('equal payloads are different jobs', async () => {
    const { queue, close } = await open()
    await queue.pushAll(['same', 'same'])
    expect(await payloads(queue)).toEqual(['same', 'same'])
    await close()
  })

  test('pushAll of iterables, with priority and delay', async () => {
    const { env, queue, close } = await open()
    async function* later(): AsyncGenerator<string> {
      yield 'c'
      yield 'd'
    }
    expect(await queue.pushAll(['a', 'b'])).toEqual({ added: 2, duplicates: 0, memoryOnly: 0, invalid: 0 })
    await queue.pushAll(later(), { priority: 5 })
    await queue.push('e', { notBefore: env.clock.now() + 1000 })
    expect(await queue.pushAll([])).toMatchObject({ added: 0 })
    expect(await payloads(queue)).toEqual(['c', 'd', 'a', 'b'])
    await env.clock.advance(1000)
    expect(await payloads(queue)).toEqual(['e'])
    await close()
  })

  test.each([{ priority: 0.5 }, { priority: Number.NaN }, { notBefore: -1 }, { notBefore: Infinity }])(
    'push with %o is refused',
    async (options) => {
      const { queue, close } = await open()
      await expect(queue.push('x', options)).rejects.toThrow(TypeError)
      await expect(queue.pushAll(['x'], options)).rejects.toThrow(TypeError)
      expect((await queue.stats()).ready).toBe(0)
      await close()
    },
  )

  test('lifo', async () => {
    const { env, queue, close } = await open(undefined, { order: 'lifo' })
    await queue.pushAll(Array.from({ length: 50 }, (_, i) => i))
    await queue.checkpoint()
    await queue.push(50)
    await close()
    const again = await open(env)
    expect(await payloads(again.queue)).toEqual(Array.from({ length: 51 }, (_, i) => 50 - i))
    await again.close()
  })

  test('work acks, retries and buries; jobs come one after the other', async () => {
    const { env, queue, close } = await open()
    await queue.pushAll([1, 2, 3])
    const working = queue.work(
      (job) => {
        if (job.payload === 2) throw new Error('not this one')
        return { state: { last: job.payload } }
      },
      { retries: 1, backoff: () => 10 },
    )
    await env.clock.advance(100)
    await working
    const { counters, dead } = await queue.stats()
    expect([counters.acked, counters.retried, dead, queue.state('last')]).toEqual([2, 1, 1, 3])
    await queue.requeue()
    const got: unknown[] = []
    for await (const job of queue.jobs()) {
      got.push(job.payload)
      await job.ack()
    }
    expect(got).toEqual([2])
    await close()
  })
})
