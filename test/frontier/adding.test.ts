/** What `add` accepts, how it counts, and that what it refuses leaves nothing behind. */
import { describe, expect, test } from 'vitest'
import { requestFingerprint } from '../../src/frontier/frontier.js'
import type { RequestInput } from '../../src/frontier/types.js'
import { openWorld, pages, refusal, takeAll, takeUrls } from './world.js'

describe('one, many, and a stream', () => {
  test('a string, a URL and a request each count once', async () => {
    const world = await openWorld()
    const { frontier } = world
    const one = { added: 1, duplicates: 0, memoryOnly: 0, invalid: 0 }
    expect(await frontier.add('http://a.test/1')).toEqual(one)
    expect(await frontier.add(new URL('http://a.test/2'))).toEqual(one)
    expect(await frontier.add({ url: 'http://a.test/3' })).toEqual(one)
    expect(await takeUrls(frontier)).toEqual(pages('a', 1, 4))
    await world.close()
  })

  test('duplicates are counted within a call, between calls and across a kill', async () => {
    const world = await openWorld()
    const urls = pages('a', 0, 3)
    expect(await world.frontier.add([...urls, urls[0]])).toMatchObject({ added: 3, duplicates: 1 })
    expect(await world.frontier.add(urls)).toMatchObject({ added: 0, duplicates: 3 })
    const again = await world.dieAndReopen()
    expect(await again.add(urls)).toMatchObject({ added: 0, duplicates: 3 })
    await world.close()
  })

  test('two calls in one turn agree on who was first', async () => {
    const world = await openWorld()
    const [a, b] = await Promise.all([world.frontier.add('http://a.test/'), world.frontier.add('http://a.test/')])
    expect([a.added, a.duplicates, b.added, b.duplicates]).toEqual([1, 0, 0, 1])
    await world.close()
  })

  test('the same page in another spelling, and another method or body', async () => {
    const world = await openWorld()
    const requests: RequestInput[] = [
      'http://a.test/?b=2&a=1#top',
      'http://a.test/?a=1&b=2',
      { url: 'http://a.test/?a=1&b=2', method: 'post' },
      { url: 'http://a.test/?a=1&b=2', method: 'POST', body: 'x' },
      { url: 'http://a.test/?a=1&b=2', method: 'POST', body: Buffer.from('x') },
    ]
    expect(await world.frontier.add(requests)).toMatchObject({ added: 3, duplicates: 2 })
    await world.close()
  })

  test('an empty list is nothing', async () => {
    const world = await openWorld()
    const before = world.disk()
    expect(await world.frontier.add([])).toEqual({ added: 0, duplicates: 0, memoryOnly: 0, invalid: 0 })
    expect(world.disk()).toEqual(before)
    await world.close()
  })

  test('an iterable of more than one chunk', async () => {
    const world = await openWorld({ tuning: { journalBytes: 1e7, seenTableKeys: 1e5 } })
    const seen = new Set(pages('a', 0, 2500))
    expect(await world.frontier.add(seen)).toMatchObject({ added: 2500, duplicates: 0 })
    await world.close()
  })

  test('of an async iterable a chunk is stored before the next is pulled', async () => {
    const world = await openWorld({ tuning: { journalBytes: 1e7, seenTableKeys: 1e5 } })
    const { frontier } = world
    const unstored: number[] = []
    async function* endless(): AsyncGenerator<string> {
      for (let pulled = 0; pulled < 3500; pulled++) {
        unstored.push(pulled - (await frontier.stats()).counters.added)
        yield `http://a.test/${pulled}`
      }
    }
    expect(await frontier.add(endless())).toMatchObject({ added: 3500 })
    expect(Math.max(...unstored)).toBeLessThan(1000)
    await world.close()
  })

  test('a source that fails keeps what was stored, and tells its error', async () => {
    const world = await openWorld({ tuning: { journalBytes: 1e7, seenTableKeys: 1e5 } })
    function* breaking(): Generator<string> {
      yield* pages('a', 0, 1500)
      throw new RangeError('the source broke')
    }
    await expect(world.frontier.add(breaking())).rejects.toThrow(RangeError)
    expect((await world.frontier.stats()).ready).toBe(1000)
    await world.close()
  })
})

describe('every field comes back', () => {
  test('after a take, a kill and a checkpoint', async () => {
    const world = await openWorld({ tuning: { carryBucketBytes: 0 } })
    const request = {
      url: 'http://a.test/x',
      method: 'put',
      body: Uint8Array.of(0, 1, 255),
      headers: { accept: 'text/html' },
      meta: { depth: 3, deep: { list: [1, 'two', null] } },
      priority: 7,
      slot: 'shared',
      start: true,
    }
    await world.frontier.add(request)
    await world.frontier.checkpoint()
    const [visit] = await (await world.dieAndReopen()).take()
    const { url, method, headers, meta, priority, slot, start, attempt } = visit
    expect({ url, method, headers, meta, priority, slot, start, attempt }).toEqual({
      url: request.url,
      method: 'PUT',
      headers: request.headers,
      meta: request.meta,
      priority: 7,
      slot: 'shared',
      start: true,
      attempt: 1,
    })
    expect([...(visit.body as Uint8Array)]).toEqual([0, 1, 255])
    expect(visit.addedAt).toBe(world.env.clock.now())
    await world.close()
  })

  test('defaults of the call give way to the request', async () => {
    const world = await openWorld()
    const requests = [{ url: 'http://a.test/1', priority: -1, meta: { own: true }, slot: 'mine' }, 'http://a.test/2']
    await world.frontier.add(requests, { priority: 4, meta: { own: false }, slot: 'theirs' })
    const visits = await takeAll(world.frontier)
    expect(visits.map(({ url, priority, meta, slot }) => [url, priority, meta, slot])).toEqual([
      ['http://a.test/2', 4, { own: false }, 'theirs'],
      ['http://a.test/1', -1, { own: true }, 'mine'],
    ])
    await world.close()
  })
})

describe('what is no request', () => {
  const ok = 'http://a.test/fine'
  test.each<[string, unknown, RegExp]>([
    ['not a URL', 'nonsense', /request 1: .*"nonsense"/],
    ['a relative URL', '/page', /found no scheme/],
    ['no string', 5, /5 is not a request/],
    ['null', null, /null is not a request/],
    ['a request without URL', { method: 'GET' }, /not an absolute URL/],
    ['an empty method', { url: ok, method: '' }, /method/],
    ['a fraction as priority', { url: ok, priority: 0.5 }, /priority is 0.5/],
    ['an unsafe priority', { url: ok, priority: 2 ** 53 }, /safe integer/],
    ['a negative time', { url: ok, notBefore: -1 }, /notBefore is -1/],
    ['a time that is none', { url: ok, notBefore: Number.NaN }, /notBefore/],
    ['an endless time', { url: ok, notBefore: Infinity }, /notBefore/],
    ['a Date', { url: ok, notBefore: new Date() }, /notBefore/],
    ['a slot that is no string', { url: ok, slot: 3 }, /slot is 3/],
    ['a number as body', { url: ok, body: 5 }, /body/],
    ['null as body', { url: ok, body: null }, /body/],
    ['a DataView as body', { url: ok, body: new DataView(new ArrayBuffer(2)) }, /body/],
  ])('%s: TypeError, and nothing of the call is there', async (_name, bad, message) => {
    const world = await openWorld()
    const before = world.disk()
    const call = world.frontier.add([ok, bad as RequestInput, 'http://a.test/after'])
    await expect(call).rejects.toThrow(TypeError)
    await expect(call).rejects.toThrow(message)
    expect(world.disk()).toEqual(before)
    const { ready, seen, counters } = await world.frontier.stats()
    expect([ready, seen, counters.added, counters.duplicates]).toEqual([0, 0, 0, 0])
    expect(world.frontier.has(ok)).toBe(false)
    expect(await world.frontier.add(ok)).toMatchObject({ added: 1 })
    await world.close()
  })

  test.each([undefined, null, 5])('%s instead of requests', async (nothing) => {
    const world = await openWorld()
    await expect(world.frontier.add(nothing as never)).rejects.toThrow(TypeError)
    await world.close()
  })

  test('the message says how many were accepted before', async () => {
    const world = await openWorld({ tuning: { journalBytes: 1e7, seenTableKeys: 1e5 } })
    await expect(world.frontier.add([...pages('a', 0, 1000), 'bad'])).rejects.toThrow(/1000 requests before it/)
    expect((await world.frontier.stats()).ready).toBe(1000)
    await world.close()
  })

  test('onInvalid skip goes on and counts', async () => {
    const world = await openWorld()
    const result = await world.frontier.add(['bad', 'http://a.test/', '', 'http://a.test/'], { onInvalid: 'skip' })
    expect(result).toEqual({ added: 1, duplicates: 1, memoryOnly: 0, invalid: 2 })
    await world.close()
  })

  test('another call of the same turn is not harmed', async () => {
    const world = await openWorld()
    const [good, bad, also] = await Promise.allSettled([
      world.frontier.add('http://a.test/1'),
      world.frontier.add(['http://a.test/2', 'bad']),
      world.frontier.add('http://a.test/2'),
    ])
    expect([good.status, bad.status, also.status]).toEqual(['fulfilled', 'rejected', 'fulfilled'])
    expect(await takeUrls(world.frontier)).toEqual(pages('a', 1, 3))
    await world.close()
  })

  test('a job over the limit is refused alone', async () => {
    const world = await openWorld()
    const error = await refusal(world.frontier.add({ url: 'http://a.test/', body: Buffer.alloc(17 * 2 ** 20) }))
    expect(error.code).toBe('HOLDFAST_TOO_LARGE')
    expect(world.frontier.has({ url: 'http://a.test/', body: 'x' })).toBe(false)
    await world.frontier.add('http://a.test/')
    expect(await takeUrls(world.frontier)).toEqual(['http://a.test/'])
    await world.close()
  })
})

describe('the filter', () => {
  test('dontFilter is neither checked nor recorded', async () => {
    const world = await openWorld()
    const { frontier } = world
    expect(await frontier.add(['http://a.test/', 'http://a.test/'], { dontFilter: true })).toMatchObject({ added: 2 })
    expect(frontier.has('http://a.test/')).toBe(false)
    expect(await frontier.add('http://a.test/')).toMatchObject({ added: 1 })
    expect((await frontier.stats()).seen).toBe(1)
    await world.close()
  })

  test('dontFilter with recordSeen is not checked but recorded', async () => {
    const world = await openWorld()
    const { frontier } = world
    const options = { dontFilter: true, recordSeen: true }
    expect(await frontier.add(['http://a.test/', 'http://a.test/'], options)).toMatchObject({ added: 2 })
    expect(await frontier.add('http://a.test/')).toMatchObject({ duplicates: 1 })
    const again = await world.dieAndReopen()
    expect(again.has('http://a.test/')).toBe(true)
    expect((await again.stats()).seen).toBe(1)
    await world.close()
  })

  test('has and forget, also for what lies in a run', async () => {
    const world = await openWorld()
    await world.frontier.add(pages('a', 0, 40))
    await world.frontier.checkpoint()
    expect(world.frontier.has('http://a.test/7')).toBe(true)
    expect(await world.frontier.forget('http://a.test/7')).toBe(true)
    expect(await world.frontier.forget('http://a.test/7')).toBe(false)
    let frontier = await world.dieAndReopen()
    expect(frontier.has('http://a.test/7')).toBe(false)
    expect(frontier.has('http://a.test/8')).toBe(true)
    await frontier.checkpoint()
    frontier = await world.closeAndReopen()
    expect(await frontier.add('http://a.test/7')).toMatchObject({ added: 1 })
    expect((await frontier.stats()).seen).toBe(40)
    await world.close()
  })

  test('forget twice in one turn forgets once', async () => {
    const world = await openWorld()
    await world.frontier.add(pages('a', 0, 3))
    await Promise.all([world.frontier.forget('http://a.test/1'), world.frontier.forget('http://a.test/1')])
    expect((await world.frontier.stats()).seen).toBe(2)
    await world.close()
  })

  test('an identity of the user', async () => {
    const host = (request: { url: string }): Buffer => requestFingerprint(`http://${new URL(request.url).host}/`)
    const world = await openWorld({ fingerprint: host })
    expect(await world.frontier.add([...pages('a', 0, 3), ...pages('b', 0, 2)])).toMatchObject({ added: 2 })
    await world.close()
  })

  test('a fingerprint that is too short is refused', async () => {
    const world = await openWorld({ fingerprint: () => Buffer.alloc(8) })
    await expect(world.frontier.add('http://a.test/')).rejects.toThrow(/8 bytes, expected 16/)
    await world.close()
  })
})
