/** Who is handed out next: priorities, start requests, order inside a bucket, and the rules of slots. */
import { describe, expect, test } from 'vitest'
import type { Order } from '../../src/frontier/types.js'
import { openWorld, pages, takeAll, takeUrls } from './world.js'

describe('priorities', () => {
  const priorities = [0, 5, Number.MAX_SAFE_INTEGER, -3, Number.MIN_SAFE_INTEGER, 2 ** 51, -(2 ** 51) - 1, 1]

  test.each([0, 200])(
    'any safe integer, also across checkpoint and kill (carrying %i bytes)',
    async (carryBucketBytes) => {
      const world = await openWorld({ tuning: { carryBucketBytes } })
      await world.frontier.add(priorities.map((priority, i) => ({ url: `http://a.test/${i}`, priority })))
      await world.frontier.checkpoint()
      const visits = await takeAll(await world.dieAndReopen())
      expect(visits.map((visit) => visit.priority)).toEqual([...priorities].sort((a, b) => b - a))
      await world.close()
    },
  )

  test('minus zero is zero', async () => {
    const world = await openWorld({ tuning: { carryBucketBytes: 0 } })
    await world.frontier.add('http://a.test/1', { priority: -0 })
    await world.frontier.add('http://a.test/2', { priority: 0 })
    await world.frontier.checkpoint()
    expect(world.env.files.allFiles().filter((path) => path.endsWith('/info.json'))).toEqual([
      '/job/requests.queue/0/info.json',
    ])
    const visits = await takeAll(world.frontier)
    expect(visits.map((visit) => [visit.url, Object.is(visit.priority, 0)])).toEqual([
      ['http://a.test/1', true],
      ['http://a.test/2', true],
    ])
    await world.close()
  })

  test('start requests come after ordinary ones of equal priority, before those of a lower one', async () => {
    const world = await openWorld()
    const { frontier } = world
    await frontier.add('http://start.test/0', { start: true })
    await frontier.add('http://low.test/', { priority: -1 })
    await frontier.add('http://start.test/1', { start: true })
    await frontier.add('http://plain.test/')
    const order = ['http://plain.test/', 'http://start.test/0', 'http://start.test/1', 'http://low.test/']
    expect(await takeUrls(frontier)).toEqual(order)
    expect(await takeUrls(await world.dieAndReopen())).toEqual(order)
    await world.close()
  })
})

describe.each<Order>(['fifo', 'lifo'])('%s', (order) => {
  const inOrder = (urls: string[]): string[] => (order === 'fifo' ? urls : urls.toReversed())

  test('inside a bucket, across checkpoints and reopening', async () => {
    const world = await openWorld({ order })
    await world.frontier.add(pages('a', 0, 30))
    await world.frontier.checkpoint()
    await world.frontier.add(pages('a', 30, 60))
    let frontier = await world.dieAndReopen()
    await frontier.checkpoint()
    await frontier.add(pages('a', 60, 70))
    frontier = await world.closeAndReopen()
    expect(await takeUrls(frontier)).toEqual(inOrder(pages('a', 0, 70)))
    await world.close()
  })

  test('work goes on in order while a checkpoint runs', async () => {
    const world = await openWorld({ order })
    await world.frontier.add(pages('a', 0, 40))
    const running = world.frontier.checkpoint()
    const got: string[] = []
    for (let i = 0; i < 10; i++) {
      const [visit] = await world.frontier.take()
      got.push(visit.url)
      await visit.ack()
    }
    await running
    got.push(...(await takeUrls(world.frontier)))
    expect(got).toEqual(inOrder(pages('a', 0, 40)))
    await world.close()
  })

  test('a failed checkpoint changes nothing of it', async () => {
    const world = await openWorld({ order })
    await world.frontier.add(pages('a', 0, 40))
    world.env.files.failAt(4, { kind: 'EIO', sticky: true })
    const running = world.frontier.checkpoint()
    const [visit] = await world.frontier.take()
    await expect(running).rejects.toThrow()
    world.env.files.clearFaults()
    await world.frontier.add(pages('a', 40, 45))
    await visit.release()
    const all = order === 'fifo' ? pages('a', 0, 45) : pages('a', 0, 45).toReversed()
    expect(await takeUrls(world.frontier)).toEqual(all)
    await world.close()
  })

  test.each(['release', 'retry', 'kill', 'expiry'] as const)('what comes back by %s has its old place', async (how) => {
    const world = await openWorld({ order, leaseMs: 1000 })
    await world.frontier.add(pages('a', 0, 40))
    await world.frontier.checkpoint()
    const visits = await world.frontier.take({ max: 5 })
    await world.frontier.add(pages('a', 40, 45), { priority: -1 })
    let { frontier } = world
    if (how === 'kill') frontier = await world.dieAndReopen()
    else if (how === 'expiry') await world.env.clock.advance(1000)
    else for (const visit of [...visits].reverse()) await visit[how]()
    expect(await takeUrls(frontier)).toEqual([...inOrder(pages('a', 0, 40)), ...inOrder(pages('a', 40, 45))])
    await world.close()
  })
})

describe('slots', () => {
  test('rotate by who was served longest ago, whatever their names', async () => {
    const world = await openWorld()
    await world.frontier.add([...pages('z', 0, 3), ...pages('a', 0, 3), ...pages('m', 0, 3)])
    const hosts: string[] = []
    for (let i = 0; i < 9; i++) {
      const [visit] = await world.frontier.take()
      hosts.push(visit.slot)
      await visit.ack()
    }
    expect(hosts.join(' ')).toBe(Array(3).fill('z.test a.test m.test').join(' '))
    await world.close()
  })

  test('among equals the one with fewest leases comes first', async () => {
    const world = await openWorld()
    await world.frontier.add(pages('a', 0, 4))
    await world.frontier.take({ max: 3 })
    await world.frontier.add(pages('b', 0, 2))
    expect((await world.frontier.take({ max: 2 })).map((visit) => visit.slot)).toEqual(['b.test', 'b.test'])
    await world.close()
  })

  test('concurrency bounds the leases of one slot', async () => {
    const world = await openWorld({ politeness: { concurrency: 2 } })
    await world.frontier.add([...pages('a', 0, 5), ...pages('b', 0, 5)])
    const visits = await world.frontier.take({ max: 10 })
    expect(visits.map((visit) => visit.slot).sort()).toEqual(['a.test', 'a.test', 'b.test', 'b.test'])
    expect(await world.frontier.take()).toEqual([])
    await (visits.find((visit) => visit.slot === 'a.test') as (typeof visits)[number]).ack()
    expect((await world.frontier.take({ max: 10 })).map((visit) => visit.slot)).toEqual(['a.test'])
    await world.close()
  })

  test('a slot at its bound does not hold up lower priorities of others', async () => {
    const world = await openWorld({ politeness: (slot) => (slot === 'a.test' ? { concurrency: 1 } : {}) })
    await world.frontier.add(pages('a', 0, 3), { priority: 10 })
    await world.frontier.add(pages('b', 0, 1))
    expect((await world.frontier.take({ max: 10 })).map((visit) => visit.slot)).toEqual(['a.test', 'b.test'])
    await world.close()
  })

  test('delayMs lies between two hand-outs of one slot', async () => {
    const world = await openWorld({ politeness: { delayMs: 500 } })
    await world.frontier.add([...pages('a', 0, 3), ...pages('b', 0, 1)])
    expect(await world.frontier.take({ max: 10 })).toHaveLength(2)
    await world.env.clock.advance(499)
    expect(await world.frontier.take({ max: 10 })).toEqual([])
    await world.env.clock.advance(1)
    expect(await world.frontier.take({ max: 10 })).toHaveLength(1)
    await world.close()
  })

  test('the clock of a slot survives its drain and a checkpoint', async () => {
    const world = await openWorld({ politeness: { delayMs: 60_000 } })
    await world.frontier.add('http://a.test/1')
    const [visit] = await world.frontier.take()
    await visit.ack()
    await world.frontier.checkpoint()
    await world.frontier.checkpoint()
    await world.frontier.add('http://a.test/2')
    expect(await world.frontier.take()).toEqual([])
    // A checkpoint has it on disk as well.
    const frontier = await world.dieAndReopen()
    expect(await frontier.take()).toEqual([])
    await world.env.clock.advance(60_000)
    expect(await frontier.take()).toHaveLength(1)
    await world.close()
  })

  // The journal has no record of the clock that a plain hand-out sets: only pauses and checkpoints write one.
  test.each(['kill', 'close'] as const)('the clock of a slot survives reopening after a %s', async (how) => {
    const world = await openWorld({ politeness: { delayMs: 60_000 } })
    await world.frontier.add(pages('a', 0, 2))
    const [visit] = await world.frontier.take()
    await visit.ack()
    const frontier = how === 'kill' ? await world.dieAndReopen() : await world.closeAndReopen()
    const early = await frontier.take()
    await world.close()
    expect(early).toEqual([])
  })

  test('pauseSlot holds a slot until its time, across reopening; 0 ends it', async () => {
    const world = await openWorld()
    await world.frontier.add([...pages('a', 0, 2), ...pages('b', 0, 1)])
    await world.frontier.pauseSlot('a.test', world.env.clock.now() + 10_000)
    let frontier = await world.dieAndReopen()
    expect(await takeUrls(frontier)).toEqual(pages('b', 0, 1))
    await frontier.checkpoint()
    frontier = await world.dieAndReopen()
    expect((await frontier.take({ max: 9 })).map((visit) => visit.slot)).toEqual(['b.test'])
    await frontier.pauseSlot('a.test', 0)
    expect(await frontier.take({ max: 9 })).toHaveLength(2)
    await world.close()
  })

  test.each([Number.NaN, Infinity, 1e300])('pauseSlot until %s is refused', async (untilMs) => {
    const world = await openWorld()
    await expect(world.frontier.pauseSlot('a.test', untilMs)).rejects.toThrow(TypeError)
    await world.close()
  })

  test.each([{ delayMs: Infinity }, { delayMs: -1 }, { concurrency: 0 }, { concurrency: Number.NaN }])(
    'politeness %o is refused',
    async (politeness) => {
      await expect(openWorld({ politeness })).rejects.toThrow(TypeError)
    },
  )
})
