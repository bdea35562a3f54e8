/**
 * Makes new runs out of the frozen table and of older runs, as far as they are due for merging. Nothing that exists is
 * changed, so a failure at any point leaves the seen-set as the manifest knows it; what was begun is removed.
 */
import type { Env } from '../env/env.js'
import { ioError } from '../errors.js'
import { join } from '../store/file-names.js'
import type { PageCache } from './seen-cache.js'
import { RunFilters } from './seen-filters.js'
import { runName } from './seen-format.js'
import { entriesOf, type LevelShape, levelOf, type MergePlan, planMerge } from './seen-merge.js'
import { SeenRunReader } from './seen-run-reader.js'
import type { WrittenRun } from './seen-run-writer.js'
import { copyTable } from './seen-sort.js'
import type { SeenTable } from './seen-table.js'
import type { RunTask } from './seen-task.js'
import type { SeenTasks, TaskCare } from './seen-tasks.js'

/** Something is wrong that the set can live with, and that someone should know. */
export type Warn = (code: 'seen-damaged' | 'seen-merge-failed', message: string) => void

/** How much larger the oldest run has to be for the others to stay apart: all keys are rewritten each time it grows by 1/3. */
const SPARSE_RATIO = 3

export interface FlushContext extends LevelShape {
  readonly env: Env
  readonly directory: string
  readonly jobId: Uint8Array
  readonly pages: PageCache
  readonly tasks: SeenTasks
  readonly filterKeysMax: number
  /** A merge of more entries is not waited for by a checkpoint: it goes beside. */
  readonly besideKeysMin: number
  readonly warn: Warn
}

export interface Flushed {
  /** The new, newest run. Undefined when nothing was left to write. */
  readonly run: SeenRunReader | undefined
  /** How many of the newest runs it replaces. */
  readonly merged: number
}

/**
 * `runs` newest first; `number` above all of theirs; `isWhole`: there are no older ones. When this resolves, the run's bytes
 * and its name are durable.
 */
export async function flushTable(
  context: FlushContext,
  table: SeenTable,
  runs: readonly SeenRunReader[],
  isWhole: boolean,
  number: number,
  care: TaskCare,
): Promise<Flushed> {
  if (table.count === 0) return { run: undefined, merged: 0 }
  await makeDirectory(context)
  care.assertWanted()
  let merged = 0
  const makeTask = async (): Promise<RunTask> => {
    const entries = await context.tasks.slices(copyTable(table), care.assertWanted)
    const plan = planFlush(context, entries.count, runs, isWhole)
    merged = plan.merged
    const dropTombstones = isWhole && merged === runs.length
    return { ...taskOf(context, number, plan, runs.slice(0, merged), dropTombstones), entries }
  }
  const written = await context.tasks.run(number, table.count, makeTask, care)
  return { run: written === undefined ? undefined : openWritten(context, written), merged }
}

/** `runs` newest first: all the set has. Undefined: no merge is due that a flush would not do. */
export function planBeside(context: FlushContext, runs: readonly SeenRunReader[]): MergePlan | undefined {
  if (runs.length === 0) return undefined
  const [newest, ...older] = runs.map((run) => run.info)
  const must = damagedUpTo(runs)
  const plan = planMerge(entriesOf(newest), older, context, true, Math.max(0, must - 1))
  const merged = plan.merged + 1
  if (isSparse(runs) && merged < runs.length) return wholeMerge(context, runs)
  if ((merged === 1 && must === 0) || plan.entriesMax <= context.besideKeysMin) return undefined
  return { ...plan, merged }
}

/**
 * The filters do not fit, and the oldest run is not much larger than the others together: a page may have to be read for
 * each run that is left without filters. In one run it would be one page at most.
 */
function isSparse(runs: readonly SeenRunReader[]): boolean {
  const oldest = runs[runs.length - 1]
  if (oldest.filters.mayBeWhole || oldest.filters.damage !== undefined) return false
  const newer = runs.slice(0, -1).reduce((sum, run) => sum + entriesOf(run.info), 0)
  return newer * SPARSE_RATIO >= entriesOf(oldest.info)
}

function wholeMerge(context: FlushContext, runs: readonly SeenRunReader[]): MergePlan | undefined {
  const entriesMax = runs.reduce((sum, run) => sum + entriesOf(run.info), 0)
  if (entriesMax <= context.besideKeysMin) return undefined
  return { merged: runs.length, level: levelOf(entriesMax, context), entriesMax }
}

/** Merges the newest runs, as planned, into one that takes their place. */
export async function mergeRuns(
  context: FlushContext,
  plan: MergePlan,
  runs: readonly SeenRunReader[],
  number: number,
  care: TaskCare,
): Promise<Flushed> {
  const task = taskOf(context, number, plan, runs.slice(0, plan.merged), plan.merged === runs.length)
  const written = await context.tasks.run(number, 0, async () => task, care)
  return { run: written === undefined ? undefined : openWritten(context, written), merged: plan.merged }
}

function planFlush(
  context: FlushContext,
  entries: number,
  runs: readonly SeenRunReader[],
  isWhole: boolean,
): MergePlan {
  const infos = runs.map((run) => run.info)
  const plan = planMerge(entries, infos, context, isWhole, damagedUpTo(runs))
  if (plan.merged === 0 || plan.entriesMax <= context.besideKeysMin) return plan
  return { merged: 0, level: levelOf(entries, context), entriesMax: entries }
}

/** A run whose filters are damaged is written anew, and with it all that are newer. */
function damagedUpTo(runs: readonly SeenRunReader[]): number {
  return runs.findLastIndex((run) => run.filters.damage !== undefined) + 1
}

function taskOf(
  context: FlushContext,
  number: number,
  plan: MergePlan,
  runs: readonly SeenRunReader[],
  dropTombstones: boolean,
): RunTask {
  return {
    path: join(context.directory, runName(number)),
    jobId: context.jobId,
    number,
    salt: newSalt(context.env),
    level: plan.level,
    entriesMax: plan.entriesMax,
    filterKeysMax: context.filterKeysMax,
    entries: undefined,
    runs: runs.map(({ path, info, salt }) => ({ path, info, salt })),
    dropTombstones,
  }
}

/** The run as who wrote it describes it: nothing of it is read but what look-ups need. */
function openWritten(context: FlushContext, { info, salt, fences, directory }: WrittenRun): SeenRunReader {
  const path = join(context.directory, info.file)
  try {
    const handle = context.env.files.open(path, 'read')
    const filters = new RunFilters(handle, salt, directory, true, tellDamage(context.warn, path))
    return new SeenRunReader(handle, { path, info, salt, fences, filters }, context.pages)
  } catch (error) {
    context.tasks.remove(path)
    throw ioError('opening', path, error)
  }
}

export const tellDamage =
  (warn: Warn, path: string) =>
  (message: string, offset: number): void =>
    warn('seen-damaged', `${path} at ${offset}: ${message}; it is used without filters until the next checkpoint`)

/** The parent is synced even if the directory is there: who made it may have died before doing so. */
async function makeDirectory({ env, directory }: FlushContext): Promise<void> {
  try {
    env.files.makeDirectory(directory)
  } catch (error) {
    throw ioError('creating', directory, error)
  }
  const slash = directory.replace(/\/+$/, '').lastIndexOf('/')
  const parent = slash < 0 ? '.' : directory.slice(0, slash) || '/'
  try {
    await env.files.syncDirectory(parent)
  } catch (error) {
    throw ioError('syncing', parent, error)
  }
}

function newSalt({ random }: Env): number {
  for (;;) {
    const salt = random.uint32()
    if (salt !== 0) return salt
  }
}
