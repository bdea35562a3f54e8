/** Payloads that cannot be written to disk: found by their path, served from memory, or refused; the rest round-trips. */
import { describe, expect, test } from 'vitest'
import { openQueue } from '../../src/frontier/queue.js'
import { checkAgainstDisk } from '../support/checked.js'
import { DIRECTORY, deadLetters, openWorld, refusal, takeUrls, type World } from './world.js'

class Session {
  cookie = 'x'
}

function warningsOf(world: World): { code: string; message: string }[] {
  const warnings: { code: string; message: string }[] = []
  world.frontier.on('warning', (warning) => warnings.push(warning))
  return warnings
}

describe('what cannot be written', () => {
  test.each<[string, Record<string, unknown>, string]>([
    ['a function', { onDone: () => {} }, 'meta.onDone'],
    ['a symbol', { kind: Symbol('x') }, 'meta.kind'],
    ['a promise', { page: { body: Promise.resolve() } }, 'meta.page.body'],
    ['a class instance', { list: [1, { session: new Session() }] }, 'meta.list[1].session'],
    ['an error', { cause: new Error('x') }, 'meta.cause'],
    ['a generator', { links: (function* () {})() }, 'meta.links'],
    ['a WeakMap', { weak: new WeakMap() }, 'meta.weak'],
    ['a function in a Map', { map: new Map([['key', () => {}]]) }, 'meta.map.key'],
    ['a function in a Set', { set: new Set([() => {}]) }, 'meta.set.<item>'],
    ['an object as key of a Map', { map: new Map([[new Session(), 1]]) }, 'meta.map.<key>'],
    ['a symbol as key', { [Symbol('x')]: 1 }, 'meta'],
    ['a function at a key with a colon', { 'a: b': () => {} }, 'meta.a: b'],
    ['an abort signal', { signal: new AbortController().signal }, 'meta.signal'],
  ])('%s is found at its path', async (_name, meta, field) => {
    const world = await openWorld()
    const warnings = warningsOf(world)
    const result = await world.frontier.add({ url: 'http://a.test/', meta })
    expect(result).toEqual({ added: 1, duplicates: 0, memoryOnly: 1, invalid: 0 })
    expect(warnings).toHaveLength(1)
    expect(warnings[0].code).toBe('memory-only')
    expect(warnings[0].message).toContain(`${field}: `)
    const [visit] = await world.frontier.take()
    // The very object, not a copy.
    expect(visit.meta).toBe(meta)
    await visit.ack()
    await world.close()

    const strict = await openWorld({ memoryFallback: false })
    const error = await refusal(strict.frontier.add(['http://b.test/', { url: 'http://a.test/', meta }]))
    expect([error.code, error.field]).toEqual(['HOLDFAST_UNSERIALIZABLE', field])
    expect([strict.frontier.has('http://b.test/'), (await strict.frontier.stats()).ready]).toEqual([false, 0])
    await strict.close()
  })

  test('is warned about once for each field, and again at close', async () => {
    const world = await openWorld()
    const warnings = warningsOf(world)
    const requests = [0, 1, 2].map((i) => ({ url: `http://a.test/${i}`, meta: { f: () => i } }))
    await world.frontier.add(requests)
    await world.frontier.add({ url: 'http://a.test/3', meta: { g: () => 3 } })
    expect(warnings.map((warning) => warning.code)).toEqual(['memory-only', 'memory-only'])
    expect((await world.frontier.stats()).memoryOnly).toBe(4)
    await world.close()
    expect(warnings[2]).toMatchObject({ code: 'memory-only-lost', message: expect.stringMatching(/^4 jobs/) })
  })

  test('is served before disk at equal priority, and only there', async () => {
    const world = await openWorld()
    const meta = { f: () => {} }
    await world.frontier.add('http://a.test/high', { priority: 1 })
    await world.frontier.add(['http://a.test/disk', 'http://b.test/disk'])
    await world.frontier.add({ url: 'http://a.test/memory', meta })
    await world.frontier.add({ url: 'http://a.test/low', meta }, { priority: -1 })
    expect(await takeUrls(world.frontier)).toEqual([
      'http://a.test/high',
      'http://a.test/memory',
      'http://b.test/disk',
      'http://a.test/disk',
      'http://a.test/low',
    ])
    await world.close()
  })

  test('is a duplicate while it waits, is not seen after a crash, and is seen for ever once it is done', async () => {
    const world = await openWorld()
    const request = { url: 'http://a.test/', meta: { f: () => {} } }
    await world.frontier.add(request)
    expect(await world.frontier.add(request.url)).toMatchObject({ duplicates: 1 })
    expect(await world.frontier.add(request)).toMatchObject({ duplicates: 1 })
    expect(world.frontier.has(request.url)).toBe(true)
    let frontier = await world.dieAndReopen()
    expect([frontier.has(request.url), (await frontier.stats()).ready]).toEqual([false, 0])
    await frontier.add(request)
    const [visit] = await frontier.take()
    await visit.ack({ add: ['http://a.test/child'] })
    frontier = await world.dieAndReopen()
    expect(frontier.has(request.url)).toBe(true)
    expect(await frontier.add(request)).toMatchObject({ duplicates: 1 })
    expect(await takeUrls(frontier)).toEqual(['http://a.test/child'])
    await world.close()
  })

  test('is delayed, retried, expired, buried and requeued like any other', async () => {
    const world = await openWorld({ leaseMs: 1000, maxAttempts: 3 })
    const { frontier, env } = world
    await frontier.add({ url: 'http://a.test/', meta: { f: () => {} } }, { notBefore: env.clock.now() + 500 })
    expect(await frontier.take()).toEqual([])
    await env.clock.advance(500)
    const [visit] = await frontier.take()
    await frontier.checkpoint()
    await visit.retry({ delayMs: 500, reason: 'later' })
    await env.clock.advance(500)
    await frontier.take()
    await env.clock.advance(1000)
    const [last] = await frontier.take()
    expect([last.attempt, last.lastReason]).toEqual([3, 'later'])
    await last.bury({ reason: 'enough' })
    expect(await deadLetters(frontier)).toMatchObject([{ reason: 'enough', payload: { url: 'http://a.test/' } }])
    expect(await frontier.requeue()).toBe(1)
    const [again] = await frontier.take()
    await again.ack()
    expect((await frontier.stats()).memoryOnly).toBe(0)
    await world.close()
  })

  test('a full disk does not stop it', async () => {
    const world = await openWorld({ tuning: { reserveBytes: 0 } })
    world.env.files.capacityBytes = world.env.files.usedBytes
    await world.frontier.add({ url: 'http://a.test/', meta: { f: () => {} } })
    expect(await takeUrls(world.frontier)).toEqual(['http://a.test/'])
    world.env.files.capacityBytes = Infinity
    await world.close()
  })

  test('a call that is refused leaves nothing of it in memory', async () => {
    const world = await openWorld()
    const request = { url: 'http://a.test/', meta: { f: () => {} } }
    await expect(world.frontier.add([request, 'bad'])).rejects.toThrow(TypeError)
    expect([world.frontier.has(request.url), (await world.frontier.stats()).memoryOnly]).toEqual([false, 0])
    expect(await world.frontier.add(request)).toMatchObject({ added: 1 })
    await world.close()
  })

  // Dead, it is no longer one of "ready + delayed + leased", and dropping it is not finishing it.
  test('buried and dropped, it is counted nowhere and was never seen', async () => {
    const world = await openWorld()
    await world.frontier.add({ url: 'http://a.test/', meta: { f: () => {} } })
    const [visit] = await world.frontier.take()
    await visit.bury()
    expect((await world.frontier.stats()).memoryOnly).toBe(0)
    await world.frontier.dropDead()
    await checkAgainstDisk(world.frontier, world.env, DIRECTORY)
  })

  // Its end is recorded as a new fingerprint without looking into the runs, so the set counts one too many for ever.
  test('done, with a fingerprint that was seen before, it leaves the seen-set exact', async () => {
    const world = await openWorld()
    await world.frontier.add('http://a.test/')
    await world.frontier.checkpoint()
    const meta = { f: () => {} }
    await world.frontier.add({ url: 'http://a.test/', meta, dontFilter: true, recordSeen: true })
    for (const visit of await world.frontier.take({ max: 2 })) await visit.ack()
    expect((await world.frontier.stats()).seen).toBe(1)
  })
})

describe('what can', () => {
  test('comes back as it was, through checkpoint and reopening', async () => {
    const cycle: Record<string, unknown> = { name: 'round' }
    cycle['self'] = cycle
    const meta = {
      nested: { list: [1, [2, [3]]], nothing: null, missing: undefined },
      numbers: [0, -1, 1.5, 2 ** 53, -(2 ** 60), Infinity, Number.NaN],
      text: ['', 'ä', '\u{1f600}'],
      big: [0n, 2n ** 70n, -(2n ** 70n)],
      date: new Date(Date.UTC(2025, 0, 1)),
      map: new Map<unknown, unknown>([
        ['a', 1],
        [2, new Map([['deep', true]])],
      ]),
      set: new Set([1, 'two', null]),
      bytes: Uint8Array.of(1, 2, 255),
      floats: Float64Array.of(0.5, -1),
      words: Uint16Array.of(1, 65_535),
      cycle,
    }
    const world = await openWorld({ tuning: { carryBucketBytes: 0 } })
    await world.frontier.add({ url: 'http://a.test/', meta })
    await world.frontier.checkpoint()
    const [visit] = await (await world.closeAndReopen()).take()
    const back = visit.meta as typeof meta
    const { cycle: circle, bytes, ...rest } = back
    const { cycle: _cycle, bytes: _bytes, ...expected } = meta
    expect(rest).toEqual(expected)
    expect([...bytes]).toEqual([1, 2, 255])
    expect(circle['self']).toBe(circle)
    await world.close()
  })

  test('what was handed out is a copy: changing it changes nothing on disk or in other jobs', async () => {
    const world = await openWorld()
    const meta = { bytes: Uint8Array.of(1, 2, 3) }
    await world.frontier.add([{ url: 'http://a.test/1', meta, body: 'abc' }, 'http://a.test/2'])
    meta.bytes.fill(9)
    const [visit] = await world.frontier.take()
    expect([...(visit.meta['bytes'] as Uint8Array)]).toEqual([1, 2, 3])
    ;(visit.meta['bytes'] as Uint8Array).fill(0)
    ;(visit.body as Uint8Array).fill(0)
    await visit.release()
    const [again] = await world.frontier.take()
    expect([...(again.meta['bytes'] as Uint8Array)]).toEqual([1, 2, 3])
    expect(Buffer.from(again.body as Uint8Array).toString()).toBe('abc')
    await world.close()
  })

  test('nesting beyond the limit is taken for a mistake, not for a stack overflow', async () => {
    const world = await openWorld({ memoryFallback: false })
    let deep: Record<string, unknown> = {}
    for (let i = 0; i < 10_000; i++) deep = { deep }
    const error = await refusal(world.frontier.add({ url: 'http://a.test/', meta: deep }))
    expect([error.code, error.message]).toEqual(['HOLDFAST_UNSERIALIZABLE', expect.stringContaining('nested deeper')])
    await world.close()
  })
})

describe('in a queue', () => {
  test('the path begins with the payload', async () => {
    const world = await openWorld()
    const queue = await openQueue<unknown>('/queue', { env: world.env, memoryFallback: false })
    const error = await refusal(queue.push({ list: [() => {}] }))
    expect([error.code, error.field]).toEqual(['HOLDFAST_UNSERIALIZABLE', 'payload.list[0]'])
    await queue.close()
    const lenient = await openQueue<unknown>('/queue', { env: world.env })
    const payload = { f: () => {} }
    expect(await lenient.push(payload)).toMatchObject({ added: 1, memoryOnly: 1 })
    const [job] = await lenient.take()
    expect(job.payload).toBe(payload)
    await job.ack()
    await lenient.close()
    await world.close()
  })
})
