/** A frontier in a simulated world, and the ways in which it ends: closed, killed, or without power. */
import { SimClock } from '../../src/env/sim-clock.js'
import { simEnv } from '../../src/env/sim-env.js'
import type { SimFileSystem, Unsynced } from '../../src/env/sim-file-system.js'
import { HoldfastError } from '../../src/errors.js'
import { type Frontier, openFrontier, type VisitHandle } from '../../src/frontier/frontier.js'
import type { DeadLetter, FrontierOptions, RequestInit } from '../../src/frontier/types.js'
import { closeChecked, TINY } from '../support/checked.js'

export const DIRECTORY = '/job'
export const QUEUE = `${DIRECTORY}/requests.queue`
const FOREVER_MS = 1e12

export interface WorldOptions extends FrontierOptions {
  tuning?: Partial<Record<keyof typeof TINY, number>>
}

export class World {
  env = simEnv({ seed: 1 })
  frontier!: Frontier
  readonly options: WorldOptions
  private seed = 2

  constructor(options: WorldOptions) {
    this.options = options
  }

  async open(more: WorldOptions = {}): Promise<Frontier> {
    const { tuning, ...options } = { ...this.options, ...more }
    this.frontier = await openFrontier(DIRECTORY, {
      env: this.env,
      leaseMs: FOREVER_MS,
      maxAttempts: 1000,
      ...options,
      tuning: { ...TINY, ...tuning },
    })
    return this.frontier
  }

  /** Goes on in another process, on this disk and at this time. */
  move(files: SimFileSystem = this.env.files): void {
    const clock = new SimClock({ wallMs: this.env.clock.now() })
    this.env = simEnv({ seed: this.seed++, files, clock })
  }

  /** What is left of a process that was killed (`kept`), or of a machine without power. */
  async dieAndReopen(unsynced: Unsynced = 'kept', more: WorldOptions = {}): Promise<Frontier> {
    this.move(this.env.files.crash({ seed: this.seed, unsynced }))
    return this.open(more)
  }

  async closeAndReopen(more: WorldOptions = {}): Promise<Frontier> {
    await this.close()
    this.move()
    return this.open(more)
  }

  close(): Promise<void> {
    return closeChecked(this.frontier, this.env, DIRECTORY)
  }

  /** Every file with its bytes, to hold one moment against another. */
  disk(): Record<string, string> {
    const { files } = this.env
    return Object.fromEntries(files.allFiles().map((path) => [path, files.contents(path).toString('latin1')]))
  }
}

export async function openWorld(options: WorldOptions = {}): Promise<World> {
  const world = new World(options)
  await world.open()
  return world
}

export const pages = (host: string, from: number, to: number): string[] =>
  Array.from({ length: to - from }, (_, i) => `http://${host}.test/${from + i}`)

/** Takes everything that may be taken now. */
export async function takeAll(frontier: Frontier): Promise<VisitHandle[]> {
  const all: VisitHandle[] = []
  for (;;) {
    const visits = await frontier.take({ max: 100 })
    if (visits.length === 0) return all
    all.push(...visits)
  }
}

/** Paths of what is handed out, in order. Everything stays leased. */
export async function takeUrls(frontier: Frontier): Promise<string[]> {
  return (await takeAll(frontier)).map((visit) => visit.url)
}

export async function deadLetters(frontier: Frontier): Promise<DeadLetter<RequestInit>[]> {
  const all: DeadLetter<RequestInit>[] = []
  for await (const letter of frontier.dead()) all.push(letter)
  return all
}

/** The error a call is refused with; fails when it is not refused, or not by us. */
export async function refusal(call: Promise<unknown>): Promise<HoldfastError> {
  const error = await call.then(
    () => new Error('nothing was refused'),
    (reason) => reason,
  )
  if (error instanceof HoldfastError) return error as HoldfastError
  throw error
}
