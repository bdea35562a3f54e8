/**
 * Threads of this process. Invariant: every task is answered exactly once, also when the thread dies (out of memory, killed):
 * then with an error that says so.
 */
import { Worker } from 'node:worker_threads'
import { HoldfastError, type HoldfastErrorCode } from '../errors.js'
import {
  type FromWorker,
  type RunningTask,
  type TaskError,
  type TaskThread,
  type ToWorker,
  type WorkerService,
  WorkerUnavailable,
} from './worker.js'

/** What a task makes is large arrays, outside the heap: a large nursery for small objects would only be memory in use. */
const YOUNG_HEAP_MB = 4

interface Waiting {
  readonly resolve: (result: unknown) => void
  readonly reject: (error: Error) => void
  readonly keepAlive: boolean
}

class NodeTaskThread implements TaskThread {
  private readonly worker: Worker
  private readonly waiting = new Map<number, Waiting>()
  private lastId = 0
  private isReady = false
  /** Why it is of no use any more. */
  private ended: Error | undefined

  constructor(module: URL) {
    // Neither flags nor the environment of the process matter to it, and its output goes where ours goes.
    this.worker = new Worker(module, { execArgv: [], resourceLimits: { maxYoungGenerationSizeMb: YOUNG_HEAP_MB } })
    this.worker.unref()
    this.worker.on('message', (message: FromWorker) => this.receive(message))
    this.worker.on('error', (error) => this.end(error))
    this.worker.on('exit', () => this.end(new Error('it exited')))
  }

  get hasEnded(): boolean {
    return this.ended !== undefined
  }

  run(task: object, transfer: readonly ArrayBuffer[], keepAlive: boolean): RunningTask {
    const id = ++this.lastId
    const result = new Promise<unknown>((resolve, reject) => {
      if (this.ended !== undefined) reject(this.ended)
      else this.waiting.set(id, { resolve, reject, keepAlive })
    })
    this.post({ id, task }, transfer)
    this.holdProcess()
    return { result, cancel: () => this.post({ id, cancel: true }) }
  }

  close(): void {
    this.finish(new HoldfastError('HOLDFAST_CLOSED', 'the worker thread was closed'))
    this.worker.terminate().catch(() => {})
  }

  private post(message: ToWorker, transfer: readonly ArrayBuffer[] = []): void {
    if (this.ended === undefined) this.worker.postMessage(message, [...transfer])
  }

  private receive(message: FromWorker): void {
    if ('ready' in message) {
      this.isReady = true
      return
    }
    const waiting = this.waiting.get(message.id)
    if (waiting === undefined) return
    this.waiting.delete(message.id)
    this.holdProcess()
    if ('error' in message) waiting.reject(unpackError(message.error))
    else waiting.resolve(message.result)
  }

  private end(cause: Error): void {
    this.finish(
      this.isReady
        ? new HoldfastError('HOLDFAST_IO', `the worker thread ended: ${cause.message}`, { cause })
        : new WorkerUnavailable(`the worker thread did not start: ${cause.message}`, { cause }),
    )
  }

  private finish(error: Error): void {
    this.ended ??= error
    for (const waiting of this.waiting.values()) waiting.reject(this.ended)
    this.waiting.clear()
  }

  private holdProcess(): void {
    const wanted = [...this.waiting.values()].some(({ keepAlive }) => keepAlive)
    if (wanted) this.worker.ref()
    else this.worker.unref()
  }
}

function unpackError({ message, code, path, offset, cause }: TaskError): Error {
  if (code?.startsWith('HOLDFAST_') !== true) return Object.assign(new Error(message), { code })
  return new HoldfastError(code as HoldfastErrorCode, message, {
    ...(path === undefined ? {} : { path }),
    ...(offset === undefined ? {} : { offset }),
    ...(cause === undefined ? {} : { cause: new Error(cause) }),
  })
}

export const nodeWorkers: WorkerService = { start: (module) => new NodeTaskThread(module) }
