/** The real world: this machine's disk, clock, randomness, locks and threads. */
import { nodeClock } from './clock.js'
import type { Env } from './env.js'
import { nodeFiles } from './node-file-system.js'
import { nodeLocks } from './node-lock.js'
import { nodeWorkers } from './node-worker.js'
import { nodeRandom } from './random.js'

export const nodeEnv: Env = {
  files: nodeFiles,
  clock: nodeClock,
  random: nodeRandom,
  locks: nodeLocks,
  workers: nodeWorkers,
}
