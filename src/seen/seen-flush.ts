/**
 * Writes a frozen table to disk: sorted, merged with the runs whose level it fills, synced. Nothing that exists is changed,
 * so a failure at any point leaves the seen-set as the manifest knows it; what was begun is removed.
 */
import type { Env } from '../env/env.js'
import { ioError } from '../errors.js'
import { join } from '../store/file-names.js'
import type { PageCache } from './seen-cache.js'
import { runName } from './seen-format.js'
import { type LevelShape, Merger, mergeInto, planMerge, runSources, TableSource } from './seen-merge.js'
import { SeenRunReader } from './seen-run-reader.js'
import { SeenRunWriter } from './seen-run-writer.js'
import { runInSlices, type Steps } from './seen-slices.js'
import { sortTable } from './seen-sort.js'
import type { SeenTable } from './seen-table.js'

export interface FlushContext extends LevelShape {
  readonly env: Env
  readonly directory: string
  readonly jobId: Uint8Array
  readonly pages: PageCache
  readonly filterKeysMax: number
  readonly sliceMs: number
  /** False once the set was closed: the directory may be someone else's by now. */
  readonly mayRemove: () => boolean
}

export interface Flushed {
  /** The new, newest run. Undefined when nothing was left to write. */
  readonly run: SeenRunReader | undefined
  /** How many of the newest runs it replaces. */
  readonly merged: number
}

/**
 * `runs` newest first; `number` above all of theirs. `assertWanted` is asked after every pause and may throw. When this
 * resolves, the run's bytes and its name are durable.
 */
export async function flushTable(
  context: FlushContext,
  table: SeenTable,
  runs: readonly SeenRunReader[],
  number: number,
  assertWanted: () => void,
): Promise<Flushed> {
  const { env, directory } = context
  const infos = runs.map((run) => run.info)
  const slices = <T>(steps: Steps<T>): Promise<T> => runInSlices(steps, env.clock, context.sliceMs, assertWanted)
  if (table.count === 0) return { run: undefined, merged: 0 }
  const entries = await slices(sortTable(table))
  const plan = planMerge(entries.count, infos, context)
  const merged = runs.slice(0, plan.merged)
  await makeDirectory(context)
  assertWanted()
  const writer = new SeenRunWriter({
    files: env.files,
    path: join(directory, runName(number)),
    jobId: context.jobId,
    number,
    salt: newSalt(env),
    level: plan.level,
    entriesMax: plan.entriesMax,
    filterKeysMax: context.filterKeysMax,
  })
  try {
    const merger = new Merger([new TableSource(entries), ...runSources(merged)])
    await slices(mergeInto(merger, writer, merged.length === runs.length))
    if (writer.keys + writer.tombstones === 0) {
      writer.abandon(true)
      return { run: undefined, merged: plan.merged }
    }
    const parts = await slices(writer.finish())
    await writer.sync()
    assertWanted()
    await syncDirectory(context, directory)
    assertWanted()
    return { run: new SeenRunReader(parts, context.pages), merged: plan.merged }
  } catch (error) {
    writer.abandon(context.mayRemove())
    throw error
  }
}

/** The parent is synced even if the directory is there: who made it may have died before doing so. */
async function makeDirectory(context: FlushContext): Promise<void> {
  const { env, directory } = context
  try {
    env.files.makeDirectory(directory)
  } catch (error) {
    throw ioError('creating', directory, error)
  }
  const slash = directory.replace(/\/+$/, '').lastIndexOf('/')
  await syncDirectory(context, slash < 0 ? '.' : directory.slice(0, slash) || '/')
}

async function syncDirectory({ env }: FlushContext, path: string): Promise<void> {
  try {
    await env.files.syncDirectory(path)
  } catch (error) {
    throw ioError('syncing', path, error)
  }
}

function newSalt({ random }: Env): number {
  for (;;) {
    const salt = random.uint32()
    if (salt !== 0) return salt
  }
}
