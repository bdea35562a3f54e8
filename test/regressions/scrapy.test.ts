/**
 * What users of Scrapy's disk queues have reported over the years, replayed: after any death the next run has every request
 * that was accepted and not done, and none that was.
 */
import { describe, expect, test } from 'vitest'
import { simEnv } from '../../src/env/sim-env.js'
import { openQueue } from '../../src/frontier/queue.js'
import { jobPaths, journalName } from '../../src/store/file-names.js'
import { FILE_HEADER_BYTES } from '../../src/store/format.js'
import { DIRECTORY, openWorld, pages, refusal, takeAll, takeUrls, World } from '../frontier/world.js'

test('lifo after an unclean stop: a clean run, then a killed one, opens with exactly what was not done', async () => {
  const world = await openWorld({ order: 'lifo' })
  await world.frontier.add(pages('a', 0, 3))
  const second = await world.closeAndReopen()
  for (const visit of await second.take({ max: 2 })) await visit.ack()
  expect(await takeUrls(await world.dieAndReopen())).toEqual(['http://a.test/0'])
  await world.close()
})

test('a first run that is killed before it ever closed keeps what it accepted', async () => {
  const world = await openWorld({ order: 'lifo' })
  await world.frontier.add(pages('a', 0, 3))
  const again = await world.dieAndReopen()
  expect((await again.stats()).ready).toBe(3)
  expect(await takeUrls(again)).toEqual(pages('a', 0, 3).toReversed())
  await world.close()
})

test.each(['killed', 'left by an exception'] as const)(
  'a crawl %s after 4 of 40: the other 36 come, none is taken for seen',
  async (how) => {
    const world = await openWorld()
    await world.frontier.add(pages('a', 0, 40))
    const loop = async (): Promise<void> => {
      let count = 0
      for await (const visit of world.frontier.visits()) {
        if (count++ === 4) throw new Error('spider error')
        await visit.ack()
      }
    }
    await expect(loop()).rejects.toThrow('spider error')
    const again = how === 'killed' ? await world.dieAndReopen() : await world.closeAndReopen()
    expect(await again.add(pages('a', 0, 40))).toMatchObject({ added: 0, duplicates: 40 })
    expect(await takeUrls(again)).toEqual(pages('a', 4, 40))
    await world.close()
  },
)

test('stopped twice in a hurry with 16 in flight: they are delivered again, in their old place, and the rest is kept', async () => {
  const world = await openWorld()
  await world.frontier.add(pages('a', 0, 50))
  const abort = new AbortController()
  const taken: string[] = []
  const crawl = world.frontier.crawl(
    (visit) => {
      taken.push(visit.url)
      return new Promise<void>(() => {})
    },
    { concurrency: 16, signal: abort.signal },
  )
  crawl.catch(() => {})
  await world.env.clock.advance(10)
  expect(taken).toHaveLength(16)
  abort.abort()
  await world.env.clock.advance(10)
  // The second signal: the process goes, whatever it was doing.
  const again = await world.dieAndReopen()
  expect(again.recovery.leases).toBe(16)
  const visits = await takeAll(again)
  expect(visits.map((visit) => visit.url)).toEqual(pages('a', 0, 50))
  expect(visits.filter((visit) => visit.attempt === 2)).toHaveLength(16)
  await world.close()
})

test('killed at each byte of the log: what is there is some prefix of what was done, and goes on', async () => {
  const world = await openWorld()
  const { frontier, env } = world
  const path = `${jobPaths(DIRECTORY).journal}/${journalName(1)}`
  /** By length of the log: what is not done. */
  const states: { bytes: number; left: string[] }[] = []
  const note = (left: string[]): void => void states.push({ bytes: env.files.contents(path).length, left })
  note([])
  await frontier.add(pages('a', 0, 3))
  note(pages('a', 0, 3))
  const [a, b] = await frontier.take({ max: 2 })
  await a.ack({ add: pages('b', 0, 2) })
  note([...pages('a', 1, 3), ...pages('b', 0, 2)])
  await b.retry()
  note([...pages('a', 1, 3), ...pages('b', 0, 2)])
  await frontier.add(pages('c', 0, 1))
  note([...pages('a', 1, 3), ...pages('b', 0, 2), ...pages('c', 0, 1)])
  const log = env.files.contents(path)
  for (let bytes = FILE_HEADER_BYTES; bytes <= log.length; bytes++) {
    const cut = new World({})
    cut.move(env.files.crash({ seed: bytes, unsynced: 'kept' }))
    cut.env.files.setContents(path, log.subarray(0, bytes))
    const again = await cut.open()
    const expected = states.findLast((state) => state.bytes <= bytes)?.left ?? []
    expect((await takeUrls(again)).sort(), `${bytes} bytes`).toEqual([...expected].sort())
    await again.add('http://after.test/')
    await cut.close()
  }
})

test('buckets and hosts that are new since the last manifest are found after a kill', async () => {
  const world = await openWorld({ tuning: { carryBucketBytes: 0 } })
  await world.frontier.add(pages('a', 0, 3))
  await world.frontier.checkpoint()
  await world.frontier.add(pages('new', 0, 3), { priority: 9 })
  await world.frontier.add(pages('other', 0, 3), { start: true })
  expect(await takeUrls(await world.dieAndReopen())).toEqual([
    ...pages('new', 0, 3),
    ...pages('a', 0, 3),
    ...pages('other', 0, 3),
  ])
  await world.close()
})

test('a queue that is never closed is not empty the next time', async () => {
  const env = simEnv({ seed: 1 })
  const queue = await openQueue<number>(DIRECTORY, { env })
  for (let i = 0; i < 10; i++) await queue.push(i)
  const files = env.files.crash({ seed: 1, unsynced: 'kept' })
  const again = await openQueue<number>(DIRECTORY, { env: simEnv({ seed: 2, files }) })
  expect((await again.take({ max: 20 })).map((job) => job.payload)).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
  await again.close()
})

describe('a disk that fills up in the middle of a lifo push', () => {
  test('at each byte: the push is refused, what was there is there, and it works when there is room', async () => {
    for (let room = 0; ; room += 3) {
      const world = await openWorld({ order: 'lifo', tuning: { reserveBytes: 0 } })
      await world.frontier.add(pages('a', 0, 3))
      world.env.files.capacityBytes = world.env.files.usedBytes + room
      const fits = await world.frontier.add(pages('b', 0, 3)).then(
        () => true,
        () => false,
      )
      if (fits) {
        expect(room).toBeGreaterThan(50)
        break
      }
      const again = await world.dieAndReopen()
      expect((await refusal(again.add(pages('c', 0, 3)))).code).toBe('HOLDFAST_DISK_FULL')
      world.env.files.capacityBytes = Infinity
      await again.add(pages('b', 0, 3))
      expect(await takeUrls(again)).toEqual(
        [...pages('b', 0, 3).toReversed(), ...pages('a', 0, 3).toReversed()].sort(byRotation),
      )
      await world.close()
    }
  })
})

/** Hosts take turns: the one that came first begins. */
function byRotation(x: string, y: string): number {
  const turn = (url: string): number => (2 - Number(url.at(-1))) * 2 + (url.includes('//a.') ? 0 : 1)
  return turn(x) - turn(y)
}
