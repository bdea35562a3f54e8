/** What is done leaves no files behind, and active.json tells the truth about what is left. */
import { describe, expect, test } from 'vitest'
import { decodeJson } from '../../src/store/json-file.js'
import { deadLetters, openWorld, pages, QUEUE, takeAll, type World } from '../frontier/world.js'

const files = (world: World): string[] => world.env.files.allFiles().filter((path) => !path.includes('/requests.seen/'))
const directories = (world: World): string[] => world.env.files.readDirectory(QUEUE)
const active = (world: World): Record<string, unknown> =>
  decodeJson(world.env.files.contents(`${QUEUE}/active.json`), 'active.json')

test('after everything is done only the manifest, one journal and the reserve are left', async () => {
  const world = await openWorld({ tuning: { carryBucketBytes: 0, seenTableKeys: 1e5, journalBytes: 1e6 } })
  const { frontier, env } = world
  await frontier.add(pages('a', 0, 40))
  await frontier.add(pages('b', 0, 20), { priority: 5 })
  await frontier.add(pages('c', 0, 20), { start: true })
  await frontier.add(pages('d', 0, 20), { notBefore: env.clock.now() + 3 * 86_400_000 })
  for (const visit of await frontier.take({ max: 10 })) await visit.bury()
  await frontier.checkpoint()
  expect(directories(world)).toEqual(['-5', '0', '0s', 'active.json', 'delayed', 'journal', 'reserve'])
  expect(env.files.readDirectory('/job')).toContain('dead')
  await frontier.requeue()
  await env.clock.advance(4 * 86_400_000)
  for (const visit of await takeAll(frontier)) await visit.ack()
  await frontier.checkpoint()
  expect(directories(world)).toEqual(['active.json', 'journal', 'reserve'])
  expect(env.files.readDirectory('/job')).not.toContain('dead')
  expect(env.files.readDirectory(`${QUEUE}/journal`)).toHaveLength(1)
  expect(active(world)).toMatchObject({ startprios: [], buckets: [] })
  expect((await frontier.stats()).bytes.segments).toBe(0)
  await world.close()
})

test('buckets lie where Scrapy looks for them, and startprios lists those that hold something, best first', async () => {
  const world = await openWorld({ tuning: { carryBucketBytes: 0 } })
  const { frontier } = world
  await frontier.add('http://a.test/1')
  await frontier.add('http://a.test/2', { priority: 5 })
  await frontier.add('http://a.test/3', { priority: -7 })
  await frontier.add('http://a.test/4', { start: true })
  await frontier.add('http://a.test/5', { start: true, priority: 5 })
  await frontier.checkpoint()
  expect(active(world)['startprios']).toEqual([-5, '-5s', 0, '0s', 7])
  expect(files(world).filter((path) => !path.includes('/journal/'))).toEqual(
    [
      ...['-5', '-5s', '0', '0s', '7'].flatMap((name) => [`${QUEUE}/${name}/info.json`, `${QUEUE}/${name}/q00000`]),
      `${QUEUE}/active.json`,
      `${QUEUE}/reserve`,
    ].sort(),
  )
  for (const visit of await frontier.take({ max: 2 })) await visit.ack()
  await frontier.checkpoint()
  expect(active(world)['startprios']).toEqual([0, '0s', 7])
  await world.close()
})

test('a small bucket has no directory and is listed all the same', async () => {
  const world = await openWorld()
  await world.frontier.add('http://a.test/', { priority: 5 })
  await world.frontier.checkpoint()
  expect(directories(world)).toEqual(['active.json', 'journal', 'reserve'])
  expect(active(world)['startprios']).toEqual([-5])
  await world.close()
})

describe('disk stays near what is live', () => {
  test('while a window rolls over many jobs', async () => {
    const world = await openWorld({ tuning: { reserveBytes: 0 } })
    const { frontier, env } = world
    await frontier.add(pages('a', 0, 60))
    let most = 0
    for (let round = 1; round <= 20; round++) {
      await frontier.add(pages('a', round * 60, round * 60 + 60))
      for (const visit of await frontier.take({ max: 60 })) await visit.ack()
      await frontier.checkpoint()
      const { journal, segments } = (await frontier.stats()).bytes
      most = Math.max(most, journal + segments)
    }
    // 60 live jobs of about 50 bytes: once more for what is not yet given back, and the journal.
    expect(most).toBeLessThan(4 * 60 * 50)
    expect(env.files.readDirectory(`${QUEUE}/journal`)).toHaveLength(1)
    await world.close()
  })

  test('when one old job in each segment is left', async () => {
    const world = await openWorld({ tuning: { reserveBytes: 0 } })
    const { frontier } = world
    for (let round = 0; round < 12; round++) {
      await frontier.add(pages(`keep${round}`, 0, 1))
      await frontier.add(pages(`go${round}`, 0, 40))
      await frontier.checkpoint()
      for (const visit of await takeAll(frontier)) await (visit.url.includes('keep') ? visit.release() : visit.ack())
      await frontier.checkpoint()
      if (round === 0) continue
      const held = await frontier.take({ max: 100 })
      for (const visit of held) await visit.release()
    }
    const { ready, bytes } = await frontier.stats()
    expect(ready).toBe(12)
    expect(bytes.segments + bytes.journal).toBeLessThan(4000)
    await world.close()
  })

  // Only ready buckets are thinned out: one far job holds a whole segment of delayed ones that are long gone.
  test('when one far job in each segment of delayed ones is left', async () => {
    const world = await openWorld({ tuning: { reserveBytes: 0 } })
    const { frontier, env } = world
    for (let round = 0; round < 12; round++) {
      await frontier.add(pages(`near${round}`, 0, 20), { notBefore: env.clock.now() + 120_000 })
      await frontier.add(pages(`far${round}`, 0, 1), { notBefore: env.clock.now() + 30 * 86_400_000 })
      await frontier.checkpoint()
      await env.clock.advance(240_000)
      for (const visit of await takeAll(frontier)) await visit.ack()
      await frontier.checkpoint()
    }
    const { delayed, bytes } = await frontier.stats()
    expect(delayed).toBe(12)
    expect(bytes.segments + bytes.journal).toBeLessThan(4000)
  })

  // The same for dead letters of which all but one are dropped.
  test('when one dead letter in each segment is left', async () => {
    const world = await openWorld({ tuning: { reserveBytes: 0 } })
    const { frontier } = world
    for (let round = 0; round < 12; round++) {
      await frontier.add(pages(`b${round}`, 0, 20))
      for (const visit of await takeAll(frontier)) await visit.bury()
      await frontier.checkpoint()
      const letters = await deadLetters(frontier)
      await frontier.dropDead(letters.filter(({ payload }) => !`${payload?.url}`.endsWith('/0')).map(({ id }) => id))
      await frontier.checkpoint()
    }
    const { dead, bytes } = await frontier.stats()
    expect(dead).toBe(12)
    expect(bytes.segments + bytes.journal).toBeLessThan(4000)
  })
})
