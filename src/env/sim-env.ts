/**
 * A whole simulated world out of one seed: disk, clock, randomness and locks.
 *
 * Invariant: a lock belongs to one simulated disk. The disk that `crash()` returns has none, as after a power loss, so
 * reopening on it needs no waiting and the dead owner's handle on the old disk means nothing there.
 */
import { posix } from 'node:path'
import { HoldfastError, ioError } from '../errors.js'
import type { Env } from './env.js'
import type { DirectoryLock, LockService } from './lock.js'
import { seededRandom } from './random.js'
import { SimClock } from './sim-clock.js'
import { SimFileSystem } from './sim-file-system.js'

export function simEnv(options: {
  readonly seed: number
  readonly files?: SimFileSystem
  readonly clock?: SimClock
}): Env & { readonly files: SimFileSystem; readonly clock: SimClock } {
  const files = options.files ?? new SimFileSystem()
  const clock = options.clock ?? new SimClock()
  return { files, clock, random: seededRandom(options.seed), locks: simLocks(files) }
}

/** Takes the lock on `directory` away from whoever holds it, as another host would after its owner had stalled. */
export function loseSimLock(files: SimFileSystem, directory: string, reason = 'taken by another process'): void {
  heldOn(files).get(normalise(directory))?.lose(reason)
}

const held = new WeakMap<SimFileSystem, Map<string, SimLock>>()

function heldOn(files: SimFileSystem): Map<string, SimLock> {
  let locks = held.get(files)
  if (locks === undefined) {
    locks = new Map()
    held.set(files, locks)
  }
  return locks
}

const normalise = (directory: string): string => posix.resolve('/', directory)

class SimLock implements DirectoryLock {
  readonly #locks: Map<string, SimLock>
  readonly #path: string
  readonly #onLost: (reason: string) => void
  /** Why it is ours no more. */
  #ended: string | undefined

  constructor(locks: Map<string, SimLock>, path: string, onLost: (reason: string) => void) {
    this.#locks = locks
    this.#path = path
    this.#onLost = onLost
    locks.set(path, this)
  }

  assertOwned(): void {
    if (this.#ended === undefined) return
    throw new HoldfastError('HOLDFAST_LOCK_LOST', `the lock on ${this.#path} is not ours any more: ${this.#ended}`, {
      path: this.#path,
    })
  }

  lose(reason: string): void {
    if (this.#end(reason)) this.#onLost(reason)
  }

  async release(): Promise<void> {
    this.#end('it was released')
  }

  #end(reason: string): boolean {
    if (this.#ended !== undefined) return false
    this.#ended = reason
    this.#locks.delete(this.#path)
    return true
  }
}

function simLocks(files: SimFileSystem): LockService {
  return {
    async acquire(directory, onLost) {
      const path = normalise(directory)
      try {
        // As the real lock, which has to write into the directory.
        files.readDirectory(path)
      } catch (error) {
        throw ioError('locking', path, error)
      }
      const locks = heldOn(files)
      if (locks.has(path)) {
        throw new HoldfastError('HOLDFAST_LOCKED', `${path} is in use by process 1 on simulated`, {
          path,
          owner: { pid: 1, host: 'simulated' },
        })
      }
      return new SimLock(locks, path, onLost)
    },
  }
}
