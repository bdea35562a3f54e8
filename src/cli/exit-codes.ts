/** What the exit code says. Part of the public face: scripts depend on it. */
import { HoldfastError } from '../errors.js'
import type { StopSignal } from './cli-io.js'

export const EXIT_OK = 0
/** The work failed: no room, an I/O error, a bug. */
export const EXIT_FAILED = 1
/** The command line asks for something that cannot be. */
export const EXIT_USAGE = 2
export const EXIT_LOCKED = 3
export const EXIT_DAMAGED = 4

/** As shells report a process that a signal ended. */
export const EXIT_SIGNAL: Record<StopSignal, number> = { SIGINT: 130, SIGTERM: 143 }

export function exitCodeOf(error: unknown): number {
  if (!(error instanceof HoldfastError)) return EXIT_FAILED
  switch ((error as HoldfastError).code) {
    case 'HOLDFAST_LOCKED':
      return EXIT_LOCKED
    case 'HOLDFAST_CORRUPT':
    case 'HOLDFAST_UNSUPPORTED_FORMAT':
      return EXIT_DAMAGED
    case 'HOLDFAST_MISMATCH':
    case 'HOLDFAST_NOT_FOUND':
      return EXIT_USAGE
    default:
      return EXIT_FAILED
  }
}
