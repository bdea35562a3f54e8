/** What has gone wrong with the logs of other durable queues and stores, replayed on ours. */
import { describe, expect, test } from 'vitest'
import { jobPaths, journalName } from '../../src/store/file-names.js'
import { DIRECTORY, openWorld, pages, refusal, takeAll, takeUrls, World } from '../frontier/world.js'

const JOURNALS = jobPaths(DIRECTORY).journal

test('killed after appends and before any position was saved: the next run appends behind them, not over them', async () => {
  const world = await openWorld({ syncEveryMs: 1e9 })
  await world.frontier.add(pages('a', 0, 5))
  let again = await world.dieAndReopen()
  await again.add(pages('a', 5, 8))
  again = await world.dieAndReopen()
  expect(await takeUrls(again)).toEqual(pages('a', 0, 8))
  await world.close()
})

test('killed at once, with an empty log, it starts and takes work', async () => {
  for (let calls = 0; ; calls++) {
    const world = new World({})
    world.env.files.failAt(calls, { kind: 'crash' })
    await world.open().catch(() => {})
    const { hit } = world.env.files
    for (const unsynced of ['kept', 'lost'] as const) {
      const after = new World({})
      after.move(world.env.files.crash({ seed: calls, unsynced }))
      const frontier = await after.open()
      await frontier.add(pages('a', 0, 3))
      expect(await takeUrls(frontier)).toEqual(pages('a', 0, 3))
      await after.close()
    }
    if (!hit) break
  }
})

describe('one old job does not pin the files behind it', () => {
  // Delayed and dead ones in segments still do: test/engine/drain.test.ts.
  test.each(['buried', 'delayed', 'ready', 'leased'] as const)('%s, while many come and go', async (fate) => {
    const world = await openWorld({ tuning: { reserveBytes: 0 } })
    const { frontier, env } = world
    await frontier.add('http://old.test/')
    const [old] = await frontier.take()
    if (fate === 'buried') await old.bury()
    if (fate === 'delayed') await old.retry({ delayMs: 30 * 86_400_000 })
    if (fate === 'ready') await old.release()
    const sizes: number[] = []
    for (let round = 0; round < 12; round++) {
      await frontier.add(pages('a', round * 50, round * 50 + 50), { priority: 1 })
      for (const visit of await frontier.take({ max: 50 })) await visit.ack()
      await frontier.checkpoint()
      const bytes = env.files.allFiles().filter((path) => !path.includes('seen'))
      sizes.push(bytes.reduce((sum, path) => sum + env.files.contents(path).length, 0))
    }
    expect(Math.max(...sizes.slice(6))).toBeLessThanOrEqual(Math.max(...sizes.slice(0, 6)) + 100)
    await world.close()
  })
})

test('a full disk, a torn record and an empty newer log: it opens, on the full disk and when there is room', async () => {
  for (let room = 0; room < 600; room += 41) {
    const world = await openWorld({ tuning: { reserveBytes: 0 } })
    await world.frontier.add(pages('a', 0, 30))
    world.env.files.capacityBytes = world.env.files.usedBytes + room
    // Some of it may be written: a new log with a header cut short, or a torn first batch.
    await world.frontier.checkpoint().catch(() => {})
    await world.frontier.add(pages('b', 0, 50)).catch(() => {})
    for (let run = 2; run <= 3; run++) {
      const again = await world.dieAndReopen()
      expect((await again.stats()).ready, `${room} bytes of room`).toBe(30)
    }
    world.env.files.capacityBytes = Infinity
    await world.frontier.add(pages('b', 0, 1))
    const last = await world.dieAndReopen()
    expect(await takeAll(last)).toHaveLength(31)
    await world.close()
  }
})

test('a plain kill in the middle of a write needs no flag and no repair, and says what it cut off', async () => {
  const path = `${JOURNALS}/${journalName(1)}`
  let cutSomething = 0
  for (let seed = 0; seed < 20; seed++) {
    const world = await openWorld()
    await world.frontier.add(pages('a', 0, 5))
    const before = world.env.files.contents(path).length
    world.env.files.failAt(0, { kind: 'crash', seed })
    await world.frontier.add(pages('b', 0, 5)).catch(() => {})
    const written = world.env.files.contents(path).length - before
    const again = await world.dieAndReopen()
    const { ready } = await again.stats()
    expect([5, 10]).toContain(ready)
    expect(again.recovery.tornBytes, `seed ${seed}`).toBe(ready === 5 ? written : 0)
    if (again.recovery.tornBytes > 0) cutSomething++
    await world.close()
  }
  expect(cutSomething).toBeGreaterThan(10)
})

test('a torn tail is cut before anything is appended: what the second run promised is there in the third', async () => {
  const world = await openWorld()
  await world.frontier.add(pages('a', 0, 3))
  const path = `${JOURNALS}/${journalName(1)}`
  for (const tail of [
    Buffer.alloc(5, 0xff),
    Buffer.alloc(700, 1),
    Buffer.concat([Buffer.alloc(600), Buffer.alloc(9, 7)]),
  ]) {
    world.move(world.env.files.crash({ seed: 1, unsynced: 'kept' }))
    world.env.files.setContents(path, Buffer.concat([world.env.files.contents(path), tail]))
    const second = await world.open()
    expect(second.recovery.tornBytes).toBe(tail.length)
    const n = (await second.stats()).ready
    await second.add(pages('a', n, n + 2))
    for (let run = 3; run <= 4; run++) {
      const third = await world.dieAndReopen()
      expect(third.recovery.tornBytes).toBe(0)
      expect(await takeUrls(third)).toEqual(pages('a', 0, n + 2))
    }
  }
  await world.close()
})

test('zeros behind the end, as a file system leaves them after a power loss, are no damage', async () => {
  const world = await openWorld()
  await world.frontier.add(pages('a', 0, 3))
  const path = `${JOURNALS}/${journalName(1)}`
  world.move(world.env.files.crash({ seed: 1, unsynced: 'kept' }))
  world.env.files.setContents(path, Buffer.concat([world.env.files.contents(path), Buffer.alloc(4096)]))
  const again = await world.open()
  await again.add(pages('a', 3, 5))
  expect(await takeUrls(await world.dieAndReopen())).toEqual(pages('a', 0, 5))
  await world.close()
})

test('full buckets on disk are never ignored for want of a manifest', async () => {
  const world = await openWorld({ tuning: { carryBucketBytes: 0 } })
  await world.frontier.add(pages('a', 0, 30))
  await world.frontier.checkpoint()
  world.move(world.env.files.crash({ seed: 1, unsynced: 'kept' }))
  for (const path of world.env.files.allFiles()) {
    if (path.includes('/journal/') || path.endsWith('active.json')) world.env.files.unlink(path)
  }
  expect((await refusal(world.open())).code).toBe('HOLDFAST_CORRUPT')
})
