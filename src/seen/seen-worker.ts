/** The module a worker thread loads: writes runs there. Files are the real ones; the main thread names them and answers for them. */
import { nodeFiles } from '../env/node-file-system.js'
import { serveTasks, type TaskResult } from '../env/worker-serve.js'
import type { Steps } from './seen-slices.js'
import { type RunTask, TaskScratch, writeRun } from './seen-task.js'

/** Bounds what one sync has to write, and with it how long a task that came later waits for it. */
const SYNC_EVERY_BYTES = 32 * 1024 * 1024

serveTasks((task) => serve(task as RunTask))

/** One for each task that runs at a time: they take turns at any yield. */
const scratches: TaskScratch[] = []

function* serve(task: RunTask): Steps<TaskResult> {
  const scratch = scratches.pop() ?? new TaskScratch()
  try {
    return yield* write(task, scratch)
  } finally {
    scratches.push(scratch)
  }
}

function* write(task: RunTask, scratch: TaskScratch): Steps<TaskResult> {
  // The main thread made the file: by the time this thread opens it, the directory may be someone else's, who removed it.
  // It also removes what a task leaves behind, when it still may.
  const way = { mode: 'edit', syncEveryBytes: SYNC_EVERY_BYTES, scratch, mayRemove: () => false } as const
  const written = yield* writeRun(nodeFiles, task, way)
  if (written === undefined) return { result: undefined, transfer: [] }
  const { writer, run } = written
  try {
    writer.syncNow()
  } finally {
    writer.close()
  }
  return { result: run, transfer: [run.fences.buffer as ArrayBuffer] }
}
