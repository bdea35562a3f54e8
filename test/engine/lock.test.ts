/** One owner: a second opening is refused, and an owner that lost the directory writes nothing more. */
import { describe, expect, test } from 'vitest'
import { loseSimLock } from '../../src/env/sim-env.js'
import { openFrontier } from '../../src/frontier/frontier.js'
import { DIRECTORY, openWorld, pages, refusal, takeUrls, World } from '../frontier/world.js'

test('a second opening is refused at once with the owner, and harms nothing', async () => {
  const world = await openWorld()
  await world.frontier.add(pages('a', 0, 3))
  const first = world.frontier
  const before = world.disk()
  const error = await refusal(world.open())
  expect([error.code, error.path, error.owner]).toEqual(['HOLDFAST_LOCKED', DIRECTORY, { pid: 1, host: 'simulated' }])
  expect(world.disk()).toEqual(before)
  await first.add(pages('a', 3, 5))
  await first.close()
  expect(await takeUrls(await world.open())).toEqual(pages('a', 0, 5))
  await world.close()
})

test('two openings in one turn: one wins', async () => {
  const world = new World({})
  const [first, second] = await Promise.allSettled([world.open(), world.open()])
  expect(first.status).toBe('fulfilled')
  expect(second).toMatchObject({ status: 'rejected', reason: { code: 'HOLDFAST_LOCKED' } })
  if (first.status === 'fulfilled') world.frontier = first.value
  await world.close()
})

test('another spelling of the directory is the same directory', async () => {
  const world = await openWorld()
  expect((await refusal(openFrontier(`${DIRECTORY}//`, { env: world.env }))).code).toBe('HOLDFAST_LOCKED')
  await world.close()
})

describe('the lock is lost', () => {
  test('the next write is refused and not one more byte is written', async () => {
    const world = await openWorld()
    const { frontier, env } = world
    const warnings: string[] = []
    frontier.on('warning', (warning) => warnings.push(warning.code))
    await frontier.add(pages('a', 0, 3))
    const [visit] = await frontier.take()
    const { signal } = visit
    loseSimLock(env.files, DIRECTORY)
    const before = { disk: world.disk(), mutations: env.files.mutations }
    for (const call of [
      frontier.add('http://b.test/'),
      visit.ack(),
      frontier.setState({ n: 1 }),
      frontier.take(),
      frontier.checkpoint(),
    ]) {
      expect((await refusal(call)).code).toBe('HOLDFAST_LOCK_LOST')
    }
    expect([frontier.closed, signal.aborted, warnings]).toEqual([true, true, ['failed']])
    expect(signal.reason).toMatchObject({ code: 'HOLDFAST_LOCK_LOST' })
    await env.clock.advance(600_000)
    await frontier.close()
    expect(world.disk()).toEqual(before.disk)
    expect(env.files.mutations).toBe(before.mutations)
    expect([env.files.openHandles(), env.clock.pendingTimers]).toEqual([0, 0])
  })

  test('what was asked for in the same turn is refused too', async () => {
    const world = await openWorld()
    const call = refusal(world.frontier.add('http://a.test/'))
    loseSimLock(world.env.files, DIRECTORY)
    const before = world.disk()
    expect((await call).code).toBe('HOLDFAST_LOCK_LOST')
    expect(world.disk()).toEqual(before)
  })

  test('the new owner is not disturbed by the old one closing', async () => {
    const world = await openWorld()
    const old = world.frontier
    await old.add(pages('a', 0, 3))
    loseSimLock(world.env.files, DIRECTORY)
    const next = await world.open()
    await old.close()
    await next.add(pages('a', 3, 5))
    expect(await takeUrls(next)).toEqual(pages('a', 0, 5))
    await world.close()
  })

  /** Loses the lock after so many turns of a running checkpoint. Says whether a file changed afterwards, or undefined: it was over. */
  async function loseDuringCheckpoint(turns: number): Promise<string[] | undefined> {
    const world = await openWorld()
    await world.frontier.add(pages('a', 0, 20))
    await world.frontier.add(pages('b', 0, 20), { priority: 3 })
    await world.frontier.checkpoint()
    for (const visit of await world.frontier.take({ max: 10 })) await visit.ack()
    await world.frontier.add(pages('c', 0, 20))
    let over = false
    const end = (): void => {
      over = true
    }
    const running = world.frontier.checkpoint().then(end, end)
    for (let i = 0; i < turns; i++) await Promise.resolve()
    if (over) return undefined
    loseSimLock(world.env.files, DIRECTORY)
    const before = world.disk()
    await running
    await world.frontier.close()
    const after = world.disk()
    return [...new Set([...Object.keys(before), ...Object.keys(after)])].filter((path) => before[path] !== after[path])
  }

  // A checkpoint under way looks for the loss at a few places only: it still writes, renames active.json, and removes
  // the segments it made, whose names the new owner may be using by then.
  test('at any turn of a checkpoint: no file changes any more', async () => {
    const changed = new Set<string>()
    for (let turns = 0; ; turns += 3) {
      const paths = await loseDuringCheckpoint(turns)
      if (paths === undefined) break
      for (const path of paths) changed.add(path)
    }
    expect([...changed].sort()).toEqual([])
  })
})
