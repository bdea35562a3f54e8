/**
 * Time that moves only when a test says so.
 *
 * Invariant: timers run in the order of their due times (first armed first, when equal), each with the clock standing
 * exactly at its due time, and everything that one of them set going through promises has settled before the next.
 */
import { assert } from '../assert.js'
import type { Clock } from './clock.js'

/** Turns of the microtask queue that count as "settled": far more than any chain of awaits between two timers. */
const SETTLE_TURNS = 50
/** As the real clock: a longer delay fires early, and callers look at the clock again and re-arm. */
const TIMER_MS_MAX = 2 ** 31 - 1

interface Timer {
  readonly dueMs: number
  readonly callback: () => void
}

export class SimClock implements Clock {
  #monotonicMs: number
  /** Wall time minus monotonic time. */
  #wallOffsetMs: number
  /** In the order they were armed. */
  readonly #timers = new Set<Timer>()

  constructor(options: { readonly wallMs?: number; readonly monotonicMs?: number } = {}) {
    this.#monotonicMs = options.monotonicMs ?? 0
    this.#wallOffsetMs = (options.wallMs ?? Date.UTC(2025, 0, 1)) - this.#monotonicMs
  }

  now(): number {
    return Math.floor(this.#wallOffsetMs + this.#monotonicMs)
  }

  monotonic(): number {
    return this.#monotonicMs
  }

  after(delayMs: number, callback: () => void): () => void {
    assert(!Number.isNaN(delayMs), 'a delay is a number')
    const timer = { dueMs: this.#monotonicMs + Math.min(Math.max(0, delayMs), TIMER_MS_MAX), callback }
    this.#timers.add(timer)
    return () => this.#timers.delete(timer)
  }

  async yield(): Promise<void> {
    await Promise.resolve()
  }

  /** Timers armed and neither run nor cancelled: a closed store leaves none. */
  get pendingTimers(): number {
    return this.#timers.size
  }

  /** Moves both clocks on by `ms`, running what falls due on the way, also what is armed on the way. */
  async advance(ms: number): Promise<void> {
    assert(ms >= 0, 'monotonic time never goes back')
    const endMs = this.#monotonicMs + ms
    await this.settle()
    for (let timer = this.#nextDue(endMs); timer !== undefined; timer = this.#nextDue(endMs)) {
      this.#timers.delete(timer)
      this.#monotonicMs = Math.max(this.#monotonicMs, timer.dueMs)
      timer.callback()
      await this.settle()
    }
    this.#monotonicMs = Math.max(this.#monotonicMs, endMs)
  }

  /** Moves the wall clock alone, back or forth, as an administrator or a time server does. */
  jump(ms: number): void {
    this.#wallOffsetMs += ms
  }

  /** Lets promises that wait for nothing but one another run out. */
  async settle(turns = SETTLE_TURNS): Promise<void> {
    for (let turn = 0; turn < turns; turn++) await Promise.resolve()
  }

  #nextDue(endMs: number): Timer | undefined {
    let next: Timer | undefined
    for (const timer of this.#timers) {
      if (timer.dueMs <= endMs && (next === undefined || timer.dueMs < next.dueMs)) next = timer
    }
    return next
  }
}
