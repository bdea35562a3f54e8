/** The seen-set's directory: which files are runs, which of them a manifest names, and which can go. */
import type { FileSystem } from '../env/file-system.js'
import { errorCode, ioError } from '../errors.js'
import { join, TEMPORARY_SUFFIX } from '../store/file-names.js'
import { corrupt } from '../store/format.js'
import { parseRunName, type SeenRunInfo } from './seen-format.js'

/** Absent is empty. */
export function listRuns(files: FileSystem, directory: string): string[] {
  try {
    return files.readDirectory(directory)
  } catch (error) {
    if (errorCode(error) === 'ENOENT') return []
    throw ioError('reading', directory, error)
  }
}

/** Deletes run files that are not `named`, and unfinished ones. Other files are not ours to delete. */
export function removeUnnamed(files: FileSystem, directory: string, named: ReadonlySet<string>): string[] {
  const removed: string[] = []
  for (const name of listRuns(files, directory)) {
    if (named.has(name) || !(parseRunName(name) !== undefined || name.endsWith(TEMPORARY_SUFFIX))) continue
    try {
      files.unlink(join(directory, name))
      removed.push(name)
    } catch {
      // It does no harm; the next open tries again.
    }
  }
  return removed
}

/** Newest first. The manifest was under a checksum; a run it describes wrongly is damage all the same. */
export function sortRuns(runs: readonly SeenRunInfo[], directory: string): SeenRunInfo[] {
  const numbers = new Set<number>()
  for (const run of runs) {
    const number = parseRunName(run.file)
    const counts = [run.keys, run.tombstones, run.bytes, run.level, run.crc]
    if (number === undefined || numbers.has(number) || !counts.every((n) => Number.isSafeInteger(n) && n >= 0)) {
      throw corrupt(directory, `the manifest has a run ${JSON.stringify(run)}`)
    }
    numbers.add(number)
  }
  return [...runs].sort((a, b) => (parseRunName(b.file) as number) - (parseRunName(a.file) as number))
}
