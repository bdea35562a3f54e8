/**
 * `holdfast repair`: salvages what is left of a damaged job into a new directory. The job must not be open meanwhile; the
 * lock is not taken, since that would write. Invariants: not one byte of the damaged directory is changed, and what is
 * written is an ordinary job that opens and verifies.
 */
import { relative, resolve } from 'node:path'
import type { Env } from '../env/env.js'
import type { FileSystem } from '../env/file-system.js'
import { nodeEnv } from '../env/node-env.js'
import { errorCode, HoldfastError, ioError } from '../errors.js'
import { bucketDirectory, DEAD_BUCKET, type JobPaths, jobPaths } from '../store/file-names.js'
import { Findings, type RepairProblem } from './repair-findings.js'
import { type RepairOptions, Salvage } from './repair-salvage.js'
import { verifyDirectory } from './verify.js'

export type { RepairProblem } from './repair-findings.js'
export type { RepairOptions } from './repair-salvage.js'

export interface RepairReport {
  readonly directory: string
  readonly newDirectory: string
  /** In the new directory. What was leased is ready again. */
  readonly jobs: { readonly ready: number; readonly delayed: number; readonly dead: number }
  readonly seen: number
  /** Key/values of the user. */
  readonly values: number
  readonly lost: {
    /** Jobs known to have been there whose content is gone. */
    readonly records: number
    /** Damaged bytes that were skipped. */
    readonly bytes: number
  }
  /** What had to be assumed, in plain sentences. Empty when everything that mattered could be read. */
  readonly guessed: readonly string[]
  readonly problems: readonly Readonly<RepairProblem>[]
}

/**
 * Salvages the job in `directory` into `newDirectory`, which must be empty or not there. Throws HOLDFAST_NOT_FOUND when
 * there is no job, HOLDFAST_MISMATCH when the new directory is not fit, HOLDFAST_UNSUPPORTED_FORMAT when a file is of a newer
 * version. A repair that fails later leaves an unfinished new directory to be removed.
 */
export async function repairDirectory(
  directory: string,
  newDirectory: string,
  env: Env = nodeEnv,
  options: RepairOptions = {},
): Promise<RepairReport> {
  const root = directory.length > 1 ? directory.replace(/\/+$/, '') : directory
  const paths = jobPaths(root)
  assertJob(env.files, paths)
  assertNewDirectory(env.files, root, newDirectory)
  const findings = new Findings()
  const salvage = new Salvage(env, paths, findings)
  try {
    salvage.read()
    const values = salvage.journal.fates.values.size
    await salvage.writeTo(newDirectory, options)
    const report = await verifyDirectory(newDirectory, env)
    if (!report.ok) {
      const { message } = report.problems[0]
      throw new HoldfastError('HOLDFAST_CORRUPT', `what was written does not verify: ${message}`, {
        path: newDirectory,
      })
    }
    const { ready, delayed, dead } = report.jobs
    return {
      directory,
      newDirectory,
      jobs: { ready, delayed, dead },
      seen: report.seen,
      values,
      lost: { records: findings.lostRecords, bytes: findings.lostBytes },
      guessed: findings.guessed,
      problems: findings.problems,
    }
  } finally {
    salvage.seen.close()
  }
}

function assertJob(files: FileSystem, paths: JobPaths): void {
  if ([paths.queue, paths.seen, bucketDirectory(paths, DEAD_BUCKET)].some((path) => files.exists(path))) return
  throw new HoldfastError('HOLDFAST_NOT_FOUND', `${paths.root} holds no job`, { path: paths.root })
}

function assertNewDirectory(files: FileSystem, root: string, newDirectory: string): void {
  if (typeof newDirectory !== 'string' || newDirectory === '')
    throw new TypeError('the new directory is an empty string')
  const between = relative(resolve(root), resolve(newDirectory))
  if (between === '' || !between.startsWith('..')) {
    throw new HoldfastError('HOLDFAST_MISMATCH', `${newDirectory} lies in ${root}, which must not be changed`, {
      path: newDirectory,
    })
  }
  let names: string[] = []
  try {
    names = files.readDirectory(newDirectory)
  } catch (error) {
    if (errorCode(error) !== 'ENOENT') throw ioError('reading', newDirectory, error)
  }
  if (names.length === 0) return
  throw new HoldfastError('HOLDFAST_MISMATCH', `${newDirectory} is not empty (${names[0]} is in it)`, {
    path: newDirectory,
  })
}
