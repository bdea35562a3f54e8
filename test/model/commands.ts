/** What a random run can do to a frontier and to its model, each followed by a comparison of all counts. */
import fc from 'fast-check'
import { expect } from 'vitest'
import { SimClock } from '../../src/env/sim-clock.js'
import { simEnv } from '../../src/env/sim-env.js'
import type { SimFileSystem } from '../../src/env/sim-file-system.js'
import { errorCode } from '../../src/errors.js'
import { type Frontier, openFrontier, type VisitHandle } from '../../src/frontier/frontier.js'
import type { Durability } from '../../src/frontier/types.js'
import { checkAgainstDisk, TINY } from '../support/checked.js'
import { LEASE_MS, MAX_ATTEMPTS, type Model } from './model.js'

export const DIRECTORY = '/job'

export class Real {
  frontier!: Frontier
  env!: ReturnType<typeof simEnv>
  /** Visits in hand, live or from before a crash. */
  visits: VisitHandle[] = []
  stale: VisitHandle[] = []
  readonly durability: Durability
  private seed: number

  constructor(durability: Durability, seed: number) {
    this.durability = durability
    this.seed = seed
  }

  async open(files?: SimFileSystem, clock?: SimClock): Promise<void> {
    this.env = simEnv({ seed: this.seed++, ...(files && { files }), ...(clock && { clock }) })
    this.frontier = await openFrontier(DIRECTORY, {
      env: this.env,
      durability: this.durability,
      tuning: TINY,
      leaseMs: LEASE_MS,
      maxAttempts: MAX_ATTEMPTS,
      syncEveryMs: 30_000,
    })
  }

  forgetLeases(): void {
    this.stale.push(...this.visits)
    this.visits = []
  }
}

type Step = (model: Model, real: Real) => Promise<void>

class Command implements fc.AsyncCommand<Model, Real> {
  private readonly name: string
  private readonly step: Step
  private readonly needsLease: boolean

  constructor(name: string, step: Step, needsLease = false) {
    this.name = name
    this.step = step
    this.needsLease = needsLease
  }

  check(model: Readonly<Model>): boolean {
    return !this.needsLease || model.of('leased').length > 0
  }

  async run(model: Model, real: Real): Promise<void> {
    await this.step(model, real)
    await compare(model, real)
  }

  toString(): string {
    return this.name
  }
}

async function compare(model: Model, real: Real): Promise<void> {
  const { ready, delayed, leased, dead, seen } = await real.frontier.stats()
  expect({ ready, delayed, leased, dead, seen }).toEqual({
    ready: model.of('ready').length,
    delayed: model.of('delayed').length,
    leased: model.of('leased').length,
    dead: model.of('dead').length,
    seen: model.jobs.size,
  })
}

/** Leases are addressed by position modulo the live ones, so that shrinking keeps working. */
function pick(real: Real, at: number): VisitHandle {
  real.visits = real.visits.filter((visit) => visit.live)
  return real.visits[at % real.visits.length]
}

const jobOf = (model: Model, visit: VisitHandle) => {
  const job = model.jobs.get(visit.url)
  if (job === undefined) throw new Error(`${visit.url} was never added`)
  return job
}

const urls = fc.array(
  fc
    .record({ host: fc.integer({ min: 0, max: 2 }), page: fc.integer({ min: 0, max: 40 }) })
    .map(({ host, page }) => `http://h${host}.test/${page}`),
  { minLength: 1, maxLength: 8 },
)
const at = fc.nat(50)
const delay = fc.constantFrom(0, 0, 1, 5_000, 90_000, 3 * 3_600_000)

const add = fc.record({ urls, priority: fc.integer({ min: -1, max: 1 }), start: fc.boolean(), delayMs: delay }).map(
  ({ urls, priority, start, delayMs }) =>
    new Command(`add(${urls}, ${priority}, ${start}, ${delayMs})`, async (model, real) => {
      const expected = urls.filter((url) => model.add(url, priority, start, delayMs)).length
      const notBefore = delayMs > 0 ? real.env.clock.now() + delayMs : 0
      const result = await real.frontier.add(urls, { priority, start, notBefore })
      expect(result).toEqual({ added: expected, duplicates: urls.length - expected, memoryOnly: 0, invalid: 0 })
    }),
)

const take = fc.integer({ min: 1, max: 4 }).map(
  (max) =>
    new Command(`take(${max})`, async (model, real) => {
      for (let i = 0; i < max; i++) {
        const [visit] = await real.frontier.take()
        const eligible = model.of('ready').length === 0 ? [] : model.eligible()
        if (visit === undefined) {
          expect(eligible).toEqual([])
          return
        }
        const job = jobOf(model, visit)
        expect(eligible.map((one) => one.url)).toContain(visit.url)
        model.take(job)
        expect(visit.attempt).toBe(job.attempt)
        real.visits.push(visit)
      }
    }),
)

const ack = fc.record({ at, children: fc.option(urls, { nil: [] }) }).map(
  ({ at, children }) =>
    new Command(
      `ack(${at}, ${children})`,
      async (model, real) => {
        const visit = pick(real, at)
        jobOf(model, visit).fate = 'gone'
        const expected = children.filter((url) => model.add(url, 0, false, 0)).length
        expect((await visit.ack({ add: children })).added).toBe(expected)
        real.stale.push(visit)
      },
      true,
    ),
)

const retry = fc.record({ at, delayMs: delay }).map(
  ({ at, delayMs }) =>
    new Command(
      `retry(${at}, ${delayMs})`,
      async (model, real) => {
        const visit = pick(real, at)
        model.retry(jobOf(model, visit), delayMs)
        await visit.retry({ delayMs })
        real.stale.push(visit)
      },
      true,
    ),
)

const bury = at.map(
  (at) =>
    new Command(
      `bury(${at})`,
      async (model, real) => {
        const visit = pick(real, at)
        jobOf(model, visit).fate = 'dead'
        await visit.bury({ reason: 'model' })
      },
      true,
    ),
)

const release = at.map(
  (at) =>
    new Command(
      `release(${at})`,
      async (model, real) => {
        const visit = pick(real, at)
        const job = jobOf(model, visit)
        job.fate = 'ready'
        job.attempt--
        await visit.release()
      },
      true,
    ),
)

const extend = at.map(
  (at) =>
    new Command(
      `extend(${at})`,
      async (model, real) => {
        const visit = pick(real, at)
        jobOf(model, visit).deadline = model.now + LEASE_MS
        visit.extend()
      },
      true,
    ),
)

const advance = fc.constantFrom(1, 100, 30_000, 61_000, 3_600_000).map(
  (ms) =>
    new Command(`advance(${ms})`, async (model, real) => {
      await real.env.clock.advance(ms)
      model.advance(ms)
    }),
)

const stale = at.map(
  (at) =>
    new Command(`stale(${at})`, async (_model, real) => {
      if (real.stale.length === 0) return
      const visit = real.stale[at % real.stale.length]
      const refused = await visit.ack().then(
        () => 'accepted',
        (error) => errorCode(error),
      )
      expect(['HOLDFAST_STALE_LEASE', 'HOLDFAST_CLOSED']).toContain(refused)
    }),
)

const checkpoint = fc.constant(new Command('checkpoint', (_model, real) => real.frontier.checkpoint()))

const requeue = fc.constant(
  new Command('requeue', async (model, real) => {
    const dead = model.of('dead')
    for (const job of dead) {
      job.fate = 'ready'
      job.attempt = 0
    }
    expect(await real.frontier.requeue()).toBe(dead.length)
  }),
)

const reopen = fc.constant(
  new Command('close and reopen', async (model, real) => {
    await checkAgainstDisk(real.frontier, real.env, DIRECTORY)
    await real.frontier.close()
    expect(real.env.files.openHandles()).toBe(0)
    for (const job of model.of('leased')) {
      job.fate = 'ready'
      job.attempt--
    }
    real.forgetLeases()
    await real.open(real.env.files, real.env.clock)
  }),
)

const crash = fc.record({ seed: fc.nat(), lost: fc.boolean() }).map(
  ({ seed, lost }) =>
    new Command(`crash(${lost ? 'power' : 'kill'})`, async (model, real) => {
      // Hand-out marks are on disk within 5 ms; a sync makes them survive power loss too.
      await real.env.clock.advance(5)
      model.advance(5)
      const power = lost && real.durability === 'power'
      if (power) await real.frontier.setState({ synced: seed })
      const files = real.env.files.crash({ seed, unsynced: power ? 'torn' : 'kept' })
      const before = model.of('leased').length
      model.crash()
      // These handles belong to the process that died, and so does the disk they would write to.
      real.visits = []
      real.stale = []
      await real.open(files, new SimClock({ wallMs: real.env.clock.now() }))
      expect(real.frontier.recovery.leases).toBe(before)
    }),
)

export const commands = fc.commands(
  [add, add, take, take, ack, ack, retry, bury, release, extend, advance, stale, checkpoint, requeue, reopen, crash],
  { maxCommands: 40, size: 'max' },
)
