/** The public types of frontier and queue: options, requests, results, events. Words are those of docs/architecture.md. */
import type { AddResult, Counters } from '../engine/events.js'
import type { Env } from '../env/env.js'

export type { AddResult, Counters, Recovery, StoreEvents } from '../engine/events.js'

/** `process`: a resolved promise survives kill -9. `power`: it survives power loss too (one shared fdatasync). */
export type Durability = 'process' | 'power'
/** Inside one priority: first in first out, or last in first out (depth first). */
export type Order = 'fifo' | 'lifo'

/** pino-shaped: object first, message second. Silent when absent. */
export interface Logger {
  debug(fields: object, message: string): void
  info(fields: object, message: string): void
  warn(fields: object, message: string): void
  error(fields: object, message: string): void
}

/** How often and how widely one slot (host) may be visited. */
export interface SlotPolicy {
  /** Leases at once in one slot. Default: no bound. */
  concurrency?: number
  /** ms between two hand-outs of one slot. Default 0. */
  delayMs?: number
}

export interface StoreOptions {
  /** Order inside one priority. Fixed when the directory is made; default 'fifo'. */
  order?: Order
  /** Default 'process'. */
  durability?: Durability
  /** ms; bounds what power loss can take in 'process'. Default 1000. */
  syncEveryMs?: number
  /** Bytes of live jobs in memory before the coldest move to segments. Default 64 MiB. */
  memoryBytes?: number
  /**
   * Bytes for the seen-set: recent fingerprints, caches, filters, merging. Default 128 MiB, at least 8 MiB. It is exact
   * whatever the size; with less memory, finding out that a request is new or known reads the disk more often: about 1.2
   * bytes a fingerprint keep that to one page at most for known ones and none for nearly all new ones.
   */
  seenMemoryBytes?: number
  /** ms a lease lasts unless extended. Default 300,000. */
  leaseMs?: number
  /** Hand-outs (crashes included) before a job goes to the dead letters. Default 10. */
  maxAttempts?: number
  /** false: a payload that cannot be serialised throws HOLDFAST_UNSERIALIZABLE; true (default): it is kept in memory. */
  memoryFallback?: boolean
  logger?: Logger
  /** Files, clock, randomness and locks. For tests and simulations. */
  env?: Env
}

export interface FrontierOptions extends StoreOptions {
  /** Per slot; or a function of the slot. Default: no bound, no delay. */
  politeness?: SlotPolicy | ((slot: string) => SlotPolicy)
  /** The politeness key of a request. Default: the host name of its URL. */
  slot?: (request: { readonly url: string; readonly method: string }) => string
  /** Identity of a request: at least 16 bytes, of which the first 16 are used. Default: Scrapy's fingerprint. */
  fingerprint?: (request: { readonly url: string; readonly method: string; readonly body?: Uint8Array }) => Uint8Array
}

/** One request to add. Everything but `url` is optional and durable. */
export interface RequestInit {
  /** Absolute, with a scheme. */
  url: string | URL
  /** Default 'GET'. Upper-cased. */
  method?: string
  /** Part of the identity. */
  body?: Uint8Array | string
  headers?: Record<string, string>
  /** The user's own data: plain objects, arrays, strings, numbers, bigints, dates, maps, sets, typed arrays. */
  meta?: Record<string, unknown>
  /** A safe integer; higher is served first. Default 0. */
  priority?: number
  /** ms since the epoch before which it is not handed out. */
  notBefore?: number
  /** Neither checked against the seen-set nor (unless `recordSeen`) recorded in it. */
  dontFilter?: boolean
  /** With `dontFilter`: record the fingerprint all the same. */
  recordSeen?: boolean
  /** A start request: served after ordinary requests of the same priority, in a bucket of its own (`0s`). */
  start?: boolean
  /** Overrides the politeness key. */
  slot?: string
}

export type RequestInput = string | URL | RequestInit
export type Requests = RequestInput | Iterable<RequestInput> | AsyncIterable<RequestInput>

/** Defaults for all requests of one `add`; a request's own fields win. */
export interface AddOptions {
  priority?: number
  notBefore?: number
  dontFilter?: boolean
  recordSeen?: boolean
  start?: boolean
  meta?: Record<string, unknown>
  slot?: string
  /** What to do with a URL that cannot be parsed. 'throw' (default): TypeError, nothing of the batch is added. */
  onInvalid?: 'throw' | 'skip'
}

/** What rides in the same atomic commit as the end (or the return) of a job. */
export interface Settlement {
  /** Durable key/values to set; `undefined` deletes a key. All values together are bounded by 1 MiB. */
  state?: Record<string, unknown>
}

export interface AckOptions extends Settlement {
  /** Requests found: added in the same commit. */
  add?: Iterable<RequestInput>
  /** Defaults for them. */
  addOptions?: AddOptions
}

export interface RetryOptions extends Settlement {
  /** ms from now before it is handed out again. Default 0. */
  delayMs?: number
  /** Why; kept with the job. */
  reason?: string
}

export interface BuryOptions extends Settlement {
  /** Why; kept with the dead letter. */
  reason?: string
}

/** A leased job: the right to work on it until `deadline`. Every settling call is refused once the lease is over. */
export interface Lease {
  readonly id: number
  /** The fence: changes with each hand-out. */
  readonly token: string
  /** 1 on the first hand-out; counted durably, crashes included. */
  readonly attempt: number
  /** Explicit retries so far. */
  readonly failures: number
  /** Reason given with the last retry, if any. */
  readonly lastReason: string | undefined
  readonly priority: number
  /** ms since the epoch. */
  readonly addedAt: number
  /** ms since the epoch at which the lease ends unless extended. */
  readonly deadline: number
  /** Aborted when the lease is lost, and when the store closes. */
  readonly signal: AbortSignal
  /** False once it was settled or lost. */
  readonly live: boolean
  /** Gives it back with a delay; it returns to its old place. */
  retry(options?: RetryOptions): Promise<void>
  /** Moves it to the dead letters. */
  bury(options?: BuryOptions): Promise<void>
  /** Gives it back at once, as if it had never been handed out: the attempt is not counted. */
  release(options?: Settlement): Promise<void>
  /** Renews the lease for `leaseMs` (default: the store's) from now. */
  extend(leaseMs?: number): void
}

export interface Visit extends Lease {
  readonly url: string
  readonly method: string
  readonly slot: string
  readonly start: boolean
  readonly body: Uint8Array | undefined
  readonly headers: Record<string, string> | undefined
  readonly meta: Record<string, unknown>
  /** Done for ever; what it led to is added in the same commit. */
  ack(options?: AckOptions): Promise<AddResult>
}

export interface Job<T> extends Lease {
  readonly payload: T
  /** Done for ever. */
  ack(options?: Settlement): Promise<void>
}

export interface PushOptions {
  /** A safe integer; higher is served first. Default 0. */
  priority?: number
  /** ms since the epoch before which it is not handed out. */
  notBefore?: number
}

export interface TakeOptions {
  /** Most to hand out. Default 1. */
  max?: number
}

export interface LoopOptions {
  signal?: AbortSignal
}

export interface WorkOptions extends LoopOptions {
  /** Handlers at once. Default 16. */
  concurrency?: number
  /** Failures after which a throwing job is buried. Default 3. */
  retries?: number
  /** ms before the n-th retry. Default: doubles from 1 s to 10 min, with jitter. */
  backoff?: (failures: number, error: unknown) => number
}

/** All in O(1). */
export interface Stats {
  ready: number
  delayed: number
  leased: number
  dead: number
  /** Of ready + delayed + leased, those that cannot survive the process. */
  memoryOnly: number
  /** Fingerprints in the seen-set. */
  seen: number
  /** Slots with a job or a clock. */
  slots: number
  bytes: {
    /** Live jobs in memory. */
    memory: number
    /** The journals. */
    journal: number
    /** Sealed segments of buckets, delayed and dead. */
    segments: number
    /** Seen-set runs. */
    seen: number
  }
  /** Upper bound of the age of the oldest ready job, ms; null when there is none. */
  oldestReadyMs: number | null
  /** Durable since the directory was made. */
  counters: Counters
}

export interface DeadLetter<T> {
  readonly id: number
  readonly reason: string
  readonly attempt: number
  readonly failures: number
  readonly priority: number
  /** ms since the epoch. */
  readonly buriedAt: number
  /** undefined when the payload cannot be decoded; `raw` then still holds its bytes. */
  readonly payload: T | undefined
  readonly raw: Uint8Array
}
