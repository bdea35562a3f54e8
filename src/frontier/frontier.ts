/**
 * A crawl frontier in a directory: requests with priorities, slots and politeness, each accepted once. The first line of
 * every promise here is docs/durability.md.
 */
import { type Adder, hex, type JobFields, type MemoryJob } from '../engine/adder.js'
import { Engine } from '../engine/engine.js'
import { resolveOptions, type Tuning } from '../engine/engine-options.js'
import { forget, pauseSlot } from '../engine/small-commits.js'
import { HoldfastError } from '../errors.js'
import { ADD_CHUNK_COUNT } from '../limits.js'
import type { JobEntry } from '../queue/job-entry.js'
import type { LeaseEntry } from '../queue/lease-table.js'
import type { SlotLimits } from '../queue/slot-table.js'
import { fingerprint, fingerprintInto, hostOf, hostStart, plainHostEnd } from '../seen/fingerprint.js'
import { FINGERPRINT_BYTES, JOB_START } from '../store/format.js'
import type { JobHeader } from '../store/job-record.js'
import { DELAY_MS_MAX, LeaseHandle } from './lease-handle.js'
import { RecentUrls } from './recent-urls.js'
import { type RequestParts, readRequest, writeRequest } from './request-codec.js'
import { StoreFace } from './store-face.js'
import type {
  AckOptions,
  AddOptions,
  AddResult,
  FrontierOptions,
  LoopOptions,
  RequestInit,
  RequestInput,
  Requests,
  SlotPolicy,
  Visit,
  WorkOptions,
} from './types.js'
import { workLoop } from './work-loop.js'

const NO_OPTIONS: AddOptions = {}
const UNLIMITED: SlotLimits = { concurrency: Infinity, delayMs: 0 }

/** Opens the frontier in `directory`, making it if it is not there. Errors: docs/errors.md. */
export async function openFrontier(
  directory: string,
  options: FrontierOptions & { tuning?: Partial<Tuning> } = {},
): Promise<Frontier> {
  const engine = await Engine.open(directory, resolveOptions('frontier', options, limitsFrom(options.politeness)))
  return new Frontier(engine, options)
}

function limitsFrom(politeness: FrontierOptions['politeness']): (slot: string) => SlotLimits {
  if (politeness === undefined) return () => UNLIMITED
  if (typeof politeness === 'function') return (slot) => slotLimits(politeness(slot))
  const limits = slotLimits(politeness)
  return () => limits
}

function slotLimits(policy: SlotPolicy): SlotLimits {
  const { concurrency = Infinity, delayMs = 0 } = policy
  if (!(concurrency >= 1)) throw new TypeError(`politeness.concurrency is ${concurrency}, expected 1 or more`)
  if (!(delayMs >= 0 && delayMs <= DELAY_MS_MAX)) {
    throw new TypeError(`politeness.delayMs is ${delayMs}, expected a number from 0 to ${DELAY_MS_MAX}`)
  }
  return { concurrency, delayMs }
}

export class Frontier extends StoreFace<VisitHandle, RequestInit> {
  private readonly slotOf: FrontierOptions['slot']
  private readonly fingerprintOf: FrontierOptions['fingerprint']
  private warnedFields = new Set<string>()
  /** Reused for every request: what is in it is copied before the next. */
  private readonly scratch = new Uint8Array(FINGERPRINT_BYTES)
  private readonly fields: JobFields = {
    priority: 0,
    start: false,
    slotText: '',
    slotStart: 0,
    slotEnd: 0,
    due: 0,
    fingerprint: undefined,
    checkSeen: true,
    recordSeen: true,
  }
  private readonly recent = new RecentUrls()
  /** Of the request in `parts`: whether its text may be remembered, and whether it was. */
  private canBeRecent = false
  private isRecent = false
  private readonly parts: RequestParts = {
    url: '',
    method: 'GET',
    body: undefined,
    headers: undefined,
    meta: undefined,
  }

  /** @internal Use openFrontier. */
  constructor(engine: Engine, options: FrontierOptions) {
    super(engine, options.logger)
    this.slotOf = options.slot
    this.fingerprintOf = options.fingerprint
  }

  /**
   * Accepts requests: one, or any (async) iterable of them, which is read no faster than it can be stored. Each chunk of
   * 1000 is one commit; when the promise resolves all are accepted and seen. A TypeError (not a URL, a bad
   * priority) says how many were accepted before.
   */
  async add(requests: Requests, options: AddOptions = NO_OPTIONS): Promise<AddResult> {
    if (isRequest(requests)) return this.addChunk([requests], options)
    const total: AddResult = { added: 0, duplicates: 0, memoryOnly: 0, invalid: 0 }
    let chunk: RequestInput[] = []
    const commit = async (): Promise<void> => {
      const result = await this.addChunk(chunk, options)
      for (const key of ['added', 'duplicates', 'memoryOnly', 'invalid'] as const) total[key] += result[key]
      chunk = []
    }
    try {
      if (Symbol.iterator in requests && !(Symbol.asyncIterator in requests)) {
        for (const request of requests) if (chunk.push(request) === ADD_CHUNK_COUNT) await commit()
      } else for await (const request of requests) if (chunk.push(request) === ADD_CHUNK_COUNT) await commit()
      if (chunk.length > 0 || total.added + total.duplicates + total.invalid === 0) await commit()
    } catch (error) {
      if (error instanceof TypeError && total.added > 0) {
        error.message += ` (${total.added} requests before it were accepted)`
      }
      throw error
    }
    return total
  }

  private async addChunk(requests: Iterable<RequestInput>, options: AddOptions): Promise<AddResult> {
    if (this.engine.crowded) await this.engine.room()
    let invalid = 0
    const adder = await this.engine.add((into) => {
      invalid = this.encodeAll(into, requests, options)
    })
    return this.result(adder, invalid)
  }

  /** @internal */
  result(adder: Adder, invalid: number): AddResult {
    const { added, duplicates, memoryOnly } = adder
    const result = { added, duplicates, memoryOnly, invalid }
    if (added > 0 && this.listenerCount('added') > 0) this.emit('added', result)
    return result
  }

  /** @internal Encodes into the open batch; returns how many were skipped as invalid. */
  encodeAll(into: Adder, requests: Iterable<RequestInput>, options: AddOptions): number {
    let invalid = 0
    let index = 0
    for (const request of requests) {
      try {
        this.prepare(request, options)
      } catch (error) {
        if (!(error instanceof TypeError)) throw error
        if (options.onInvalid !== 'skip') {
          error.message = `request ${index}: ${error.message}`
          throw error
        }
        invalid++
        index++
        continue
      }
      if (this.isRecent) into.skipDuplicate()
      else this.encodePrepared(into)
      index++
    }
    return invalid
  }

  /** Fills `fields` and `parts`. Throws TypeError for what is not a request. */
  private prepare(request: RequestInput, options: AddOptions): void {
    const { fields, parts } = this
    const init = typeof request === 'string' || request instanceof URL ? undefined : request
    if (init !== undefined && (typeof init !== 'object' || init === null)) {
      throw new TypeError(`${String(request)} is not a request`)
    }
    const url = init === undefined ? request : init.url
    parts.url = typeof url === 'string' ? url : url instanceof URL ? url.href : notAUrl(url)
    parts.method = init?.method === undefined ? 'GET' : checkMethod(init.method)
    parts.body = typeof init?.body === 'string' ? Buffer.from(init.body) : init?.body
    if (parts.body !== undefined && !(parts.body instanceof Uint8Array)) {
      throw new TypeError(`body is ${String(parts.body)}, expected a string or a Uint8Array`)
    }
    parts.headers = init?.headers
    parts.meta = init?.meta ?? options.meta
    fields.priority = checkPriority(init?.priority ?? options.priority ?? 0)
    fields.start = init?.start ?? options.start ?? false
    fields.due = checkDue(init?.notBefore ?? options.notBefore ?? 0)
    const dontFilter = init?.dontFilter ?? options.dontFilter ?? false
    fields.checkSeen = !dontFilter
    fields.recordSeen = !dontFilter || (init?.recordSeen ?? options.recordSeen ?? false)
    this.canBeRecent =
      this.fingerprintOf === undefined && fields.checkSeen && parts.method === 'GET' && parts.body === undefined
    this.isRecent = this.canBeRecent && this.recent.has(parts.url, this.engine.state.seenRemovals)
    const slot = init?.slot ?? options.slot
    if (slot !== undefined && typeof slot !== 'string') notASlot(slot)
    if (this.isRecent) return
    fields.fingerprint = this.identify(parts)
    this.prepareSlot(slot ?? this.slotOf?.(parts))
  }

  /** By default the host, which is mostly found where it stands in the URL. */
  private prepareSlot(named: string | undefined): void {
    const { fields, parts } = this
    if (named === undefined && this.slotOf === undefined) {
      const end = plainHostEnd(parts.url)
      if (end >= 0) {
        fields.slotText = parts.url
        fields.slotStart = hostStart(parts.url)
        fields.slotEnd = end
        return
      }
    }
    const slot = named ?? (this.slotOf === undefined ? hostOf(parts.url) : named)
    if (typeof slot !== 'string') notASlot(slot)
    fields.slotText = slot
    fields.slotStart = 0
    fields.slotEnd = slot.length
  }

  /** 16 bytes; also what finds out that a URL is none. */
  private identify(parts: RequestParts): Uint8Array {
    if (this.fingerprintOf === undefined) {
      fingerprintInto(this.scratch, 0, parts.url, parts.method, parts.body)
      return this.scratch
    }
    if (!URL.canParse(parts.url)) notAUrl(parts.url)
    const { url, method, body } = parts
    const own = this.fingerprintOf(body === undefined ? { url, method } : { url, method, body })
    if (!(own instanceof Uint8Array) || own.length < FINGERPRINT_BYTES) {
      throw new TypeError(`the fingerprint function gave ${own?.length ?? String(own)} bytes, expected 16 or more`)
    }
    return own
  }

  private encodePrepared(into: Adder): void {
    const isNew = into.begin(this.fields)
    // A fingerprint that only a memory-only job has is not in the seen-set, and may never be.
    if (this.canBeRecent && this.engine.desk.volatileSeen.size === 0) {
      this.recent.add(this.parts.url, this.engine.state.seenRemovals)
    }
    if (!isNew) return
    const found = writeRequest(into.writer, this.parts)
    if (found === undefined) into.end()
    else {
      into.cancel()
      this.toMemory(into, found)
    }
  }

  private toMemory(into: Adder, found: string): void {
    const field = found.slice(0, found.lastIndexOf(': '))
    if (!this.engine.options.memoryFallback) {
      throw new HoldfastError('HOLDFAST_UNSERIALIZABLE', `${this.parts.url}: ${found} cannot be written to disk`, {
        field,
      })
    }
    if (!this.warnedFields.has(found)) {
      this.warnedFields.add(found)
      this.engine.warn('memory-only', `${this.parts.url}: ${found} cannot be written to disk; kept in memory only`)
    }
    into.addInMemory(this.fields, { ...this.parts })
  }

  protected override face(entry: LeaseEntry, header: JobHeader | MemoryJob): VisitHandle {
    const { job } = entry
    const parts =
      'payload' in header
        ? (header.payload as RequestParts)
        : readRequest((job.chunk as NonNullable<typeof job.chunk>).buffer, header.payloadAt, job.end)
    return new VisitHandle(this, this.engine, entry, parts, header)
  }

  protected override decode(job: JobEntry, header: JobHeader | MemoryJob): RequestInit {
    const { url, method, body, headers, meta } =
      'payload' in header
        ? (header.payload as RequestParts)
        : readRequest((job.chunk as NonNullable<typeof job.chunk>).buffer, header.payloadAt, job.end)
    const init: RequestInit = {
      url,
      method,
      priority: job.bucket.priority,
      slot: this.engine.state.ready.slotName(job.lane),
    }
    if (body !== undefined) init.body = body
    if (headers !== undefined) init.headers = headers
    if (meta !== undefined) init.meta = meta
    return init
  }

  /** Visits one after the other; ends when the frontier is finished or `signal` aborts. Leaving the loop gives back. */
  visits(options: LoopOptions = {}): AsyncGenerator<Visit, void, undefined> {
    return this.loop(options)
  }

  /**
   * Runs `handler` over visits until the frontier is finished. What it returns goes into the ack (`{ add, state }`); what
   * it throws is a retry with backoff, and after `retries` failures a dead letter.
   */
  crawl(
    handler: (visit: Visit) => Promise<AckOptions | void> | AckOptions | void,
    options: WorkOptions = {},
  ): Promise<void> {
    const run = async (visit: VisitHandle): Promise<void> => {
      const found = await handler(visit)
      if (visit.live) await visit.ack(found ?? {})
    }
    return workLoop(this, this.engine.options.env, this.engine.options.leaseMs, run, options)
  }

  /** Hands nothing of this slot out before `untilMs` (ms since the epoch). Durable. 0 ends the pause. */
  async pauseSlot(slot: string, untilMs: number): Promise<void> {
    if (!(Math.abs(untilMs) <= DELAY_MS_MAX)) throw new TypeError(`untilMs is ${untilMs}, expected ms since the epoch`)
    return pauseSlot(this.engine.desk, slot, untilMs)
  }

  /** True when this request was accepted before. */
  has(request: RequestInput): boolean {
    this.prepare(request, NO_OPTIONS)
    if (this.isRecent) return true
    const fingerprint = this.fields.fingerprint as Uint8Array
    return this.engine.state.seen.has(fingerprint, 0) || this.engine.desk.volatileSeen.has(hex(fingerprint))
  }

  /** Forgets that this request was seen, so that it can be added again. False: it was not. */
  async forget(request: RequestInput): Promise<boolean> {
    this.prepare(request, NO_OPTIONS)
    return forget(this.engine.desk, this.identify(this.parts))
  }
}

export class VisitHandle extends LeaseHandle implements Visit {
  readonly url: string
  readonly method: string
  readonly body: Uint8Array | undefined
  readonly headers: Record<string, string> | undefined
  readonly meta: Record<string, unknown>
  readonly slot: string
  readonly start: boolean
  private readonly frontier: Frontier

  constructor(
    frontier: Frontier,
    engine: Engine,
    entry: LeaseEntry,
    parts: RequestParts,
    header: JobHeader | MemoryJob,
  ) {
    super(engine, entry, entry.job.bucket.priority, header.addedAt)
    this.frontier = frontier
    this.url = parts.url
    this.method = parts.method
    this.body = parts.body
    this.headers = parts.headers
    this.meta = parts.meta ?? {}
    this.slot = engine.state.ready.slotName(entry.job.lane)
    this.start = 'flags' in header && (header.flags & JOB_START) !== 0
  }

  async ack(options: AckOptions = {}): Promise<AddResult> {
    const { addOptions = NO_OPTIONS, state } = options
    // Listed before anything is encoded: a generator may itself call this frontier.
    const add = options.add === undefined ? undefined : [...options.add]
    let invalid = 0
    const adder = await this.engine.desk.settle(
      this.entry,
      { verb: 'ack' },
      state,
      add === undefined
        ? undefined
        : (into) => {
            invalid = this.frontier.encodeAll(into, add, addOptions)
          },
    )
    return this.frontier.result(adder, invalid)
  }
}

/** Scrapy's fingerprint of a request, 20 bytes. */
export function requestFingerprint(request: RequestInput): Buffer {
  const init = typeof request === 'string' || request instanceof URL ? { url: request } : request
  const body = typeof init.body === 'string' ? Buffer.from(init.body) : init.body
  return fingerprint({ url: String(init.url), method: init.method ?? 'GET', body })
}

function isRequest(value: Requests): value is RequestInput {
  return (
    typeof value === 'string' || value instanceof URL || (typeof value === 'object' && value !== null && 'url' in value)
  )
}

function notAUrl(value: unknown): never {
  throw new TypeError(`${typeof value === 'string' ? JSON.stringify(value) : String(value)} is not an absolute URL`)
}

function notASlot(slot: unknown): never {
  throw new TypeError(`slot is ${String(slot)}, expected a string`)
}

function checkMethod(method: unknown): string {
  if (typeof method !== 'string' || method === '') throw new TypeError(`method is ${String(method)}, expected a name`)
  return method.toUpperCase()
}

export function checkPriority(priority: number): number {
  if (!Number.isSafeInteger(priority)) throw new TypeError(`priority is ${priority}, expected a safe integer`)
  return 0 + priority
}

export function checkDue(notBefore: number): number {
  if (typeof notBefore !== 'number' || !(notBefore >= 0) || notBefore > Number.MAX_SAFE_INTEGER) {
    throw new TypeError(`notBefore is ${notBefore}, expected ms since the epoch`)
  }
  return notBefore
}
