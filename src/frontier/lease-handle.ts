/** What a worker holds: a lease with the verbs that end it. Each verb encodes at once; its promise waits for the disk. */
import type { Engine } from '../engine/engine.js'
import { HoldfastError } from '../errors.js'
import type { LeaseEntry } from '../queue/lease-table.js'
import type { BuryOptions, Lease, RetryOptions, Settlement } from './types.js'

/** The last instant a Date can name: beyond it there is no due time to write down. */
export const DELAY_MS_MAX = 8.64e15

export class LeaseHandle implements Lease {
  readonly priority: number
  readonly addedAt: number
  readonly attempt: number
  protected readonly engine: Engine
  /** @internal */
  readonly entry: LeaseEntry

  constructor(engine: Engine, entry: LeaseEntry, priority: number, addedAt: number) {
    this.engine = engine
    this.entry = entry
    this.attempt = entry.job.attempt
    this.priority = priority
    this.addedAt = addedAt
  }

  /** @internal */
  isOf(engine: Engine): boolean {
    return this.engine === engine
  }

  get id(): number {
    return this.entry.job.id
  }

  get token(): string {
    return `${this.engine.tokenPrefix}.${this.entry.number}`
  }

  get failures(): number {
    return this.entry.job.failures
  }

  get lastReason(): string | undefined {
    return this.entry.job.reason || undefined
  }

  get deadline(): number {
    return this.engine.deadlineOf(this.entry)
  }

  get live(): boolean {
    return this.entry.state === 'live' && !this.engine.closed
  }

  get signal(): AbortSignal {
    if (this.entry.controller === undefined) {
      this.entry.controller = new AbortController()
      if (!this.live) {
        this.entry.controller.abort(new HoldfastError('HOLDFAST_STALE_LEASE', `lease ${this.token} is over`))
      }
    }
    return this.entry.controller.signal
  }

  async retry(options: RetryOptions = {}): Promise<void> {
    const { delayMs = 0, reason = '', state } = options
    if (!(delayMs >= 0 && delayMs <= DELAY_MS_MAX)) {
      throw new TypeError(`delayMs is ${delayMs}, expected a number from 0 to ${DELAY_MS_MAX}`)
    }
    await this.engine.desk.settle(this.entry, { verb: 'retry', delayMs, reason, counted: true }, state)
  }

  /** As `retry` at once, without counting a failure: the work was broken off, not refused. */
  async giveBack(): Promise<void> {
    await this.engine.desk.settle(this.entry, { verb: 'retry', delayMs: 0, reason: '', counted: false })
  }

  async bury(options: BuryOptions = {}): Promise<void> {
    await this.engine.desk.settle(this.entry, { verb: 'bury', reason: options.reason ?? '' }, options.state)
  }

  async release(options: Settlement = {}): Promise<void> {
    await this.engine.desk.settle(this.entry, { verb: 'release' }, options.state)
  }

  extend(leaseMs: number = this.engine.options.leaseMs): void {
    if (!(leaseMs > 0)) throw new TypeError(`leaseMs is ${leaseMs}, expected a number above 0`)
    this.engine.desk.extend(this.entry, leaseMs)
  }
}
