/** Who waits for something to change. While anybody does, the process stays alive, whatever else there is to do. */
import type { Clock } from '../env/clock.js'

const KEEP_ALIVE_MS = 2 ** 31 - 1

export class Waiters {
  private readonly clock: Clock
  private waiting: (() => void)[] = []
  private rest: (() => void) | undefined

  constructor(clock: Clock) {
    this.clock = clock
  }

  get count(): number {
    return this.waiting.length
  }

  /** Resolves at the next `wake`, or when `signal` aborts; then nothing of the wait is left. */
  wait(signal?: AbortSignal): Promise<void> {
    if (signal?.aborted) return Promise.resolve()
    this.rest ??= this.clock.after(KEEP_ALIVE_MS, () => {}, true)
    return new Promise<void>((resolve) => {
      const wake = (): void => {
        signal?.removeEventListener('abort', onAbort)
        resolve()
      }
      const onAbort = (): void => {
        this.waiting = this.waiting.filter((waiter) => waiter !== wake)
        if (this.waiting.length === 0) this.letRest()
        resolve()
      }
      signal?.addEventListener('abort', onAbort, { once: true })
      this.waiting.push(wake)
    })
  }

  wake(): void {
    const { waiting } = this
    if (waiting.length === 0) return
    this.waiting = []
    this.letRest()
    for (const wake of waiting) wake()
  }

  private letRest(): void {
    this.rest?.()
    this.rest = undefined
  }
}
