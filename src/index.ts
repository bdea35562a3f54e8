/** The public names of `holdfast`, nothing else. */
export { type RepairReport, repairDirectory } from './engine/repair.js'
export { type VerifyReport, verifyDirectory } from './engine/verify.js'
export { HoldfastError, type HoldfastErrorCode } from './errors.js'
export { type Frontier, openFrontier, requestFingerprint } from './frontier/frontier.js'
export { openQueue, type Queue } from './frontier/queue.js'
export type * from './frontier/types.js'
