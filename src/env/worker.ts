/**
 * Work beside the main thread, as a contract: a thread that loads one module and runs tasks. The simulated world has none,
 * and whoever uses it must be able to do the same steps on its own thread, so that crash tests see every call.
 *
 * A task is a generator that yields often: the thread looks for new tasks between two slices, and the newest goes first, so
 * that something short need not wait for something long.
 */
export interface WorkerService {
  /** Makes a thread that loads this module, which must call `serveTasks` (worker-serve.ts). Costs some ten ms and MB. */
  start(module: URL): TaskThread
}

export interface TaskThread {
  /** It died, or was closed: of no use any more. */
  readonly hasEnded: boolean
  /**
   * Hands a task over; what is in `transfer` changes hands with it. Only with `keepAlive` does the process live until it is
   * done: for someone who waits.
   */
  run(task: object, transfer: readonly ArrayBuffer[], keepAlive: boolean): RunningTask
  /** Ends the thread wherever it is. What runs is rejected with HOLDFAST_CLOSED. */
  close(): void
}

export interface RunningTask {
  /** Rejects with the task's own error, or with WorkerUnavailable when the thread never came up. */
  readonly result: Promise<unknown>
  /** Asks the task to stop at its next yield: the result is then rejected. */
  cancel(): void
}

/** The module cannot be loaded (bundled into one file, say): the same work has to be done on this thread. */
export class WorkerUnavailable extends Error {}

/** What goes to the thread. */
export type ToWorker = { readonly id: number; readonly task: object } | { readonly id: number; readonly cancel: true }

/** What comes from it. */
export type FromWorker =
  | { readonly ready: true }
  | { readonly id: number; readonly result: unknown }
  | { readonly id: number; readonly error: TaskError }

/** An error as it crosses threads: a HoldfastError loses its class on the way and gets it back. */
export interface TaskError {
  readonly message: string
  readonly code: string | undefined
  readonly path: string | undefined
  readonly offset: number | undefined
  /** The message of what caused it. */
  readonly cause: string | undefined
}
