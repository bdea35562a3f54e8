/** The world Holdfast runs in, injected as one object. Only this folder names node:fs, timers, clocks or randomness. */
import type { Clock } from './clock.js'
import type { FileSystem } from './file-system.js'
import type { LockService } from './lock.js'
import type { Random } from './random.js'
import type { WorkerService } from './worker.js'

export interface Env {
  readonly files: FileSystem
  readonly clock: Clock
  readonly random: Random
  readonly locks: LockService
  /** Threads that see the same disk as `files`. Absent where all has to happen on one thread, as in the simulated world. */
  readonly workers?: WorkerService
}
