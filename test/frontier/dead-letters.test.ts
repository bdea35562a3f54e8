/** Dead letters: buried with a reason, listed, brought back or dropped, wherever a checkpoint has put them. */
import { describe, expect, test } from 'vitest'
import { deadLetters, openWorld, pages, takeAll } from './world.js'

describe.each([
  ['carried in the journal', 200],
  ['in a segment', 0],
])('%s', (_where, carryBucketBytes) => {
  const buried = async () => {
    const world = await openWorld({ tuning: { carryBucketBytes } })
    await world.frontier.add(pages('a', 0, 3), { priority: 4, meta: { depth: 1 } })
    for (const visit of await world.frontier.take({ max: 3 })) await visit.bury({ reason: `no ${visit.id}` })
    await world.frontier.checkpoint()
    return world
  }

  test('all is told of each, after reopening too', async () => {
    const world = await buried()
    const at = world.env.clock.now()
    await world.env.clock.advance(5000)
    for (const frontier of [world.frontier, await world.dieAndReopen()]) {
      const letters = await deadLetters(frontier)
      expect(letters.map(({ raw: _raw, ...letter }) => letter)).toEqual(
        [1, 2, 3].map((id) => ({
          id,
          reason: `no ${id}`,
          attempt: 1,
          failures: 0,
          priority: 4,
          buriedAt: at,
          payload: { url: `http://a.test/${id - 1}`, method: 'GET', priority: 4, slot: 'a.test', meta: { depth: 1 } },
        })),
      )
      expect(letters.every((letter) => Buffer.from(letter.raw).includes(String(letter.payload?.url)))).toBe(true)
    }
    await world.close()
  })

  test('requeue brings back those that are named, with fresh attempts, in their old place', async () => {
    const world = await buried()
    await world.frontier.add(pages('a', 3, 5), { priority: 4 })
    expect(await world.frontier.requeue([3, 1, 99])).toBe(2)
    expect((await world.frontier.stats()).dead).toBe(1)
    let frontier = await world.dieAndReopen()
    await frontier.checkpoint()
    frontier = await world.dieAndReopen()
    const visits = await takeAll(frontier)
    expect(visits.map(({ id, attempt, failures, lastReason }) => [id, attempt, failures, lastReason])).toEqual([
      [1, 1, 0, undefined],
      [3, 1, 0, undefined],
      [4, 1, 0, undefined],
      [5, 1, 0, undefined],
    ])
    expect((await deadLetters(frontier)).map((letter) => letter.id)).toEqual([2])
    expect((await frontier.stats()).counters.requeued).toBe(2)
    await world.close()
  })

  test('dropDead ends them for ever; they stay seen', async () => {
    const world = await buried()
    expect(await world.frontier.dropDead([2])).toBe(1)
    expect(await world.frontier.dropDead()).toBe(2)
    expect(await world.frontier.dropDead()).toBe(0)
    let frontier = await world.dieAndReopen()
    await frontier.checkpoint()
    frontier = await world.dieAndReopen()
    expect(await deadLetters(frontier)).toEqual([])
    expect(await frontier.requeue()).toBe(0)
    expect(await frontier.add(pages('a', 0, 3))).toMatchObject({ duplicates: 3 })
    await world.close()
  })

  test('dropped and requeued while a checkpoint gives them a place', async () => {
    const world = await openWorld({ tuning: { carryBucketBytes } })
    await world.frontier.add(pages('a', 0, 10))
    for (const visit of await world.frontier.take({ max: 10 })) await visit.bury()
    const running = world.frontier.checkpoint()
    expect(await world.frontier.dropDead([1, 2])).toBe(2)
    expect(await world.frontier.requeue([3])).toBe(1)
    await running
    const frontier = await world.dieAndReopen()
    expect((await deadLetters(frontier)).map((letter) => letter.id)).toEqual([4, 5, 6, 7, 8, 9, 10])
    expect((await takeAll(frontier)).map((visit) => visit.id)).toEqual([3])
    await world.close()
  })

  test('a full disk leaves them where they are', async () => {
    const world = await openWorld({ tuning: { carryBucketBytes, reserveBytes: 0 } })
    await world.frontier.add(pages('a', 0, 3))
    for (const visit of await world.frontier.take({ max: 3 })) await visit.bury()
    await world.frontier.checkpoint()
    world.env.files.capacityBytes = world.env.files.usedBytes
    await expect(world.frontier.requeue()).rejects.toMatchObject({ code: 'HOLDFAST_DISK_FULL' })
    await expect(world.frontier.dropDead()).rejects.toMatchObject({ code: 'HOLDFAST_DISK_FULL' })
    expect((await world.frontier.stats()).dead).toBe(3)
    world.env.files.capacityBytes = Infinity
    expect(await world.frontier.requeue()).toBe(3)
    await world.close()
  })
})

test('bury, requeue and bury again, over many checkpoints', async () => {
  const world = await openWorld({ tuning: { carryBucketBytes: 0 } })
  await world.frontier.add(pages('a', 0, 12))
  for (let round = 1; round <= 4; round++) {
    for (const visit of await takeAll(world.frontier)) await visit.bury({ reason: `round ${round}` })
    await world.frontier.checkpoint()
    const frontier = await world.dieAndReopen()
    expect(new Set((await deadLetters(frontier)).map((letter) => letter.reason))).toEqual(new Set([`round ${round}`]))
    expect(await frontier.requeue()).toBe(12)
    if (round % 2 === 0) await frontier.checkpoint()
  }
  expect((await world.frontier.stats()).counters.buried).toBe(48)
  await world.close()
})
