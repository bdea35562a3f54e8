/**
 * Time as one injected object. Wall time is what is stored on disk; monotonic time is what schedules, so that a clock
 * that jumps neither loses nor hurries anything.
 */
export interface Clock {
  /** Wall time, ms since the epoch. May jump. */
  now(): number
  /** ms since an arbitrary start. Never goes back. */
  monotonic(): number
  /** Calls `callback` once after `delayMs`. Keeps the process alive only with `keepAlive`. The result cancels it. */
  after(delayMs: number, callback: () => void, keepAlive?: boolean): () => void
  /** Lets other work run: the end of a slice of background work. */
  yield(): Promise<void>
}

const MAX_TIMER_MS = 2 ** 31 - 1

export const nodeClock: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
  after(delayMs, callback, keepAlive = false) {
    // A longer delay than a timer can hold fires early; callers look at the clock again and re-arm.
    const timer = setTimeout(callback, Math.min(Math.max(0, delayMs), MAX_TIMER_MS))
    if (!keepAlive) timer.unref()
    return () => clearTimeout(timer)
  },
  yield: () => new Promise((resolve) => setImmediate(resolve)),
}
