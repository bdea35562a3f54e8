/** Counts are right after every step and after every reopening; events tell what happened, when it has happened. */
import { describe, expect, test } from 'vitest'
import type { Frontier } from '../../src/frontier/frontier.js'
import type { Counters, StoreEvents } from '../../src/frontier/types.js'
import { openWorld, pages } from '../frontier/world.js'

const ZERO: Counters = {
  added: 0,
  duplicates: 0,
  acked: 0,
  retried: 0,
  buried: 0,
  requeued: 0,
  recovered: 0,
  expired: 0,
}

async function counts(frontier: Frontier): Promise<number[]> {
  const { ready, delayed, leased, dead, seen } = await frontier.stats()
  return [ready, delayed, leased, dead, seen]
}

describe('stats', () => {
  test('are right after every step', async () => {
    const world = await openWorld({ leaseMs: 1000 })
    const { frontier, env } = world
    expect(await counts(frontier)).toEqual([0, 0, 0, 0, 0])
    await frontier.add(pages('a', 0, 6))
    expect(await counts(frontier)).toEqual([6, 0, 0, 0, 6])
    await frontier.add(pages('b', 0, 2), { notBefore: env.clock.now() + 60_000 })
    expect(await counts(frontier)).toEqual([6, 2, 0, 0, 8])
    const [a, b, c, d, e] = await frontier.take({ max: 5 })
    expect(await counts(frontier)).toEqual([1, 2, 5, 0, 8])
    await a.ack({ add: ['http://c.test/', 'http://a.test/0'] })
    expect(await counts(frontier)).toEqual([2, 2, 4, 0, 9])
    await b.retry({ delayMs: 50_000 })
    expect(await counts(frontier)).toEqual([2, 3, 3, 0, 9])
    await c.bury()
    expect(await counts(frontier)).toEqual([2, 3, 2, 1, 9])
    await d.release()
    expect(await counts(frontier)).toEqual([3, 3, 1, 1, 9])
    expect(e.live).toBe(true)
    await env.clock.advance(1000)
    expect(await counts(frontier)).toEqual([4, 3, 0, 1, 9])
    await frontier.requeue()
    expect(await counts(frontier)).toEqual([5, 3, 0, 0, 9])
    await frontier.checkpoint()
    expect(await counts(frontier)).toEqual([5, 3, 0, 0, 9])
    await env.clock.advance(60_000)
    expect(await counts(frontier)).toEqual([8, 0, 0, 0, 9])
    await frontier.forget('http://c.test/')
    expect(await counts(frontier)).toEqual([8, 0, 0, 0, 8])
    const expected = { ...ZERO, added: 9, duplicates: 1, acked: 1, retried: 1, buried: 1, requeued: 1, expired: 1 }
    expect((await frontier.stats()).counters).toEqual(expected)
    await world.close()
  })

  test('counters survive kill, checkpoint and close', async () => {
    const world = await openWorld({ maxAttempts: 3, leaseMs: 1000 })
    const { frontier, env } = world
    await frontier.add([...pages('a', 0, 6), 'http://a.test/0'])
    const [a, b, c] = await frontier.take({ max: 4 })
    await a.ack({ add: ['http://a.test/1'] })
    await b.retry()
    await c.bury()
    await frontier.requeue()
    await env.clock.advance(1000)
    const expected: Counters = {
      added: 6,
      duplicates: 2,
      acked: 1,
      retried: 1,
      buried: 1,
      requeued: 1,
      recovered: 0,
      expired: 1,
    }
    expect((await frontier.stats()).counters).toEqual(expected)
    const killed = await world.dieAndReopen()
    expect((await killed.stats()).counters).toEqual(expected)
    await killed.take({ max: 2 })
    await world.env.clock.advance(5)
    const recovered = await world.dieAndReopen()
    expect((await recovered.stats()).counters).toEqual({ ...expected, recovered: 2 })
    await recovered.checkpoint()
    expect((await (await world.dieAndReopen()).stats()).counters).toEqual({ ...expected, recovered: 2 })
    expect((await (await world.closeAndReopen()).stats()).counters).toEqual({ ...expected, recovered: 2 })
    await world.close()
  })

  test('oldestReadyMs is an upper bound, and null when nothing is ready', async () => {
    const world = await openWorld()
    const { frontier, env } = world
    const oldest = async (): Promise<number | null> => (await frontier.stats()).oldestReadyMs
    expect(await oldest()).toBeNull()
    await frontier.add('http://a.test/1')
    await env.clock.advance(5000)
    await frontier.add('http://a.test/2')
    expect(await oldest()).toBe(5000)
    const visits = await frontier.take({ max: 2 })
    expect(await oldest()).toBeNull()
    await visits[1].release()
    expect(await oldest()).toBeGreaterThanOrEqual(0)
    await visits[0].release()
    expect(await oldest()).toBeGreaterThanOrEqual(5000)
    await world.close()
  })

  test('oldestReadyMs of what lies in segments', async () => {
    const world = await openWorld({ tuning: { carryBucketBytes: 0 } })
    await world.frontier.add('http://a.test/1')
    await world.env.clock.advance(5000)
    await world.frontier.checkpoint()
    await world.frontier.add('http://a.test/2')
    expect((await world.frontier.stats()).oldestReadyMs).toBe(5000)
    const frontier = await world.dieAndReopen()
    expect((await frontier.stats()).oldestReadyMs).toBe(5000)
    await world.close()
  })

  // What comes back from a lease, a delay or the dead letters is older than what a checkpoint left in memory.
  test.each(['lease', 'delay', 'dead'] as const)('oldestReadyMs of what came back from a %s', async (from) => {
    const world = await openWorld()
    const { frontier, env } = world
    await frontier.add('http://a.test/')
    const [visit] = await frontier.take()
    if (from === 'delay') await visit.retry({ delayMs: 2000 })
    if (from === 'dead') await visit.bury()
    await env.clock.advance(1000)
    await frontier.checkpoint()
    await env.clock.advance(1000)
    if (from === 'lease') await visit.release()
    if (from === 'dead') await frontier.requeue()
    expect((await frontier.stats()).ready).toBe(1)
    expect((await frontier.stats()).oldestReadyMs).toBeGreaterThanOrEqual(2000)
  })

  // While a checkpoint writes them the jobs are neither "in memory" nor in a segment for this count.
  test('oldestReadyMs while a checkpoint runs', async () => {
    const world = await openWorld({ tuning: { carryBucketBytes: 0 } })
    await world.frontier.add(pages('a', 0, 3))
    await world.env.clock.advance(1000)
    const running = world.frontier.checkpoint()
    const ages: (number | null)[] = []
    for (let turn = 0; turn < 30; turn++) {
      await Promise.resolve()
      ages.push((await world.frontier.stats()).oldestReadyMs)
    }
    await running
    await world.close()
    expect(ages.filter((age) => age === null || age < 1000)).toEqual([])
  })

  test('bytes rise and fall with what they count', async () => {
    const world = await openWorld({ tuning: { carryBucketBytes: 0 } })
    const { frontier } = world
    await frontier.add(pages('a', 0, 40))
    const before = (await frontier.stats()).bytes
    expect([before.memory > 0, before.journal > 2000, before.segments, before.seen]).toEqual([true, true, 0, 0])
    await frontier.checkpoint()
    const after = (await frontier.stats()).bytes
    expect([after.memory, after.journal < 200, after.segments > 1000, after.seen > 0]).toEqual([0, true, true, true])
    const journals = world.env.files.allFiles().filter((path) => path.includes('/journal/'))
    expect(after.journal).toBe(journals.reduce((sum, path) => sum + world.env.files.contents(path).length, 0))
    for (const visit of await frontier.take({ max: 40 })) await visit.ack()
    await frontier.checkpoint()
    expect((await frontier.stats()).bytes).toMatchObject({ memory: 0, segments: 0 })
    await world.close()
  })
})

describe('events', () => {
  type Heard = { [K in keyof StoreEvents]: [K, ...StoreEvents[K]] }[keyof StoreEvents]

  function listen(frontier: Frontier, ...names: (keyof StoreEvents)[]): Heard[] {
    const heard: Heard[] = []
    for (const name of names) frontier.on(name, (...values: unknown[]) => void heard.push([name, ...values] as Heard))
    return heard
  }

  test('tell what happened to each job', async () => {
    const world = await openWorld({ leaseMs: 1000, maxAttempts: 2 })
    const { frontier, env } = world
    const heard = listen(frontier, 'added', 'acked', 'retry', 'dead', 'expired', 'slot-paused')
    await frontier.add(pages('a', 0, 3))
    await frontier.add(pages('a', 0, 3))
    const [a, b, c] = await frontier.take({ max: 3 })
    await a.ack({ add: ['http://a.test/3', 'http://a.test/0'] })
    await b.retry({ delayMs: 10_000, reason: 'slow' })
    await c.bury({ reason: 'no' })
    await frontier.pauseSlot('b.test', 1)
    await frontier.take()
    await env.clock.advance(1000)
    expect(heard).toEqual([
      ['added', { added: 3, duplicates: 0, memoryOnly: 0, invalid: 0 }],
      ['acked', 1],
      ['added', { added: 1, duplicates: 1, memoryOnly: 0, invalid: 0 }],
      ['retry', 2, 10_000, 'slow'],
      ['dead', 3, 'no'],
      ['slot-paused', 'b.test', 1],
      ['expired', 4],
    ])
    await world.close()
  })

  test('idle when only delayed or leased jobs are left, finished when none is', async () => {
    const world = await openWorld()
    const { frontier, env } = world
    const heard = listen(frontier, 'idle', 'finished')
    await frontier.add(['http://a.test/1', 'http://a.test/2'])
    const visits = await frontier.take({ max: 2 })
    await visits[0].ack()
    expect(heard).toEqual([['idle']])
    await visits[1].retry({ delayMs: 1000 })
    expect(heard).toEqual([['idle']])
    await env.clock.advance(1000)
    const [last] = await frontier.take()
    await last.ack()
    expect(heard).toEqual([['idle'], ['finished']])
    await frontier.add('http://a.test/3')
    const [more] = await frontier.take()
    await more.ack()
    expect(heard.at(-1)).toEqual(['finished'])
    await world.close()
  })

  test('checkpoint tells its generation and segments', async () => {
    const world = await openWorld({ tuning: { carryBucketBytes: 0, segmentBytes: 1e5 } })
    const heard = listen(world.frontier, 'checkpoint')
    await world.frontier.add(pages('a', 0, 3))
    await world.frontier.add(pages('a', 3, 6), { priority: 1 })
    await world.frontier.checkpoint()
    await world.frontier.checkpoint()
    expect(heard).toMatchObject([
      ['checkpoint', { generation: 1, segments: 2 }],
      ['checkpoint', { generation: 2, segments: 0 }],
    ])
    await world.close()
  })

  test('nothing is told of what was refused', async () => {
    const world = await openWorld({ tuning: { reserveBytes: 0 } })
    const heard = listen(world.frontier, 'added', 'acked')
    await world.frontier.add('http://a.test/')
    const [visit] = await world.frontier.take()
    world.env.files.capacityBytes = world.env.files.usedBytes
    await Promise.allSettled([world.frontier.add('http://b.test/'), visit.ack()])
    expect(heard).toHaveLength(1)
    world.env.files.capacityBytes = Infinity
    await world.close()
  })

  test('a listener may add, even much, in the middle of a commit', async () => {
    const world = await openWorld({ tuning: { journalBytes: 1e8 } })
    const { frontier } = world
    await frontier.add('http://a.test/0')
    const [visit] = await frontier.take()
    const inner: Promise<unknown>[] = []
    frontier.on('acked', () => {
      inner.push(frontier.add({ url: 'http://a.test/big', body: Buffer.alloc(1_200_000, 65) }))
    })
    await Promise.all([visit.ack(), frontier.add(pages('a', 1, 5))])
    await Promise.all(inner)
    const visits = await frontier.take({ max: 10 })
    expect(visits.map((one) => one.url)).toEqual([...pages('a', 1, 5), 'http://a.test/big'])
    await world.close()
  })
})
