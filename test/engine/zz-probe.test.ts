import { expect, test } from 'vitest'
import { simEnv } from '../../src/env/sim-env.js'
import { SimClock } from '../../src/env/sim-clock.js'
import { openFrontier } from '../../src/frontier/frontier.js'
import { TINY, checkAgainstDisk } from '../support/checked.js'
const urls = (h: string, a: number, b: number) => Array.from({ length: b - a }, (_, i) => `http://${h}/${a + i}`)
const D = '/job'
async function world(more: any = {}) {
  const env = simEnv({ seed: 1 })
  const f = await openFrontier(D, { env, tuning: { ...TINY, ...more.tuning }, ...Object.fromEntries(Object.entries(more).filter(([k]) => k !== 'tuning')) } as any)
  return { env, f }
}
const say = async (p: Promise<unknown> | (() => unknown)) => { try { return await (typeof p === 'function' ? p() : p) } catch (e) { return `${(e as any).code ?? (e as any).constructor.name}: ${(e as Error).message}` } }
const kill = (env: any) => { const files = env.files.crash({ seed: 3, unsynced: 'kept' }); return simEnv({ seed: 9, files, clock: new SimClock({ wallMs: env.clock.now() }) }) }

test('P1 delayed from slices, failed checkpoint, take, kill', async () => {
  const { env, f } = await world()
  await f.add(urls('d', 0, 20), { notBefore: env.clock.now() + 90_000 })
  await f.checkpoint()
  await env.clock.advance(100_000)
  console.log('P1', (await f.stats()).ready, env.files.allFiles())
  env.files.failAt(4, { kind: 'EIO', sticky: true })
  console.log('P1 cp', await say(f.checkpoint()))
  env.files.clearFaults()
  const vs = await f.take({ max: 3 })
  await vs[0].ack()
  const env2 = kill(env)
  console.log('P1 reopen', await say(async () => { const g = await openFrontier(D, { env: env2, tuning: TINY }); return JSON.stringify(await g.stats()) }))
})
test('P1b delayed from slices, take during checkpoint, kill', async () => {
  const { env, f } = await world()
  await f.add(urls('d', 0, 20), { notBefore: env.clock.now() + 90_000 })
  await f.checkpoint()
  await env.clock.advance(100_000)
  const cp = f.checkpoint()
  await env.clock.settle(10)
  const vs = await f.take({ max: 3 })
  await vs[0].ack()
  const env2 = kill(env)
  console.log('P1b files', env2.files.allFiles())
  console.log('P1b reopen', await say(async () => { const g = await openFrontier(D, { env: env2, tuning: TINY }); return JSON.stringify(await g.stats()) }))
  await cp
})
test('P2 clocks survive reopen', async () => {
  const { env, f } = await world({ politeness: { delayMs: 60_000 } })
  await f.add(urls('d', 0, 5))
  await f.take()
  await env.clock.advance(10)
  const env2 = kill(env)
  const g = await openFrontier(D, { env: env2, tuning: TINY, politeness: { delayMs: 60_000 } })
  console.log('P2 kill: taken at once', (await g.take()).length)
  await g.close()
  const { env: e3, f: h } = await world({ politeness: { delayMs: 60_000 } })
  await h.add(urls('d', 0, 5)); const [v] = await h.take(); await v.ack(); await h.close()
  const k = await openFrontier(D, { env: e3, tuning: TINY, politeness: { delayMs: 60_000 } })
  console.log('P2 close: taken at once', (await k.take()).length)
})
test('P3 oldestReadyMs', async () => {
  const { env, f } = await world()
  await f.add('http://a/1')
  const [v] = await f.take()
  await env.clock.advance(1000)
  await f.checkpoint()
  await v.release()
  console.log('P3', (await f.stats()).ready, (await f.stats()).oldestReadyMs)
})
test('P4 jobs away while thin moves', async () => {
  const { env, f } = await world()
  await f.add(urls('d', 0, 60))
  await f.checkpoint()
  for (const v of await f.take({ max: 57 })) await v.ack()
  console.log('P4 before', (await f.stats()).ready)
  const cp = f.checkpoint()
  console.log('P4 during', (await f.stats()).ready, (await f.take({ max: 2 })).length)
  await cp
  console.log('P4 after', (await f.stats()).ready)
})
test('P5 ack with a duplicate child on a full disk', async () => {
  const { env, f } = await world({ tuning: { reserveBytes: 4096 } })
  await f.add(urls('d', 0, 5))
  const [v, w] = await f.take({ max: 2 })
  env.files.capacityBytes = env.files.usedBytes
  console.log('P5 dup child', await say(v.ack({ add: ['http://d/1'] })))
  console.log('P5 own dup', await say(w.ack({ add: ['http://d/7', 'http://d/7'] })))
})
test('P6 memory-only, bury, drop', async () => {
  const { env, f } = await world()
  await f.add({ url: 'http://m/1', meta: { f: () => 1 } })
  console.log('P6 has', f.has('http://m/1'))
  const [v] = await f.take(); await v.bury({ reason: 'x' })
  console.log('P6 buried', JSON.stringify(await f.stats()))
  await f.dropDead()
  console.log('P6 dropped', (await f.stats()).seen, await say(checkAgainstDisk(f, env, D)))
})
test('P7 memory-only with a fingerprint that is on disk in a run', async () => {
  const { env, f } = await world()
  await f.add('http://m/1')
  await f.checkpoint(); 
  await f.add({ url: 'http://m/1', meta: { f: () => 1 }, dontFilter: true, recordSeen: true })
  const vs = await f.take({ max: 2 })
  for (const v of vs) await v.ack()
  console.log('P7', (await f.stats()).seen, await say(checkAgainstDisk(f, env, D)))
  await f.checkpoint()
  console.log('P7 cp', (await f.stats()).seen, await say(checkAgainstDisk(f, env, D)))
})
test('P8 forget twice', async () => {
  const { env, f } = await world()
  await f.add(urls('d', 0, 3))
  console.log('P8', await Promise.all([f.forget('http://d/1'), f.forget('http://d/1')]), (await f.stats()).seen, await say(checkAgainstDisk(f, env, D).then(r => r.seen)))
})
test('P9 infinite delays', async () => {
  const { env, f } = await world()
  await f.add(urls('d', 0, 8))
  const vs = await f.take({ max: 4 })
  console.log('P9 retry Infinity', await say(vs[0].retry({ delayMs: Infinity })))
  console.log('P9 retry 1e17', await say(vs[1].retry({ delayMs: 1e17 })))
  console.log('P9 reason number', await say(vs[2].retry({ reason: 5 as any })))
  console.log('P9 bury Error', await say(vs[3].bury({ reason: new Error('x') as any })))
  console.log('P9 pause', await say(() => f.pauseSlot('d', 1e300)))
  console.log('P9', JSON.stringify(await f.stats()), await say(checkAgainstDisk(f, env, D)))
})
test('P9b politeness delay Infinity', async () => {
  const { env, f } = await world({ politeness: { delayMs: Infinity } })
  await f.add(urls('d', 0, 8))
  await f.take()
  console.log('P9b', await say(f.checkpoint()), await say(checkAgainstDisk(f, env, D)))
})
test('P10 body types', async () => {
  const { env, f } = await world()
  for (const body of [5, [1, 2], {}, new ArrayBuffer(4), null, new DataView(new ArrayBuffer(3)), new Uint16Array([300, 2])]) console.log('P10', body, await say(f.add({ url: 'http://b/' + String(body), body: body as any })))
  for (const v of await f.take({ max: 10 })) console.log('P10 back', v.url, v.body)
  console.log('P10 meta', await say(f.add({ url: 'http://meta/', meta: 'text' as any })), await say(f.add({ url: 'http://meta/2', headers: ['x'] as any })))
  for (const v of await f.take({ max: 10 })) console.log('P10 back', v.url, v.meta, v.headers)
})
test('P11 after close', async () => {
  const { env, f } = await world()
  await f.add(urls('d', 0, 50)); await f.checkpoint()
  await f.close()
  console.log('P11', await say(() => f.has('http://d/1')), await say(() => f.has('http://q/1')), await say(() => f.state('x')), await say(f.add('http://q/1')), await say(f.take()))
  let sync: unknown
  try { const p = f.setState({ a: 1 }); p.catch(() => {}); sync = 'promise' } catch { sync = 'threw' }
  console.log('P11 setState', sync)
})
test('P12 setState twice in a turn', async () => {
  const { env, f } = await world()
  const big = 'x'.repeat(600 * 1024)
  console.log('P12', await Promise.allSettled([f.setState({ a: big }), f.setState({ b: big })]).then((r) => r.map((x) => x.status)))
  console.log('P12 shrink', await say(f.setState({ a: 'x'.repeat(590 * 1024) })))
})
test('P13 abort leaves a waiter', async () => {
  const { env, f } = await world()
  await f.add('http://d/1', { notBefore: env.clock.now() + 1e6 })
  const before = env.clock.pendingTimers
  const c = new AbortController()
  const loop = (async () => { for await (const _ of f.visits({ signal: c.signal })); })()
  await env.clock.settle(); c.abort(); await loop
  console.log('P13', before, env.clock.pendingTimers)
})
test('P14 delayed segments pinned', async () => {
  const { env, f } = await world()
  for (let r = 0; r < 20; r++) {
    await f.add(urls('n' + r, 0, 20), { notBefore: env.clock.now() + 120_000 })
    await f.add(urls('far' + r, 0, 1), { notBefore: env.clock.now() + 30 * 86_400_000 })
    await f.checkpoint()
    await env.clock.advance(240_000)
    for (const v of await f.take({ max: 50 })) await v.ack()
    await f.checkpoint()
    if (r % 5 === 4) console.log('P14', r, JSON.stringify((await f.stats()).bytes), (await f.stats()).delayed)
  }
  for (let r = 0; r < 20; r++) {
    await f.add(urls('b' + r, 0, 20))
    for (const v of await f.take({ max: 50 })) await v.bury({ reason: 'no' })
    await f.checkpoint()
    const ids: number[] = []
    for await (const d of f.dead()) if (!d.payload!.url.toString().endsWith('/0')) ids.push(d.id)
    await f.dropDead(ids)
    await f.checkpoint()
    if (r % 5 === 4) console.log('P14 dead', r, JSON.stringify((await f.stats()).bytes), (await f.stats()).dead)
  }
})
test('P15 listener adds a lot', async () => {
  const { env, f } = await world()
  await f.add(urls('d', 0, 5))
  const [v] = await f.take()
  f.on('acked', () => { f.add({ url: 'http://big/', body: Buffer.alloc(1_200_000, 65) }).catch((e) => console.log('P15 inner', e)) })
  const all = await Promise.allSettled([v.ack(), f.add(urls('d', 10, 15))])
  console.log('P15', JSON.stringify(all))
  console.log('P15 take', await say(async () => (await f.take({ max: 20 })).map((x) => x.url)))
})
test('P16 generator in ack takes', async () => {
  const { env, f } = await world({ leaseMs: 1000 })
  await f.add(urls('d', 0, 5))
  const [v] = await f.take()
  await env.clock.advance(500)
  const [w] = await f.take()
  // v runs out while w's children are being listed
  env.clock.advance(499.9)
  await env.clock.settle()
  ;(env.clock as any)
  const real = env.clock.monotonic.bind(env.clock)
  let shift = 0
  env.clock.monotonic = () => real() + shift
  const r = await say(w.ack({ add: (function* () { yield 'http://e/1'; shift = 1; f.take().catch(() => {}); yield 'http://e/2' })() }))
  console.log('P16', JSON.stringify(r))
  const env2 = kill(env)
  console.log('P16 reopen', await say(async () => { const g = await openFrontier(D, { env: env2, tuning: TINY }); return JSON.stringify(await g.stats()) }))
})
test('P16b generator in ack adds', async () => {
  const { env, f } = await world()
  await f.add(urls('d', 0, 5))
  const [w] = await f.take()
  const r = await say(w.ack({ add: (function* () { yield 'http://e/1'; f.add('http://e/9').catch((e) => console.log('inner', e)); yield 'http://e/2' })() }))
  console.log('P16b', JSON.stringify(r), await say(async () => (await f.take({ max: 20 })).map((x) => x.url)))
})
test('P17 full-disk opening: tokens', async () => {
  const { env, f } = await world({ tuning: { reserveBytes: 0 } })
  await f.add(urls('d', 0, 5)); await f.close()
  env.files.capacityBytes = env.files.usedBytes
  const t: string[] = []
  for (let i = 0; i < 2; i++) {
    const e = simEnv({ seed: 5 + i, files: env.files })
    const g = await openFrontier(D, { env: e, tuning: { ...TINY, reserveBytes: 0 } })
    const [v] = await g.take(); t.push(v.token)
    console.log('P17 close', await say(g.close()))
  }
  console.log('P17', t)
})
test('P18 dead() while a checkpoint moves', async () => {
  const { env, f } = await world()
  await f.add(urls('d', 0, 40))
  for (const v of await f.take({ max: 20 })) await v.bury()
  await f.checkpoint()
  for (const v of await f.take({ max: 20 })) await v.bury()
  let n = 0
  for await (const _ of f.dead()) { if (n++ === 5) await f.checkpoint() }
  console.log('P18', n)
})
test('P19 stats slots', async () => {
  const { env, f } = await world()
  await say(f.add(['http://x/1', 'nope']))
  console.log('P19', (await f.stats()).slots)
  await f.add('http://y/'); const [v] = await f.take(); await v.ack()
  console.log('P19', (await f.stats()).slots)
})
