/**
 * Runs tasks that write a run: large ones in a worker thread, small ones (a thread costs more than they do) and all of them
 * where there is no thread, in slices on this one.
 *
 * Invariants: what is resolved with is durable, name included; what is rejected left no file, unless the set was closed or
 * may not write any more: then the next open removes it. A file for the thread is made here, where writing is guarded: one
 * that lost the directory never makes a file in it.
 */
import type { Env } from '../env/env.js'
import { type RunningTask, type TaskThread, WorkerUnavailable } from '../env/worker.js'
import { HoldfastError, ioError } from '../errors.js'
import type { WrittenRun } from './seen-run-writer.js'
import { runInSlices, type Steps } from './seen-slices.js'
import { ENTRY_BYTES } from './seen-sort.js'
import { type RunTask, TaskScratch, taskBytes, writeRun } from './seen-task.js'

/** Giving back the space of a larger one takes milliseconds. */
const LARGE_FILE_BYTES = 16 * 1024 * 1024

export interface TasksOptions {
  readonly env: Env
  readonly directory: string
  /** Tasks of fewer entries are done on this thread. */
  readonly workerKeysMin: number
  readonly sliceMs: number
}

export interface TaskCare {
  /** Someone waits for it: the process lives until it is done. */
  readonly isAwaited: boolean
  /** Asked whenever other work may have run; throws when the result is of no use any more. */
  readonly assertWanted: () => void
}

export class SeenTasks {
  private readonly options: TasksOptions
  private thread: TaskThread | undefined
  private isUnavailable = false
  private closed = false
  private readonly running = new Map<number, { readonly bytes: number; job: RunningTask | undefined }>()

  constructor(options: TasksOptions) {
    this.options = options
  }

  /** What running tasks take, wherever they run. */
  get memoryBytes(): number {
    let bytes = 0
    for (const one of this.running.values()) bytes += one.bytes
    return bytes
  }

  slices<T>(steps: Steps<T>, assertWanted: () => void): Promise<T> {
    return runInSlices(steps, this.options.env.clock, this.options.sliceMs, assertWanted)
  }

  /**
   * Undefined: nothing was left to write. `makeTask` may be asked twice: what was sent to a thread is gone here. `entries`:
   * those it will copy.
   */
  async run(
    number: number,
    entries: number,
    makeTask: () => Promise<RunTask>,
    care: TaskCare,
  ): Promise<WrittenRun | undefined> {
    this.running.set(number, { bytes: entries * ENTRY_BYTES, job: undefined })
    let task: RunTask
    try {
      task = await makeTask()
    } catch (error) {
      this.running.delete(number)
      throw error
    }
    this.running.set(number, { bytes: taskBytes(task), job: undefined })
    try {
      const { workers } = this.options.env
      if (workers !== undefined && !this.isUnavailable && task.entriesMax >= this.options.workerKeysMin) {
        try {
          return await this.inThread(task, care)
        } catch (error) {
          if (!(error instanceof WorkerUnavailable)) throw error
          this.isUnavailable = true
          return await this.inSlices(await makeTask(), care)
        }
      }
      return await this.inSlices(task, care)
    } finally {
      this.running.delete(number)
    }
  }

  /** Asks the task that writes this run to stop. */
  cancel(number: number): void {
    this.running.get(number)?.job?.cancel()
  }

  /** The thread ends at once, and what it was writing is rejected. */
  close(): void {
    this.closed = true
    this.thread?.close()
  }

  /** Removes a file that is not named by anyone, if that may still be done. A large one beside: it takes long. */
  remove(path: string, fileBytes = 0): void {
    if (this.closed) return
    const { files } = this.options.env
    try {
      if (fileBytes < LARGE_FILE_BYTES) files.unlink(path)
      else files.remove(path).catch(() => {})
    } catch {
      // The next open does it.
    }
  }

  private async inSlices(task: RunTask, { assertWanted }: TaskCare): Promise<WrittenRun | undefined> {
    const { files } = this.options.env
    const way = {
      mode: 'create',
      syncEveryBytes: Infinity,
      scratch: new TaskScratch(),
      mayRemove: () => !this.closed,
    } as const
    const written = await this.slices(writeRun(files, task, way), assertWanted)
    if (written === undefined) return undefined
    const { writer, run } = written
    try {
      await writer.sync()
      assertWanted()
      await this.syncDirectory()
      assertWanted()
    } catch (error) {
      writer.abandon(!this.closed)
      throw error
    }
    writer.close()
    return run
  }

  private async inThread(task: RunTask, { isAwaited, assertWanted }: TaskCare): Promise<WrittenRun | undefined> {
    const { env } = this.options
    const { path, number, entries } = task
    try {
      env.files.open(path, 'create').close()
    } catch (error) {
      throw ioError('creating', path, error)
    }
    try {
      const thread = this.startThread()
      const transfer = entries === undefined ? [] : [entries.words.buffer, entries.states.buffer]
      const job = thread.run(task, transfer, isAwaited)
      const running = this.running.get(number)
      if (running !== undefined) running.job = job
      const run = (await job.result) as WrittenRun | undefined
      assertWanted()
      if (run === undefined) {
        this.remove(path)
        return undefined
      }
      await this.syncDirectory()
      assertWanted()
      return run
    } catch (error) {
      this.remove(path)
      throw error
    }
  }

  private startThread(): TaskThread {
    if (this.closed) throw new HoldfastError('HOLDFAST_CLOSED', `${this.options.directory} was closed`)
    const { workers } = this.options.env
    // One that died (out of memory, say) is replaced: whatever it had in hand was rejected.
    if (this.thread === undefined || this.thread.hasEnded) {
      this.thread = workers?.start(new URL('./seen-worker.js', import.meta.url))
    }
    return this.thread as TaskThread
  }

  private async syncDirectory(): Promise<void> {
    const { env, directory } = this.options
    try {
      await env.files.syncDirectory(directory)
    } catch (error) {
      throw ioError('syncing', directory, error)
    }
  }
}
