/**
 * The thread's side of worker.ts: runs tasks in slices, the newest first, and answers each exactly once. Nothing here keeps
 * the process alive: that is for the other side to say.
 */
import { parentPort } from 'node:worker_threads'
import { errorCode, HoldfastError } from '../errors.js'
import type { FromWorker, TaskError, ToWorker } from './worker.js'

export interface TaskResult {
  readonly result: unknown
  readonly transfer: readonly ArrayBuffer[]
}

interface Running {
  readonly id: number
  readonly steps: Generator<void, TaskResult, void>
  cancelled: boolean
}

/** Between two looks for new tasks. */
const SLICE_MS = 10

export function serveTasks(begin: (task: object) => Generator<void, TaskResult, void>): void {
  const port = parentPort
  if (port === null) throw new Error('not a worker thread')
  const running: Running[] = []
  const send = (message: FromWorker, transfer: readonly ArrayBuffer[] = []): void => {
    port.postMessage(message, [...transfer])
  }

  const slice = (): void => {
    const task = running[running.length - 1]
    if (task === undefined) return
    try {
      if (task.cancelled) {
        task.steps.return(undefined as never)
        throw new HoldfastError('HOLDFAST_CLOSED', 'the task was given up')
      }
      const endMs = performance.now() + SLICE_MS
      do {
        const step = task.steps.next()
        if (!step.done) continue
        remove(task)
        send({ id: task.id, result: step.value.result }, step.value.transfer)
        break
      } while (performance.now() < endMs)
    } catch (error) {
      remove(task)
      send({ id: task.id, error: packError(error) })
    }
    if (running.length > 0) setImmediate(slice)
  }

  const remove = (task: Running): void => void running.splice(running.indexOf(task), 1)

  port.on('message', (message: ToWorker) => {
    if ('cancel' in message) {
      const task = running.find(({ id }) => id === message.id)
      if (task !== undefined) task.cancelled = true
      return
    }
    running.push({ id: message.id, steps: begin(message.task), cancelled: false })
    if (running.length === 1) setImmediate(slice)
  })
  send({ ready: true })
}

function packError(error: unknown): TaskError {
  const { path, offset, cause } = error as { path?: unknown; offset?: unknown; cause?: unknown }
  return {
    message: error instanceof Error ? error.message : String(error),
    code: errorCode(error),
    path: typeof path === 'string' ? path : undefined,
    offset: typeof offset === 'number' ? offset : undefined,
    cause: cause instanceof Error ? cause.message : undefined,
  }
}
