/** `visits`, `crawl` and `work`: when they wait, when they end, what they do with failures. */
import { describe, expect, test } from 'vitest'
import { defaultBackoff } from '../../src/frontier/work-loop.js'
import { deadLetters, openWorld, pages, type World } from './world.js'

/** Lets time pass, second by second, until the promise is settled; fails when it is not after an hour. */
async function within<T>(world: World, promise: Promise<T>, stepMs = 1000): Promise<T> {
  let settled = false
  const mark = (): void => {
    settled = true
  }
  promise.then(mark, mark)
  await world.env.clock.settle()
  for (let i = 0; !settled && i < 3600; i++) await world.env.clock.advance(stepMs)
  expect(settled, 'it ends').toBe(true)
  return promise
}

/** A promise to be settled from outside. */
function gate(): { readonly opened: Promise<void>; open(): void } {
  let open = (): void => {}
  const opened = new Promise<void>((resolve) => {
    open = resolve
  })
  return { opened, open: () => open() }
}

describe('visits', () => {
  test('ends when all is done, children included', async () => {
    const world = await openWorld()
    await world.frontier.add('http://a.test/0')
    const got: string[] = []
    for await (const visit of world.frontier.visits()) {
      got.push(visit.url)
      await visit.ack({ add: got.length < 5 ? [`http://a.test/${got.length}`] : [] })
    }
    expect(got).toEqual(pages('a', 0, 5))
    await world.close()
  })

  test('of an empty frontier ends at once', async () => {
    const world = await openWorld()
    for await (const visit of world.frontier.visits()) throw new Error(`${visit.url} is there`)
    await world.close()
  })

  test('waits for what is delayed, and for what another holds', async () => {
    const world = await openWorld()
    const { frontier, env } = world
    await frontier.add('http://a.test/held')
    const [held] = await frontier.take()
    await frontier.add('http://a.test/late', { notBefore: env.clock.now() + 60_000 })
    const got: [string, number][] = []
    const began = env.clock.now()
    const loop = (async () => {
      for await (const visit of frontier.visits()) {
        got.push([visit.url, env.clock.now() - began])
        await visit.ack()
      }
    })()
    await env.clock.advance(10_000)
    await held.retry()
    await within(world, loop)
    expect(got).toEqual([
      ['http://a.test/held', 10_000],
      ['http://a.test/late', 60_000],
    ])
    await world.close()
  })

  test('waits for the clock of a slot no longer than needed', async () => {
    const world = await openWorld({ politeness: { delayMs: 700 } })
    await world.frontier.add(pages('a', 0, 4))
    const began = world.env.clock.now()
    const times: number[] = []
    const loop = (async () => {
      for await (const visit of world.frontier.visits()) {
        times.push(world.env.clock.now() - began)
        await visit.ack()
      }
    })()
    await within(world, loop, 1)
    expect(times).toEqual([0, 700, 1400, 2100])
    await world.close()
  })

  test('leaving by break gives back at once, without a failure', async () => {
    const world = await openWorld()
    await world.frontier.add(pages('a', 0, 2))
    for await (const visit of world.frontier.visits()) {
      expect(visit.url).toBe('http://a.test/0')
      break
    }
    const { ready, leased } = await world.frontier.stats()
    expect([ready, leased]).toEqual([2, 0])
    const [visit] = await world.frontier.take()
    expect([visit.url, visit.failures]).toEqual(['http://a.test/0', 0])
    await world.close()
  })

  test('leaving by an error gives back and lets the error through', async () => {
    const world = await openWorld()
    await world.frontier.add('http://a.test/')
    const loop = async (): Promise<void> => {
      for await (const visit of world.frontier.visits()) throw new RangeError(visit.url)
    }
    await expect(loop()).rejects.toThrow(RangeError)
    expect((await world.frontier.stats()).ready).toBe(1)
    await world.close()
  })

  test('an abort while it waits ends it without an error', async () => {
    const world = await openWorld()
    await world.frontier.add('http://a.test/', { notBefore: world.env.clock.now() + 1e9 })
    const abort = new AbortController()
    const loop = (async () => {
      for await (const visit of world.frontier.visits({ signal: abort.signal })) throw new Error(visit.url)
    })()
    await world.env.clock.settle()
    abort.abort(new Error('enough'))
    await loop
    await world.close()
  })

  test('closing while it waits ends it', async () => {
    const world = await openWorld()
    await world.frontier.add('http://a.test/', { notBefore: world.env.clock.now() + 1e9 })
    const loop = (async () => {
      for await (const visit of world.frontier.visits()) throw new Error(visit.url)
    })()
    await world.env.clock.settle()
    await world.close()
    await loop
  })

  test('two loops share the work', async () => {
    const world = await openWorld()
    await world.frontier.add(pages('a', 0, 20))
    const got: string[] = []
    const loop = async (): Promise<void> => {
      for await (const visit of world.frontier.visits()) {
        got.push(visit.url)
        await visit.ack()
      }
    }
    await within(world, Promise.all([loop(), loop()]))
    expect(got.sort()).toEqual(pages('a', 0, 20).sort())
    await world.close()
  })

  test.each(['process', 'power'] as const)(
    'a checkpoint that moves the last jobs ends no loop (%s)',
    async (durability) => {
      const world = await openWorld({ durability })
      await world.frontier.add(pages('a', 0, 60))
      await world.frontier.checkpoint()
      for (const visit of await world.frontier.take({ max: 57 })) await visit.ack()
      const syncing = durability === 'power' ? world.frontier.setState({ n: 1 }) : undefined
      await world.env.clock.settle(2)
      const running = world.frontier.checkpoint()
      // Three are left, and on their way forward in the journal.
      expect((await world.frontier.stats()).ready).toBe(3)
      let count = 0
      for await (const visit of world.frontier.visits()) {
        count++
        await visit.ack()
      }
      expect(count).toBe(3)
      await Promise.all([running, syncing])
      await world.close()
    },
  )
})

describe('crawl', () => {
  test('acks what a handler returns, with children and state', async () => {
    const world = await openWorld()
    await world.frontier.add('http://a.test/0')
    let calls = 0
    await within(
      world,
      world.frontier.crawl((visit) => {
        calls++
        return calls < 4 ? { add: [`http://a.test/${calls}`], state: { last: visit.url } } : undefined
      }),
    )
    expect([calls, world.frontier.state('last')]).toEqual([4, 'http://a.test/2'])
    expect((await world.frontier.stats()).counters.acked).toBe(4)
    await world.close()
  })

  test('runs no more handlers at once than asked for, and as many when there is work', async () => {
    const world = await openWorld()
    await world.frontier.add(pages('a', 0, 20))
    let running = 0
    let most = 0
    const crawl = world.frontier.crawl(
      async () => {
        most = Math.max(most, ++running)
        await new Promise<void>((resolve) => world.env.clock.after(100, resolve))
        running--
      },
      { concurrency: 3 },
    )
    await within(world, crawl, 50)
    expect(most).toBe(3)
    await world.close()
  })

  test.each([0, -1, 1.5, Number.NaN])('concurrency %s is refused', async (concurrency) => {
    const world = await openWorld()
    await expect(world.frontier.crawl(() => {}, { concurrency })).rejects.toThrow(TypeError)
    await world.close()
  })

  test('retries with backoff, then buries with the last error', async () => {
    const world = await openWorld()
    await world.frontier.add('http://a.test/')
    const times: number[] = []
    const began = world.env.clock.now()
    const crawl = world.frontier.crawl(
      (visit) => {
        times.push(world.env.clock.now() - began)
        throw new Error(`failure ${visit.attempt}`)
      },
      { retries: 2, backoff: (failures) => failures * 1000 },
    )
    await within(world, crawl, 100)
    expect(times).toEqual([0, 1000, 3000])
    expect(await deadLetters(world.frontier)).toMatchObject([{ reason: 'failure 3', attempt: 3, failures: 2 }])
    await world.close()
  })

  test('the default backoff doubles from a second to ten minutes, with jitter', () => {
    const base = [1, 2, 3, 4, 20].map((failures) => defaultBackoff(failures, 0))
    expect(base).toEqual([1000, 2000, 4000, 8000, 600_000])
    expect(defaultBackoff(1, 0.999999)).toBeLessThanOrEqual(1500)
    expect(defaultBackoff(1, 0.5)).toBe(1250)
  })

  test('renews the leases of handlers that take long', async () => {
    const world = await openWorld({ leaseMs: 3000 })
    await world.frontier.add('http://a.test/')
    const attempts: number[] = []
    const crawl = world.frontier.crawl(async (visit) => {
      attempts.push(visit.attempt)
      await new Promise<void>((resolve) => world.env.clock.after(20_000, resolve))
      expect(visit.live).toBe(true)
    })
    await within(world, crawl, 500)
    expect(attempts).toEqual([1])
    expect((await world.frontier.stats()).counters).toMatchObject({ acked: 1, expired: 0 })
    await world.close()
  })

  test('ends when the last handler returns, though it works on after its ack', async () => {
    const world = await openWorld()
    await world.frontier.add('http://a.test/')
    const afterwards = gate()
    let ended = false
    const crawl = world.frontier
      .crawl(async (visit) => {
        await visit.ack()
        await afterwards.opened
      })
      .then(() => {
        ended = true
      })
    await world.env.clock.advance(100)
    expect(ended).toBe(false)
    afterwards.open()
    // No lease and no delay has to run out for it.
    await world.env.clock.settle()
    expect(ended).toBe(true)
    await crawl
    await world.close()
  })

  test('a handler may settle by itself, in any way', async () => {
    const world = await openWorld()
    await world.frontier.add(pages('a', 0, 3))
    await within(
      world,
      world.frontier.crawl(async (visit) => {
        if (visit.id === 1) await visit.bury({ reason: 'mine' })
        if (visit.id === 2 && visit.attempt === 1) await visit.retry()
      }),
    )
    const { counters, dead } = await world.frontier.stats()
    expect([counters.acked, counters.retried, dead]).toEqual([2, 1, 1])
    await world.close()
  })

  test('an abort lets handlers finish, takes nothing more, and does not throw', async () => {
    const world = await openWorld()
    await world.frontier.add(pages('a', 0, 5))
    const abort = new AbortController()
    const finish = gate()
    const crawl = world.frontier.crawl(() => finish.opened, { concurrency: 2, signal: abort.signal })
    await world.env.clock.advance(10)
    abort.abort()
    await world.env.clock.settle()
    finish.open()
    await within(world, crawl)
    const { counters, ready, leased } = await world.frontier.stats()
    expect([counters.acked, ready, leased]).toEqual([2, 3, 0])
    await world.close()
  })

  test('a handler that fails because of the abort gives its job back uncounted', async () => {
    const world = await openWorld()
    await world.frontier.add('http://a.test/')
    const abort = new AbortController()
    const crawl = world.frontier.crawl(
      () => new Promise((_resolve, reject) => abort.signal.addEventListener('abort', reject)),
      { signal: abort.signal },
    )
    await world.env.clock.settle()
    abort.abort()
    await within(world, crawl)
    const [visit] = await world.frontier.take()
    expect([visit.attempt, visit.failures]).toEqual([1, 0])
    await world.close()
  })

  test('what a commit fails with ends the crawl', async () => {
    const world = await openWorld({ tuning: { reserveBytes: 0 } })
    await world.frontier.add(pages('a', 0, 3))
    const crawl = world.frontier.crawl(() => {
      world.env.files.capacityBytes = world.env.files.usedBytes
    })
    await expect(within(world, crawl)).rejects.toMatchObject({ code: 'HOLDFAST_DISK_FULL' })
    world.env.files.capacityBytes = Infinity
    expect((await world.frontier.stats()).counters.acked).toBe(0)
    await world.close()
  })

  test('closing during a crawl ends it; what was in hand goes back', async () => {
    const world = await openWorld()
    await world.frontier.add(pages('a', 0, 3))
    const finish = gate()
    const crawl = world.frontier.crawl(() => finish.opened, { concurrency: 2 })
    await world.env.clock.settle()
    await world.close()
    finish.open()
    await crawl
    world.move()
    const visits = await (await world.open()).take({ max: 9 })
    expect(visits.map((visit) => visit.attempt)).toEqual([1, 1, 1])
    await world.close()
  })
})
