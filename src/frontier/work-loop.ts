/**
 * Runs handlers over leases, so many at once: return is ack, throw is retry with backoff, then bury. Leases are renewed
 * while their handler runs. Ends when nothing is left, the store closes, or the signal aborts and every handler is done.
 */

import type { Env } from '../env/env.js'
import { errorCode, HoldfastError } from '../errors.js'
import { BACKOFF_MS_FIRST, BACKOFF_MS_MAX } from '../limits.js'
import type { LeaseHandle } from './lease-handle.js'
import type { WorkOptions } from './types.js'

interface Source<L> {
  takeOrNothing(max: number): L[]
  changeOrAbort(signal: AbortSignal | undefined): Promise<void>
  readonly isFinished: boolean
  readonly closed: boolean
}

/** Doubles from a second to ten minutes, each time with up to half as much again, so that retries do not march in step. */
export function defaultBackoff(failures: number, random: number): number {
  const base = Math.min(BACKOFF_MS_MAX, BACKOFF_MS_FIRST * 2 ** Math.max(0, failures - 1))
  return Math.round(base * (1 + random / 2))
}

export async function workLoop<L extends LeaseHandle>(
  source: Source<L>,
  env: Env,
  leaseMs: number,
  run: (lease: L) => Promise<void>,
  options: WorkOptions,
): Promise<void> {
  const { concurrency = 16, retries = 3, signal } = options
  if (!Number.isInteger(concurrency) || concurrency < 1) {
    throw new TypeError(`concurrency is ${concurrency}, expected an integer of 1 or more`)
  }
  const backoff = options.backoff ?? ((failures) => defaultBackoff(failures, env.random.uint32() / 2 ** 32))
  const running = new Map<L, Promise<void>>()
  let failure: unknown
  let tellEnded = (): void => {}
  const stopRenewing = renew(env, leaseMs, running)

  const work = async (lease: L): Promise<void> => {
    try {
      try {
        await run(lease)
      } catch (error) {
        await handleFailure(lease, error, retries, backoff, signal)
      }
    } catch (error) {
      // The job was lost to a lease that ran out: somebody else has it. Anything else is the store's own trouble.
      if (errorCode(error) !== 'HOLDFAST_STALE_LEASE' && errorCode(error) !== 'HOLDFAST_CLOSED') failure ??= error
    } finally {
      running.delete(lease)
      tellEnded()
    }
  }

  try {
    while (!signal?.aborted && !source.closed && failure === undefined) {
      const room = concurrency - running.size
      const leases = room > 0 ? source.takeOrNothing(room) : []
      for (const lease of leases) running.set(lease, work(lease))
      if (leases.length > 0 && running.size < concurrency) continue
      if (running.size === 0 && source.isFinished) break
      // Both are needed: a lease is settled before its handler has returned, and the last one to return changes nothing.
      const ended = new Promise<void>((resolve) => {
        tellEnded = resolve
      })
      await Promise.race([source.changeOrAbort(signal), ended])
    }
  } finally {
    await Promise.all(running.values())
    stopRenewing()
  }
  if (failure !== undefined) throw failure
}

async function handleFailure<L extends LeaseHandle>(
  lease: L,
  error: unknown,
  retries: number,
  backoff: (failures: number, error: unknown) => number,
  signal: AbortSignal | undefined,
): Promise<void> {
  // The settling itself failed (no room, lost lease): not the handler's fault, and not to be settled again here.
  if (error instanceof HoldfastError && errorCode(error)?.startsWith('HOLDFAST_')) throw error
  if (signal?.aborted) return lease.release()
  const reason = error instanceof Error ? error.message : String(error)
  const failures = lease.failures + 1
  if (failures > retries) return lease.bury({ reason })
  return lease.retry({ delayMs: backoff(failures, error), reason })
}

/** Renews the leases of running handlers three times in their life. Returns how to stop. */
function renew<L extends LeaseHandle>(env: Env, leaseMs: number, running: ReadonlyMap<L, unknown>): () => void {
  let cancel = (): void => {}
  const again = (): void => {
    cancel = env.clock.after(leaseMs / 3, () => {
      for (const lease of running.keys()) {
        try {
          if (lease.live) lease.extend(leaseMs)
        } catch {
          // Lost meanwhile: its handler learns it from the signal and from its ack.
        }
      }
      again()
    })
  }
  again()
  return () => cancel()
}
