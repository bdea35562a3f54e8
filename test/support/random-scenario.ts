/**
 * A workload from a seed. Each seed switches off a part of the operations and skews the rest: uniform mixes miss corners.
 */
import { seededRandom } from '../../src/env/random.js'
import type { VisitHandle } from '../../src/frontier/frontier.js'
import { pages, type Scenario } from './scenario.js'

export function randomScenario(seed: number): Scenario {
  return async (frontier, oracle, clock) => {
    const random = seededRandom(seed)
    const below = (n: number): number => random.uint32() % n
    let held: VisitHandle[] = []
    let background: Promise<void> = Promise.resolve()
    const pickHeld = (): VisitHandle | undefined => {
      held = held.filter((visit) => visit.live)
      return held.splice(below(Math.max(1, held.length)), 1)[0]
    }
    const some = (): string[] => {
      const from = below(60)
      return pages(below(4), from, from + 1 + below(6))
    }
    const operations: (() => Promise<void>)[] = [
      () => oracle.add(frontier, some(), { priority: below(3) - 1, start: below(4) === 0 }),
      () => oracle.add(frontier, some(), { notBefore: clock.now() + [5_000, 120_000, 30 * 3_600_000][below(3)] }),
      async () => void held.push(...(await oracle.take(frontier, 1 + below(5)))),
      async () => {
        const visit = pickHeld()
        if (visit !== undefined) await oracle.ack(visit, below(2) === 0 ? some() : [], { last: below(1000) })
      },
      async () => {
        const visit = pickHeld()
        if (visit !== undefined) await oracle.retry(visit, below(2) * 30_000)
      },
      async () => {
        const visit = pickHeld()
        if (visit !== undefined) await oracle.bury(visit)
      },
      async () => {
        const visit = pickHeld()
        if (visit !== undefined) await oracle.release(visit)
      },
      () => oracle.requeue(frontier),
      () => oracle.checkpoint(frontier),
      async () => {
        // Beside what follows.
        await background
        background = oracle.checkpoint(frontier)
        background.catch(() => {})
      },
      () => clock.advance(below(40_000)),
    ]
    // Adding, taking and acking are always there; of the rest a random part.
    const used = operations.filter((_, i) => i === 0 || i === 2 || i === 3 || below(3) > 0)
    const weights = used.map(() => 1 + below(4))
    const total = weights.reduce((a, b) => a + b, 0)
    for (let step = 0; step < 25; step++) {
      let at = below(total)
      let chosen = 0
      while (at >= weights[chosen]) at -= weights[chosen++]
      await used[chosen]()
    }
    await background
  }
}
