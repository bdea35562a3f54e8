/** A durable queue of any jobs in a directory: the frontier's engine without URLs, slots or a seen-set. */
import type { Adder, JobFields, MemoryJob } from '../engine/adder.js'
import { readValue, writeValue } from '../engine/codec.js'
import { Engine } from '../engine/engine.js'
import { resolveOptions, type Tuning } from '../engine/engine-options.js'
import { HoldfastError } from '../errors.js'
import { ADD_CHUNK_COUNT } from '../limits.js'
import type { JobEntry } from '../queue/job-entry.js'
import type { LeaseEntry } from '../queue/lease-table.js'
import type { JobHeader } from '../store/job-record.js'
import { checkDue, checkPriority } from './frontier.js'
import { LeaseHandle } from './lease-handle.js'
import { StoreFace } from './store-face.js'
import type { AddResult, Job, LoopOptions, PushOptions, Settlement, StoreOptions, WorkOptions } from './types.js'
import { workLoop } from './work-loop.js'

/** Opens the queue in `directory`, making it if it is not there. Errors: docs/errors.md. */
export async function openQueue<T = unknown>(
  directory: string,
  options: StoreOptions & { tuning?: Partial<Tuning> } = {},
): Promise<Queue<T>> {
  const limits = { concurrency: Infinity, delayMs: 0 }
  return new Queue<T>(
    await Engine.open(
      directory,
      resolveOptions('queue', options, () => limits),
    ),
    options,
  )
}

const NO_OPTIONS: PushOptions = {}

function setOptions(fields: JobFields, { priority = 0, notBefore = 0 }: PushOptions): void {
  fields.priority = checkPriority(priority)
  fields.due = checkDue(notBefore)
}

export class Queue<T> extends StoreFace<JobHandle<T>, T> {
  private warnedFields = new Set<string>()

  /** @internal Use openQueue. */
  constructor(engine: Engine, options: StoreOptions) {
    super(engine, options.logger)
  }

  /** Accepts one job. Any payload the codec brings back whole; `undefined` is a payload too. */
  async push(payload: T, options: PushOptions = {}): Promise<AddResult> {
    return this.pushChunk([payload], options)
  }

  /**
   * Accepts all jobs of an (async) iterable, in commits of 1000. `options` are those of every job, or a function that gives
   * each job its own.
   */
  async pushAll(
    payloads: Iterable<T> | AsyncIterable<T>,
    options: PushOptions | ((payload: T) => PushOptions) = NO_OPTIONS,
  ): Promise<AddResult> {
    if (Array.isArray(payloads) && payloads.length <= ADD_CHUNK_COUNT) return this.pushChunk(payloads, options)
    const total: AddResult = { added: 0, duplicates: 0, memoryOnly: 0, invalid: 0 }
    let chunk: T[] = []
    const commit = async (): Promise<void> => {
      const result = await this.pushChunk(chunk, options)
      total.added += result.added
      total.memoryOnly += result.memoryOnly
      chunk = []
    }
    for await (const payload of payloads) if (chunk.push(payload) === ADD_CHUNK_COUNT) await commit()
    if (chunk.length > 0) await commit()
    return total
  }

  private async pushChunk(
    payloads: readonly T[],
    options: PushOptions | ((payload: T) => PushOptions),
  ): Promise<AddResult> {
    const fields: JobFields = {
      priority: 0,
      start: false,
      slotText: '',
      slotStart: 0,
      slotEnd: 0,
      due: 0,
      fingerprint: undefined,
      checkSeen: false,
      recordSeen: false,
    }
    if (typeof options === 'object') setOptions(fields, options)
    if (this.engine.crowded) await this.engine.room()
    const { added, duplicates, memoryOnly } = await this.engine.add((into) => {
      for (const payload of payloads) {
        if (typeof options === 'function') setOptions(fields, options(payload))
        this.encode(into, fields, payload)
      }
    })
    const result = { added, duplicates, memoryOnly, invalid: 0 }
    if (added > 0 && this.listenerCount('added') > 0) this.emit('added', result)
    return result
  }

  private encode(into: Adder, fields: JobFields, payload: T): void {
    into.begin(fields)
    const found = writeValue(into.writer, payload, 'payload')
    if (found === undefined) {
      into.end()
      return
    }
    into.cancel()
    const field = found.slice(0, found.lastIndexOf(': '))
    if (!this.engine.options.memoryFallback) {
      throw new HoldfastError('HOLDFAST_UNSERIALIZABLE', `${found} cannot be written to disk`, { field })
    }
    if (!this.warnedFields.has(found)) {
      this.warnedFields.add(found)
      this.engine.warn('memory-only', `${found} cannot be written to disk; kept in memory only`)
    }
    into.addInMemory(fields, payload)
  }

  protected override face(entry: LeaseEntry, header: JobHeader | MemoryJob): JobHandle<T> {
    return new JobHandle<T>(this.engine, entry, this.decode(entry.job, header), header.addedAt)
  }

  protected override decode(job: JobEntry, header: JobHeader | MemoryJob): T {
    if ('payload' in header) return header.payload as T
    const { buffer } = job.chunk as NonNullable<typeof job.chunk>
    return readValue(buffer, header.payloadAt, job.end) as T
  }

  /** Jobs one after the other; ends when nothing is left or `signal` aborts. Leaving the loop gives back. */
  jobs(options: LoopOptions = {}): AsyncGenerator<Job<T>, void, undefined> {
    return this.loop(options)
  }

  /** Runs `handler` over jobs until nothing is left: return is ack, throw is retry with backoff, then bury. */
  work(
    handler: (job: Job<T>) => Promise<Settlement | void> | Settlement | void,
    options: WorkOptions = {},
  ): Promise<void> {
    const run = async (job: JobHandle<T>): Promise<void> => {
      const settlement = await handler(job)
      if (job.live) await job.ack(settlement ?? {})
    }
    return workLoop(this, this.engine.options.env, this.engine.options.leaseMs, run, options)
  }
}

export class JobHandle<T> extends LeaseHandle implements Job<T> {
  readonly payload: T

  constructor(engine: Engine, entry: LeaseEntry, payload: T, addedAt: number) {
    super(engine, entry, entry.job.bucket.priority, addedAt)
    this.payload = payload
  }

  async ack(options: Settlement = {}): Promise<void> {
    await this.engine.desk.settle(this.entry, { verb: 'ack' }, options.state)
  }
}
