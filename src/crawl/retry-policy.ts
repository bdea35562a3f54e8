/**
 * Which failures of the world are worth another try, and when. Pure: time and randomness come in as arguments.
 */
import type { Random } from '../env/random.js'
import { errorCode } from '../errors.js'
import { BACKOFF_MS_FIRST, BACKOFF_MS_MAX } from '../limits.js'

/** A server may ask us to stay away this long; more is taken for a mistake and counts as this. */
export const RETRY_AFTER_MS_MAX = 60 * 60_000

/** 408, 425, 429 and 5xx are about this moment, all others about the page. */
export function isRetryableStatus(status: number): boolean {
  return status === 408 || status === 425 || status === 429 || status >= 500
}

/** "Slow down", said of the whole host and not of one page. */
export function isOverloaded(status: number): boolean {
  return status === 429 || status === 503
}

/**
 * ms before the next try after `failures` (1 or more) failed ones: doubles from BACKOFF_MS_FIRST to BACKOFF_MS_MAX, give
 * or take a quarter, so that pages that failed together do not come back together.
 */
export function backoffMs(failures: number, random: Random): number {
  const base = Math.min(BACKOFF_MS_MAX, BACKOFF_MS_FIRST * 2 ** Math.min(30, failures - 1))
  return Math.round(base * (0.75 + random.uint32() / 2 ** 33))
}

/** `Retry-After` in ms from `nowMs`: seconds or an HTTP date. undefined when absent or nonsense. */
export function retryAfterMs(header: string | undefined, nowMs: number): number | undefined {
  if (header === undefined) return undefined
  const text = header.trim()
  const ms = /^\d+$/.test(text) ? Number(text) * 1000 : httpDate(text) - nowMs
  if (Number.isNaN(ms)) return undefined
  return Math.min(RETRY_AFTER_MS_MAX, Math.max(0, ms))
}

/** Only what has a letter in it may be a date: `Date.parse` takes "-5" and "1.5" for dates as well. */
function httpDate(text: string): number {
  return /[a-z]{3}/i.test(text) ? Date.parse(text) : Number.NaN
}

/** A short, stable name of what went wrong on the network: the system's code where there is one. */
export function networkErrorLabel(error: unknown): string {
  const code = errorCode(error) ?? errorCode((error as { cause?: unknown } | null)?.cause)
  if (code !== undefined) return LABELS[code] ?? code
  return error instanceof Error ? error.message : String(error)
}

const LABELS: Record<string, string> = {
  UND_ERR_CONNECT_TIMEOUT: 'timeout (connecting)',
  UND_ERR_HEADERS_TIMEOUT: 'timeout (waiting for the answer)',
  UND_ERR_BODY_TIMEOUT: 'timeout (reading the body)',
  UND_ERR_SOCKET: 'connection closed',
}
