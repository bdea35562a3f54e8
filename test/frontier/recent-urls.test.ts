/** Links whose text was seen lately are told without a hash; that must never say "duplicate" of what is not in the seen-set. */
import { expect, test } from 'vitest'
import { RecentUrls } from '../../src/frontier/recent-urls.js'
import { openWorld } from './world.js'

test('a text is known until a fingerprint leaves the seen-set', () => {
  const recent = new RecentUrls()
  recent.add('http://a.test/', 0)
  expect([recent.has('http://a.test/', 0), recent.has('http://a.test/b', 0)]).toEqual([true, false])
  expect(recent.has('http://a.test/', 1)).toBe(false)
  expect(recent.has('http://a.test/', 1)).toBe(false)
})

test('what cannot be copied exactly, or is long, is not kept', () => {
  const recent = new RecentUrls()
  for (const url of ['http://a.test/\u4e2d', `http://a.test/${'x'.repeat(300)}`]) {
    recent.add(url, 0)
    expect(recent.has(url, 0)).toBe(false)
  }
})

test('old texts go, and those that are asked for stay', () => {
  const recent = new RecentUrls()
  recent.add('hot', 0)
  recent.add('cold', 0)
  for (let i = 0; i < 40_000; i++) {
    recent.add(`http://a.test/${i}`, 0)
    if (i % 1000 === 0) expect(recent.has('hot', 0)).toBe(true)
  }
  expect([recent.has('hot', 0), recent.has('cold', 0)]).toEqual([true, false])
})

test('a forgotten request can be added again, and is a duplicate then', async () => {
  const world = await openWorld()
  const { frontier } = world
  const url = 'http://a.test/1'
  expect(await frontier.add([url, url])).toMatchObject({ added: 1, duplicates: 1 })
  expect(await frontier.forget(url)).toBe(true)
  expect(frontier.has(url)).toBe(false)
  expect(await frontier.add([url, url])).toMatchObject({ added: 1, duplicates: 1 })
  await world.close()
})

test('a call that was refused leaves nothing behind that says "duplicate"', async () => {
  const world = await openWorld()
  const { frontier } = world
  await expect(frontier.add(['http://a.test/1', 'not a url'])).rejects.toThrow(TypeError)
  expect(frontier.has('http://a.test/1')).toBe(false)
  expect(await frontier.add('http://a.test/1')).toMatchObject({ added: 1 })
  await world.close()
})

test('a full disk: what was refused can be added once there is room', async () => {
  const world = await openWorld()
  const { env, frontier } = world
  await frontier.add('http://a.test/0')
  env.files.capacityBytes = env.files.usedBytes
  await expect(frontier.add('http://a.test/1')).rejects.toMatchObject({ code: 'HOLDFAST_DISK_FULL' })
  env.files.capacityBytes = Infinity
  expect(await frontier.add('http://a.test/1')).toMatchObject({ added: 1 })
  await world.close()
})

test('a memory-only request is seen for good only when it is done', async () => {
  const world = await openWorld()
  const { frontier } = world
  const request = { url: 'http://a.test/1', meta: { onDone: () => {} } }
  expect(await frontier.add(request)).toMatchObject({ added: 1, memoryOnly: 1 })
  expect(await frontier.add('http://a.test/1')).toMatchObject({ duplicates: 1 })
  const [visit] = await frontier.take()
  await visit.bury({ reason: 'x' })
  await frontier.dropDead()
  expect(await frontier.add('http://a.test/1')).toMatchObject({ added: 1 })
  await world.close()
})

test('other identities of the same text are not taken for it', async () => {
  const world = await openWorld()
  const { frontier } = world
  const url = 'http://a.test/form'
  expect(
    await frontier.add([url, { url, method: 'POST' }, { url, body: 'x' }, { url, dontFilter: true }]),
  ).toMatchObject({
    added: 4,
    duplicates: 0,
  })
  await world.close()
})
