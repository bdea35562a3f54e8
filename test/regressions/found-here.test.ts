/** What attempts to break this very store have found. Those marked `fails` are open; each says what is wrong. */
import { describe, expect, test } from 'vitest'
import { deadLetters, openWorld, pages, takeAll, takeUrls, type World } from '../frontier/world.js'

describe('delayed jobs that were read from a segment and became due', () => {
  const due = async (): Promise<World> => {
    const world = await openWorld()
    await world.frontier.add(pages('a', 0, 20), { notBefore: world.env.clock.now() + 90_000 })
    await world.frontier.checkpoint()
    await world.env.clock.advance(100_000)
    expect((await world.frontier.stats()).ready).toBe(20)
    return world
  }

  // No record of the journal has named such a job. The checkpoint gives it a new home, and a take, an ack or any other
  // record written before the checkpoint is committed names that home only. If the process dies first, neither the
  // journal nor a segment knows the job under that home, and the opening is refused as damage.
  test('handed out during a checkpoint that a kill cuts short, they come back', async () => {
    const world = await due()
    const running = world.frontier.checkpoint()
    await world.env.clock.settle(10)
    const [first] = await world.frontier.take({ max: 3 })
    await first.ack()
    const files = world.env.files.crash({ seed: 1, unsynced: 'kept' })
    await running
    world.move(files)
    expect((await (await world.open()).stats()).ready).toBe(19)
  })

  // The same without a crash in between: a checkpoint that fails forgets the old homes of the jobs it froze.
  test('handed out after a checkpoint that failed, they come back', async () => {
    const world = await due()
    world.env.files.failAt(4, { kind: 'EIO', sticky: true })
    await expect(world.frontier.checkpoint()).rejects.toThrow('EIO')
    world.env.files.clearFaults()
    const [first] = await world.frontier.take({ max: 3 })
    await first.ack()
    expect((await (await world.dieAndReopen()).stats()).ready).toBe(19)
  })

  test('left alone, they survive both', async () => {
    const world = await due()
    world.env.files.failAt(4, { kind: 'EIO', sticky: true })
    await expect(world.frontier.checkpoint()).rejects.toThrow('EIO')
    world.env.files.clearFaults()
    expect(await takeUrls(await world.dieAndReopen())).toEqual(pages('a', 0, 20))
    await world.close()
  })
})

describe('code of the caller that runs in the middle of a call', () => {
  test('a generator of children may take, add and look things up', async () => {
    const world = await openWorld({ leaseMs: 1000 })
    const { frontier, env } = world
    await frontier.add(pages('a', 0, 4))
    const [stale] = await frontier.take()
    await env.clock.advance(500)
    const [visit] = await frontier.take()
    const inner: Promise<unknown>[] = []
    function* children(): Generator<string> {
      yield 'http://a.test/first'
      // Time goes on meanwhile: a take then ends the lease that ran out.
      const { monotonic } = env.clock
      env.clock.monotonic = () => monotonic.call(env.clock) + 600
      inner.push(frontier.take())
      env.clock.monotonic = monotonic
      inner.push(frontier.add('http://a.test/beside'))
      if (!frontier.has('http://a.test/second')) yield 'http://a.test/second'
    }
    expect(await visit.ack({ add: children() })).toMatchObject({ added: 2 })
    await Promise.all(inner)
    expect(stale.live).toBe(false)
    const urls = await takeUrls(await world.dieAndReopen())
    expect(urls.sort()).toEqual(['0', '2', '3', 'beside', 'first', 'second'].map((name) => `http://a.test/${name}`))
    await world.close()
  })

  test('a read error behind jobs that were taken does not lose them', async () => {
    const world = await openWorld({ tuning: { carryBucketBytes: 0 } })
    await world.frontier.add(pages('a', 0, 30))
    await world.frontier.checkpoint()
    await world.frontier.add(pages('b', 0, 2), { priority: 1 })
    world.env.files.failReads('q0000')
    const visits = await world.frontier.take({ max: 10 })
    expect(visits.map((visit) => visit.url)).toEqual(pages('b', 0, 2))
    world.env.files.clearFaults()
    await world.close()
  })
})

// Aborted, the loop forgets its place in the line of those who wait, and with it the timer that keeps the process alive.
test('a loop that was aborted while it waited leaves no timer behind', async () => {
  const world = await openWorld()
  await world.frontier.add('http://a.test/', { notBefore: world.env.clock.now() + 1e9 })
  const before = world.env.clock.pendingTimers
  const abort = new AbortController()
  const loop = (async () => {
    for await (const visit of world.frontier.visits({ signal: abort.signal })) throw new Error(visit.url)
  })()
  await world.env.clock.settle()
  abort.abort()
  await loop
  expect(world.env.clock.pendingTimers).toBe(before)
})

test('dead letters are listed once each while a checkpoint moves them', async () => {
  const world = await openWorld({ tuning: { seenTableKeys: 1e5, journalBytes: 1e6 } })
  const { frontier } = world
  await frontier.add(pages('a', 0, 40))
  for (const visit of await frontier.take({ max: 20 })) await visit.bury()
  await frontier.checkpoint()
  for (const visit of await takeAll(frontier)) await visit.bury()
  const ids: number[] = []
  for await (const letter of frontier.dead()) {
    ids.push(letter.id)
    if (ids.length === 5) await frontier.checkpoint()
  }
  expect(ids.sort((a, b) => a - b)).toEqual((await deadLetters(frontier)).map(({ id }) => id).sort((a, b) => a - b))
  expect(ids).toHaveLength(40)
  await world.close()
})
