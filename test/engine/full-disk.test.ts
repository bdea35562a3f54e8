/** A full disk: adds are refused without a trace, finishing work goes on through the reserve, and it ends when there is room. */
import { describe, expect, test } from 'vitest'
import { jobPaths } from '../../src/store/file-names.js'
import { DIRECTORY, openWorld, pages, refusal, takeAll, takeUrls, World } from '../frontier/world.js'

const RESERVE_BYTES = 4096
const { reserve: RESERVE } = jobPaths(DIRECTORY)

function fill(world: World): void {
  world.env.files.capacityBytes = world.env.files.usedBytes
}

function makeRoom(world: World): void {
  world.env.files.capacityBytes = Infinity
}

/** Jobs on disk and in hand, and a disk with no byte left. */
async function fullWorld(reserveBytes = RESERVE_BYTES, durability: 'process' | 'power' = 'process'): Promise<World> {
  const world = await openWorld({ durability, tuning: { reserveBytes, journalBytes: 1e6, seenTableKeys: 1e5 } })
  await world.frontier.add(pages('a', 0, 100))
  fill(world)
  return world
}

describe.each(['process', 'power'] as const)('%s', (durability) => {
  test('an add is refused and leaves no trace', async () => {
    const world = await fullWorld(RESERVE_BYTES, durability)
    const before = { disk: world.disk(), stats: await world.frontier.stats() }
    const error = await refusal(world.frontier.add(pages('b', 0, 5)))
    expect([error.code, error.path]).toEqual(['HOLDFAST_DISK_FULL', expect.stringContaining('/journal/')])
    expect(world.disk()).toEqual(before.disk)
    const { slots: _, ...stats } = await world.frontier.stats()
    const { slots: _before, ...expected } = before.stats
    expect(stats).toEqual(expected)
    expect(pages('b', 0, 5).some((url) => world.frontier.has(url))).toBe(false)
    makeRoom(world)
    expect(await world.frontier.add(pages('b', 0, 5))).toMatchObject({ added: 5 })
    await world.close()
  })

  test('many acks, retries, releases and buries go on', async () => {
    const world = await fullWorld(RESERVE_BYTES, durability)
    const warnings: string[] = []
    world.frontier.on('warning', (warning) => warnings.push(warning.code))
    for (const [i, visit] of (await takeAll(world.frontier)).entries()) {
      if (i < 40) await visit.ack({ state: { done: i } })
      else if (i < 50) await visit.retry({ delayMs: 1000 })
      else if (i < 60) await visit.bury()
      else if (i < 70) await visit.release()
    }
    expect(warnings).toEqual(['disk-full'])
    expect(world.env.files.exists(RESERVE)).toBe(false)
    const frontier = await world.dieAndReopen()
    const { ready, delayed, dead } = await frontier.stats()
    expect([ready, delayed, dead, frontier.state('done')]).toEqual([40, 10, 10, 39])
    makeRoom(world)
    await world.close()
  })

  test('an ack beside an add in one turn: the ack is done, the add refused', async () => {
    const world = await fullWorld(RESERVE_BYTES, durability)
    const [a, b] = await world.frontier.take({ max: 2 })
    const calls = await Promise.allSettled([
      world.frontier.add(pages('b', 0, 2)),
      a.ack({ add: pages('c', 0, 2), state: { n: 1 } }),
      world.frontier.add(pages('d', 0, 2)),
      b.retry(),
    ])
    expect(calls.map((call) => call.status)).toEqual(['rejected', 'fulfilled', 'rejected', 'fulfilled'])
    const frontier = await world.dieAndReopen()
    const urls = new Set(await takeUrls(frontier))
    expect([urls.has(a.url), urls.has(b.url), urls.size, frontier.state('n')]).toEqual([false, true, 101, 1])
    expect([...pages('b', 0, 2), ...pages('d', 0, 2)].filter((url) => frontier.has(url))).toEqual([])
    makeRoom(world)
    await world.close()
  })

  test('an ack whose child is a duplicate of an add that is refused beside it does not lose the child', async () => {
    const world = await fullWorld(RESERVE_BYTES, durability)
    const [visit] = await world.frontier.take()
    const child = 'http://b.test/child'
    const [added, acked] = await Promise.allSettled([world.frontier.add(child), visit.ack({ add: [child] })])
    expect([added.status, acked.status]).toEqual(['rejected', 'rejected'])
    expect([visit.live, world.frontier.has(child)]).toEqual([true, false])
    expect(await visit.ack({ add: [child] })).toMatchObject({ added: 1, duplicates: 0 })
    expect(await takeUrls(await world.dieAndReopen())).toContain(child)
    makeRoom(world)
    await world.close()
  })

  test('an ack whose child was seen long ago goes on, alone and beside another ack that has it', async () => {
    const world = await fullWorld(RESERVE_BYTES, durability)
    const [a, b, c] = await world.frontier.take({ max: 3 })
    expect(await a.ack({ add: ['http://a.test/99'] })).toMatchObject({ added: 0, duplicates: 1 })
    const child = 'http://b.test/child'
    const [first, second] = await Promise.all([b.ack({ add: [child, child] }), c.ack({ add: [child] })])
    expect([first.added, first.duplicates, second.duplicates]).toEqual([1, 1, 1])
    expect(await takeUrls(await world.dieAndReopen())).toContain(child)
    makeRoom(world)
    await world.close()
  })

  test('when the reserve is used up an ack is refused, the lease stays, and later it works', async () => {
    const world = await fullWorld(0, durability)
    const [visit] = await world.frontier.take()
    const error = await refusal(visit.ack({ add: ['http://b.test/'], state: { n: 1 } }))
    expect([error.code, visit.live]).toEqual(['HOLDFAST_DISK_FULL', true])
    expect([world.frontier.has('http://b.test/'), world.frontier.state('n')]).toEqual([false, undefined])
    makeRoom(world)
    expect(await visit.ack({ add: ['http://b.test/'], state: { n: 1 } })).toMatchObject({ added: 1 })
    await world.close()
  })

  test('order is what it would have been', async () => {
    const world = await fullWorld(RESERVE_BYTES, durability)
    await refusal(world.frontier.add(pages('a', 200, 210)))
    makeRoom(world)
    await world.frontier.add(pages('a', 100, 110))
    expect(await takeUrls(world.frontier)).toEqual(pages('a', 0, 110))
    await world.close()
  })
})

test('the reserve comes back at the next checkpoint that finds room', async () => {
  const world = await fullWorld()
  const [visit] = await world.frontier.take()
  await visit.ack()
  expect(world.env.files.exists(RESERVE)).toBe(false)
  makeRoom(world)
  await world.frontier.checkpoint()
  expect(world.env.files.contents(RESERVE)).toHaveLength(RESERVE_BYTES)
  fill(world)
  for (const other of await world.frontier.take({ max: 5 })) await other.ack()
  makeRoom(world)
  await world.close()
})

test('a checkpoint on a full disk fails without harm, and succeeds when there is room', async () => {
  const world = await fullWorld()
  const warnings: string[] = []
  world.frontier.on('warning', (warning) => warnings.push(warning.code))
  const error = await refusal(world.frontier.checkpoint())
  expect(error.code).toBe('HOLDFAST_DISK_FULL')
  expect(warnings).toContain('checkpoint-failed')
  const [visit] = await world.frontier.take()
  await visit.ack()
  const frontier = await world.dieAndReopen()
  expect((await frontier.stats()).ready).toBe(99)
  makeRoom(world)
  await frontier.checkpoint()
  expect(await takeUrls(await world.dieAndReopen())).toEqual(pages('a', 1, 100))
  await world.close()
})

test('at any size of the disk a checkpoint works or leaves all as it was', async () => {
  for (let room = 0; room < 12_000; room += 397) {
    const world = await fullWorld()
    world.env.files.capacityBytes = world.env.files.usedBytes + room
    const worked = await world.frontier.checkpoint().then(
      () => true,
      (error) => expect(error).toMatchObject({ code: 'HOLDFAST_DISK_FULL' }),
    )
    const [visit] = await world.frontier.take()
    await visit.ack()
    makeRoom(world)
    const frontier = await world.dieAndReopen()
    expect((await frontier.stats()).ready, `${room} bytes of room, it worked: ${worked === true}`).toBe(99)
    await world.close()
  }
})

test('what is there can be opened and finished on a full disk', async () => {
  const world = await fullWorld()
  const again = await world.dieAndReopen()
  expect(await again.add('http://a.test/1')).toMatchObject({ duplicates: 1 })
  for (const visit of (await takeAll(again)).slice(0, 50)) await visit.ack()
  expect((await (await world.dieAndReopen()).stats()).ready).toBe(50)
  makeRoom(world)
  await world.close()
})

test('without a reserve it can be opened and read', async () => {
  const world = await fullWorld(0)
  const again = await world.dieAndReopen()
  expect(await takeUrls(again)).toEqual(pages('a', 0, 100))
  expect((await refusal(again.add('http://b.test/'))).code).toBe('HOLDFAST_DISK_FULL')
  makeRoom(world)
  expect(await again.add('http://b.test/')).toMatchObject({ added: 1 })
  await world.close()
})

test('a first opening on a full disk is refused, gives the lock back, and works later', async () => {
  const fresh = new World({})
  fresh.env.files.capacityBytes = 10
  expect((await refusal(fresh.open())).code).toBe('HOLDFAST_DISK_FULL')
  fresh.env.files.capacityBytes = Infinity
  await fresh.open()
  await fresh.close()
})

// The opening could not be noted, so the next one counts from the same epoch.
test('tokens of openings on a full disk differ', async () => {
  const world = await fullWorld(0)
  const tokens: string[] = []
  for (let i = 0; i < 2; i++) {
    const [visit] = await (await world.dieAndReopen()).take()
    tokens.push(visit.token)
  }
  expect(tokens[0]).not.toBe(tokens[1])
})
