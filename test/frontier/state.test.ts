/** The user's durable key/values: one commit each, bounded all together. */
import { describe, expect, test } from 'vitest'
import { openWorld, refusal } from './world.js'

const KiB = 1024

describe('state', () => {
  test('is set, replaced, deleted, and survives kill, checkpoint and close', async () => {
    const world = await openWorld()
    const value = { list: [1, new Date(0)], map: new Map([['a', 1n]]), bytes: [1, 2] }
    await world.frontier.setState({ value, gone: 1, zero: 0, empty: null })
    await world.frontier.setState({ gone: undefined, never: undefined, zero: -1 })
    const check = (): void => {
      const { frontier } = world
      expect(['value', 'gone', 'zero', 'empty', 'never'].map((key) => frontier.state(key))).toEqual([
        value,
        undefined,
        -1,
        null,
        undefined,
      ])
    }
    check()
    await (await world.dieAndReopen()).checkpoint()
    check()
    await world.dieAndReopen('lost')
    check()
    await world.closeAndReopen()
    check()
    await world.close()
  })

  test('what is read is a copy', async () => {
    const world = await openWorld()
    await world.frontier.setState({ list: [1] })
    ;(world.frontier.state('list') as number[]).push(2)
    expect(world.frontier.state('list')).toEqual([1])
    await world.close()
  })

  test('all together at most 1 MiB: over it the call is refused and nothing of it happened', async () => {
    const world = await openWorld({ tuning: { journalBytes: 1e8 } })
    const { frontier } = world
    await frontier.setState({ a: 'x'.repeat(700 * KiB) })
    const error = await refusal(frontier.setState({ small: 1, b: 'x'.repeat(400 * KiB) }))
    expect(error.code).toBe('HOLDFAST_TOO_LARGE')
    expect([frontier.state('small'), frontier.state('b')]).toEqual([undefined, undefined])
    // Replacing counts the difference, deleting makes room.
    await frontier.setState({ a: 'y'.repeat(900 * KiB) })
    await frontier.setState({ a: undefined, b: 'x'.repeat(1000 * KiB) })
    await frontier.checkpoint()
    const again = await world.dieAndReopen()
    expect((again.state('b') as string).length).toBe(1000 * KiB)
    await world.close()
  })

  test('too much of it with an ack leaves the lease as it was', async () => {
    const world = await openWorld({ tuning: { journalBytes: 1e8 } })
    await world.frontier.add('http://a.test/')
    const [visit] = await world.frontier.take()
    const error = await refusal(visit.ack({ add: ['http://a.test/1'], state: { a: 'x'.repeat(1100 * KiB) } }))
    expect([error.code, visit.live, world.frontier.has('http://a.test/1')]).toEqual(['HOLDFAST_TOO_LARGE', true, false])
    await visit.ack()
    await world.close()
  })

  test('a value that cannot be written is refused with its path', async () => {
    const world = await openWorld()
    const error = await refusal(world.frontier.setState({ fine: 1, bad: { f: () => {} } }))
    expect([error.code, error.field]).toEqual(['HOLDFAST_UNSERIALIZABLE', 'state.bad.f'])
    expect(world.frontier.state('fine')).toBeUndefined()
    await world.close()
  })

  // Each call is held against what is applied, not against what is on its way beside it.
  test('calls of one turn are bounded together', async () => {
    const world = await openWorld({ tuning: { journalBytes: 1e8 } })
    const large = 'x'.repeat(600 * KiB)
    const calls = await Promise.allSettled([
      world.frontier.setState({ a: large }),
      world.frontier.setState({ b: large }),
    ])
    await world.close()
    expect(calls.map((call) => call.status)).toEqual(['fulfilled', 'rejected'])
  })
})
