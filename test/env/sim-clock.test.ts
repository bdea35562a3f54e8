/** The simulated clock: order of timers, the two times apart, and promises settled between timers. */
import { describe, expect, test } from 'vitest'
import { SimClock } from '../../src/env/sim-clock.js'

describe('SimClock', () => {
  test('starts where it is told, and stands still by itself', async () => {
    const clock = new SimClock({ wallMs: 1000, monotonicMs: 50 })
    await clock.yield()
    await clock.settle()
    expect([clock.now(), clock.monotonic()]).toEqual([1000, 50])
    await clock.advance(25)
    expect([clock.now(), clock.monotonic()]).toEqual([1025, 75])
  })

  test('runs timers in the order of their times, then of their arming, each at its own time', async () => {
    const clock = new SimClock({ wallMs: 0 })
    const log: string[] = []
    for (const [name, delayMs] of [
      ['c', 30],
      ['a', 10],
      ['b1', 20],
      ['b2', 20],
      ['never', 101],
      ['now', -5],
    ] as const) {
      clock.after(delayMs, () => log.push(`${name}@${clock.monotonic()}`))
    }
    expect(log).toEqual([])
    await clock.advance(100)
    expect(log).toEqual(['now@0', 'a@10', 'b1@20', 'b2@20', 'c@30'])
    expect(clock.pendingTimers).toBe(1)
    expect(clock.monotonic()).toBe(100)
  })

  test('runs what is armed on the way, when it falls due on the way', async () => {
    const clock = new SimClock()
    const log: number[] = []
    const tick = (): void => {
      log.push(clock.monotonic())
      clock.after(10, tick)
    }
    clock.after(10, tick)
    await clock.advance(35)
    expect(log).toEqual([10, 20, 30])
    await clock.advance(5)
    expect(log).toEqual([10, 20, 30, 40])
  })

  test('lets promises settle between two timers, and before the first', async () => {
    const clock = new SimClock()
    const log: string[] = []
    const chain = async (name: string): Promise<void> => {
      for (let turn = 0; turn < 20; turn++) await Promise.resolve()
      log.push(`${name} settled@${clock.monotonic()}`)
    }
    void chain('start').then(() => clock.after(5, () => log.push('armed late')))
    clock.after(10, () => {
      log.push('first')
      void chain('first')
    })
    clock.after(10, () => log.push('second'))
    await clock.advance(10)
    expect(log).toEqual(['start settled@0', 'armed late', 'first', 'first settled@10', 'second'])
  })

  test('does not run a cancelled timer, also when an earlier one cancels it', async () => {
    const clock = new SimClock()
    const log: string[] = []
    const cancelB = clock.after(20, () => log.push('b'))
    clock.after(10, () => {
      log.push('a')
      cancelB()
    })
    await clock.advance(50)
    cancelB()
    expect(log).toEqual(['a'])
    expect(clock.pendingTimers).toBe(0)
  })

  test('jumps with the wall clock alone', async () => {
    const clock = new SimClock({ wallMs: 10_000 })
    const log: number[] = []
    clock.after(100, () => log.push(clock.now()))
    clock.jump(-5000)
    expect([clock.now(), clock.monotonic()]).toEqual([5000, 0])
    await clock.advance(99)
    expect(log).toEqual([])
    await clock.advance(1)
    expect(log).toEqual([5100])
  })

  test('fires a very long delay early, as the real clock does', async () => {
    const clock = new SimClock()
    let fired = 0
    clock.after(2 ** 40, () => fired++)
    await clock.advance(2 ** 31)
    expect(fired).toBe(1)
  })

  test('goes on after a timer that threw', async () => {
    const clock = new SimClock()
    clock.after(1, () => {
      throw new Error('from a timer')
    })
    await expect(clock.advance(10)).rejects.toThrow('from a timer')
    await clock.advance(10)
    expect(clock.monotonic()).toBe(11)
  })
})
