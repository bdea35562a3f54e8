/** A lease from hand-out to end: expiry, renewal, giving back, retries, attempts, tokens, signals. */
import { describe, expect, test } from 'vitest'
import { deadLetters, openWorld, pages, refusal, takeAll } from './world.js'

describe('expiry', () => {
  test('at its deadline the job is handed out again and the old lease refused', async () => {
    const world = await openWorld({ leaseMs: 1000 })
    const { frontier, env } = world
    await frontier.add('http://a.test/')
    const [old] = await frontier.take()
    expect(old.deadline).toBe(env.clock.now() + 1000)
    await env.clock.advance(999)
    expect([old.live, (await frontier.take()).length]).toEqual([true, 0])
    await env.clock.advance(1)
    expect(old.live).toBe(false)
    const [again] = await frontier.take()
    expect([again.url, again.attempt, again.failures]).toEqual(['http://a.test/', 2, 0])
    for (const call of [old.ack(), old.retry(), old.bury(), old.release()]) {
      expect((await refusal(call)).code).toBe('HOLDFAST_STALE_LEASE')
    }
    expect(() => old.extend()).toThrow(/lease/)
    await again.ack()
    const { counters, leased, ready } = await frontier.stats()
    expect([counters.acked, counters.expired, leased, ready]).toEqual([1, 1, 0, 0])
    await world.close()
  })

  test('a refused ack adds no children', async () => {
    const world = await openWorld({ leaseMs: 1000 })
    await world.frontier.add('http://a.test/')
    const [old] = await world.frontier.take()
    await world.env.clock.advance(1000)
    await refusal(old.ack({ add: ['http://a.test/child'], state: { done: true } }))
    expect(world.frontier.has('http://a.test/child')).toBe(false)
    expect(world.frontier.state('done')).toBeUndefined()
    await world.close()
  })

  test('extend moves the deadline, for leaseMs or as long as is said', async () => {
    const world = await openWorld({ leaseMs: 1000 })
    const { frontier, env } = world
    await frontier.add('http://a.test/')
    const [visit] = await frontier.take()
    await env.clock.advance(900)
    visit.extend()
    await env.clock.advance(900)
    visit.extend(5000)
    expect(visit.deadline).toBe(env.clock.now() + 5000)
    await env.clock.advance(4999)
    expect(visit.live).toBe(true)
    expect(() => visit.extend(0)).toThrow(TypeError)
    expect(() => visit.extend(Number.NaN)).toThrow(TypeError)
    await visit.ack()
    await world.close()
  })

  test('a jump of the wall clock ends no lease and keeps none', async () => {
    const world = await openWorld({ leaseMs: 1000 })
    await world.frontier.add('http://a.test/')
    const [visit] = await world.frontier.take()
    world.env.clock.jump(3_600_000)
    expect(await world.frontier.take()).toEqual([])
    expect(visit.live).toBe(true)
    world.env.clock.jump(-7_200_000)
    await world.env.clock.advance(1000)
    expect(visit.live).toBe(false)
    await world.close()
  })
})

describe('the signal', () => {
  test('aborts when the lease runs out, with the reason', async () => {
    const world = await openWorld({ leaseMs: 1000 })
    await world.frontier.add('http://a.test/')
    const [visit] = await world.frontier.take()
    expect(visit.signal.aborted).toBe(false)
    await world.env.clock.advance(1000)
    expect(visit.signal.aborted).toBe(true)
    expect(visit.signal.reason).toMatchObject({ code: 'HOLDFAST_STALE_LEASE' })
    await world.close()
  })

  test('is aborted already when it is first asked for too late', async () => {
    const world = await openWorld({ leaseMs: 1000 })
    await world.frontier.add('http://a.test/')
    const [visit] = await world.frontier.take()
    await visit.ack()
    expect(visit.signal.aborted).toBe(true)
    await world.close()
  })

  test('aborts when the store closes, and the job goes back uncounted', async () => {
    const world = await openWorld()
    await world.frontier.add('http://a.test/')
    const [visit] = await world.frontier.take()
    const { signal } = visit
    await world.close()
    expect(signal.reason).toMatchObject({ code: 'HOLDFAST_CLOSED' })
    expect(visit.live).toBe(false)
    expect((await refusal(visit.ack())).code).toBe('HOLDFAST_CLOSED')
    world.move()
    const [again] = await (await world.open()).take()
    expect(again.attempt).toBe(1)
    await world.close()
  })
})

describe('giving back', () => {
  test('release does not count the attempt, retry does', async () => {
    const world = await openWorld()
    const { frontier } = world
    await frontier.add('http://a.test/')
    let [visit] = await frontier.take()
    await visit.release()
    ;[visit] = await frontier.take()
    expect([visit.attempt, visit.failures, visit.lastReason]).toEqual([1, 0, undefined])
    await visit.retry({ reason: 'status 503' })
    ;[visit] = await frontier.take()
    expect([visit.attempt, visit.failures, visit.lastReason]).toEqual([2, 1, 'status 503'])
    await world.env.clock.advance(5)
    ;[visit] = await (await world.dieAndReopen()).take()
    expect([visit.attempt, visit.failures, visit.lastReason]).toEqual([3, 1, 'status 503'])
    await world.close()
  })

  test.each([0, 200])(
    'a delayed retry waits its time across checkpoint and reopening (carrying %i bytes)',
    async (carryBucketBytes) => {
      const world = await openWorld({ tuning: { carryBucketBytes } })
      await world.frontier.add('http://a.test/')
      const [visit] = await world.frontier.take()
      await visit.retry({ delayMs: 90_000, reason: 'later' })
      await world.frontier.checkpoint()
      await world.env.clock.advance(60_000)
      const frontier = await world.dieAndReopen()
      expect(await frontier.take()).toEqual([])
      expect((await frontier.stats()).delayed).toBe(1)
      await world.env.clock.advance(29_999)
      expect(await frontier.take()).toEqual([])
      await world.env.clock.advance(1)
      const [again] = await frontier.take()
      expect([again.attempt, again.failures, again.lastReason]).toEqual([2, 1, 'later'])
      await world.close()
    },
  )

  test('a delayed request comes in its old place once it is due', async () => {
    const world = await openWorld()
    await world.frontier.add('http://a.test/0', { notBefore: world.env.clock.now() + 1000 })
    await world.frontier.add(pages('a', 1, 3))
    await world.env.clock.advance(1000)
    expect((await takeAll(world.frontier)).map((visit) => visit.url)).toEqual(pages('a', 0, 3))
    await world.close()
  })

  test.each([-1, Number.NaN, Infinity, 1e17])('a retry after %s is refused and the lease stays', async (delayMs) => {
    const world = await openWorld()
    await world.frontier.add('http://a.test/')
    const [visit] = await world.frontier.take()
    await expect(visit.retry({ delayMs })).rejects.toThrow(TypeError)
    expect(visit.live).toBe(true)
    await visit.ack()
    await world.close()
  })

  test('a bad child leaves the lease, the state and the other children untouched', async () => {
    const world = await openWorld()
    await world.frontier.add('http://a.test/')
    const [visit] = await world.frontier.take()
    await expect(visit.ack({ add: ['http://a.test/1', 'bad'], state: { n: 1 } })).rejects.toThrow(TypeError)
    expect([visit.live, world.frontier.state('n'), world.frontier.has('http://a.test/1')]).toEqual([
      true,
      undefined,
      false,
    ])
    expect(await visit.ack({ add: ['http://a.test/1'], state: { n: 1 } })).toMatchObject({ added: 1 })
    await world.close()
  })

  test('settling twice: the second is refused, in the same turn too', async () => {
    const world = await openWorld()
    await world.frontier.add('http://a.test/')
    const [visit] = await world.frontier.take()
    const [first, second] = await Promise.allSettled([visit.ack(), visit.retry()])
    expect(first.status).toBe('fulfilled')
    expect(second).toMatchObject({ status: 'rejected', reason: { code: 'HOLDFAST_STALE_LEASE' } })
    expect((await refusal(visit.release())).code).toBe('HOLDFAST_STALE_LEASE')
    await world.close()
  })

  test('everything that ends a lease can carry state', async () => {
    const world = await openWorld()
    await world.frontier.add(pages('a', 0, 4))
    const [a, b, c, d] = await world.frontier.take({ max: 4 })
    await a.ack({ state: { ack: 1 } })
    await b.retry({ state: { retry: 2 }, delayMs: 1000 })
    await c.bury({ state: { bury: 3 } })
    await d.release({ state: { release: 4 } })
    const frontier = await world.dieAndReopen()
    expect(['ack', 'retry', 'bury', 'release'].map((key) => frontier.state(key))).toEqual([1, 2, 3, 4])
    await world.close()
  })
})

describe('attempts', () => {
  test('run out by retries', async () => {
    const world = await openWorld({ maxAttempts: 3 })
    await world.frontier.add('http://a.test/')
    for (let attempt = 1; attempt <= 3; attempt++) {
      const [visit] = await world.frontier.take()
      expect(visit.attempt).toBe(attempt)
      await visit.retry({ reason: 'no answer' })
    }
    expect(await world.frontier.take()).toEqual([])
    const [letter] = await deadLetters(world.frontier)
    expect(letter).toMatchObject({ attempt: 3, reason: 'gave up after 3 attempts: no answer' })
    await world.close()
  })

  test('run out by expiry', async () => {
    const world = await openWorld({ maxAttempts: 2, leaseMs: 1000 })
    await world.frontier.add('http://a.test/')
    for (let i = 0; i < 2; i++) {
      expect(await world.frontier.take()).toHaveLength(1)
      await world.env.clock.advance(1000)
    }
    const { ready, dead, counters } = await world.frontier.stats()
    expect([ready, dead, counters.expired, counters.buried]).toEqual([0, 1, 2, 1])
    const frontier = await world.dieAndReopen()
    const [letter] = await deadLetters(frontier)
    expect(letter.reason).toMatch(/2 attempts; the last lease ran out/)
    expect((await frontier.stats()).counters).toEqual(counters)
    await world.close()
  })

  test('run out by a process that dies each time', async () => {
    const world = await openWorld({ maxAttempts: 2 })
    await world.frontier.add('http://a.test/')
    await world.frontier.take()
    // The mark that it was handed out is on disk within 5 ms.
    await world.env.clock.advance(5)
    const again = await world.dieAndReopen()
    expect(again.recovery).toMatchObject({ leases: 1, buried: 0 })
    expect((await again.take())[0].attempt).toBe(2)
    await world.env.clock.advance(5)
    const last = await world.dieAndReopen()
    expect(last.recovery).toMatchObject({ leases: 1, buried: 1 })
    expect(await last.take()).toEqual([])
    const [letter] = await deadLetters(last)
    expect(letter.reason).toMatch(/the process ended while it was leased/)
    expect((await (await world.dieAndReopen()).stats()).dead).toBe(1)
    await world.close()
  })

  test('are counted across a checkpoint that carries the lease', async () => {
    const world = await openWorld()
    await world.frontier.add('http://a.test/')
    await world.frontier.take()
    await world.frontier.checkpoint()
    const [visit] = await (await world.dieAndReopen()).take()
    expect(visit.attempt).toBe(2)
    await world.close()
  })
})

test('no two hand-outs share a token, expiry, reopening and kills included', async () => {
  const world = await openWorld({ leaseMs: 1000 })
  await world.frontier.add(pages('a', 0, 3))
  const tokens: string[] = []
  for (let round = 0; round < 6; round++) {
    const visits = await world.frontier.take({ max: 3 })
    tokens.push(...visits.map((visit) => visit.token))
    if (round % 3 === 0) await world.env.clock.advance(1000)
    else if (round % 3 === 1) await world.dieAndReopen()
    else await world.closeAndReopen()
  }
  expect(tokens).toHaveLength(18)
  expect(new Set(tokens).size).toBe(18)
  await world.close()
})

test.each([0, -1, 1.5, Number.NaN, Infinity])('take of %s is refused', async (max) => {
  const world = await openWorld()
  await expect(world.frontier.take({ max })).rejects.toThrow(TypeError)
  await world.close()
})
