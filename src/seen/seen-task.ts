/**
 * One run to be written, as a task that can be sent to another thread: from the entries of a table, from older runs, or from
 * both. The same steps run in slices on the main thread (small runs, and everything in a simulated world) and in a worker.
 *
 * Nothing that exists is changed, so a failure at any point leaves the seen-set as the manifest knows it.
 */
import type { FileSystem } from '../env/file-system.js'
import { ioError } from '../errors.js'
import { FUSE_BUILD_BYTES, FuseScratch } from './binary-fuse.js'
import { Merger, mergeInto, runSources, sourceBytes, TableSource } from './seen-merge.js'
import { type RunName, RunPages } from './seen-run-pages.js'
import { SeenRunWriter, type WrittenRun, writingBytes } from './seen-run-writer.js'
import type { Steps } from './seen-slices.js'
import { ENTRY_BYTES, SortScratch, sortEntries, type TableEntries } from './seen-sort.js'

export interface RunTask {
  readonly path: string
  readonly jobId: Uint8Array
  readonly number: number
  readonly salt: number
  readonly level: number
  /** At least as many entries as the run can get. */
  readonly entriesMax: number
  readonly filterKeysMax: number
  /** Newer than all runs. */
  readonly entries: TableEntries | undefined
  /** Newest first. */
  readonly runs: readonly RunName[]
  /** Nothing older than these runs is left. */
  readonly dropTombstones: boolean
}

/** Memory that tasks may use one after the other. */
export class TaskScratch {
  readonly fuse = new FuseScratch()
  readonly sort = new SortScratch()
}

export interface TaskWay {
  readonly mode: 'create' | 'edit'
  readonly syncEveryBytes: number
  readonly scratch: TaskScratch
  /** Whether files may be removed when it ends badly or empty. */
  readonly mayRemove: () => boolean
}

/** Undefined when nothing was left to write; the file is gone then. Else the writer is open, and to be synced and closed. */
export function* writeRun(
  files: FileSystem,
  task: RunTask,
  way: TaskWay,
): Steps<{ writer: SeenRunWriter; run: WrittenRun } | undefined> {
  const sorted = task.entries === undefined ? undefined : yield* sortEntries(task.entries, way.scratch.sort)
  const writer = new SeenRunWriter({ ...task, ...way, files, scratch: way.scratch.fuse })
  let whole = false
  try {
    const inputs = openInputs(files, task.runs)
    try {
      const newest = sorted === undefined ? [] : [new TableSource(sorted)]
      yield* mergeInto(new Merger([...newest, ...runSources(inputs)]), writer, task.dropTombstones)
    } finally {
      for (const input of inputs) input.close()
    }
    if (writer.keys + writer.tombstones === 0) return undefined
    const run = yield* writer.finish()
    whole = true
    return { writer, run }
  } finally {
    // Also when whoever ran these steps gave them up.
    if (!whole) writer.abandon(way.mayRemove())
  }
}

function openInputs(files: FileSystem, runs: readonly RunName[]): RunPages[] {
  const inputs: RunPages[] = []
  try {
    for (const run of runs) inputs.push(openInput(files, run))
  } catch (error) {
    for (const input of inputs) input.close()
    throw error
  }
  return inputs
}

/** Header and footer were checked when the run was opened for look-ups; each page is when it is read. */
function openInput(files: FileSystem, run: RunName): RunPages {
  try {
    return new RunPages(files.open(run.path, 'read'), run)
  } catch (error) {
    throw ioError('opening', run.path, error)
  }
}

/** What a task takes in memory while it runs, at most. */
export function taskBytes(task: Pick<RunTask, 'entriesMax' | 'filterKeysMax' | 'entries' | 'runs'>): number {
  return (
    (task.entries?.count ?? 0) * ENTRY_BYTES +
    task.runs.reduce((sum, run) => sum + sourceBytes(run.info), 0) +
    writingBytes(task.entriesMax) +
    Math.min(task.entriesMax, task.filterKeysMax) * FUSE_BUILD_BYTES
  )
}
