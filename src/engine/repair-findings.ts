/**
 * What a repair finds wrong and what it had to guess, gathered as it reads. Also how a repair reads a file: a spot that the
 * device cannot give back costs that spot and not the file. Invariant: nothing here, or in any repair-*.ts that reads,
 * writes to the damaged directory.
 */
import type { FileHandle, FileSystem } from '../env/file-system.js'
import { errorCode, HoldfastError, ioError } from '../errors.js'

export interface RepairProblem {
  path: string
  offset?: number
  message: string
}

export class Findings {
  readonly problems: RepairProblem[] = []
  private readonly sentences = new Set<string>()
  /** Jobs known to have been there whose content is gone. */
  lostRecords = 0
  /** Damaged bytes that were skipped. */
  lostBytes = 0

  problem(path: string, message: string, offset?: number): RepairProblem {
    const problem: RepairProblem = offset === undefined ? { path, message } : { path, offset, message }
    this.problems.push(problem)
    return problem
  }

  /** Bytes that do not check out and are skipped. */
  gap(path: string, offset: number, bytes: number, reason: string): RepairProblem {
    this.lostBytes += bytes
    return this.problem(path, `${reason}; ${bytes} bytes are skipped`, offset)
  }

  guess(sentence: string): void {
    this.sentences.add(sentence)
  }

  get guessed(): string[] {
    return [...this.sentences]
  }
}

/** What a failing device says. Anything else (permissions, descriptors) is not damage: the repair stops and says so. */
const DEVICE_ERRORS = new Set(['EIO', 'EBADMSG', 'EUCLEAN'])

const isDeviceError = (error: unknown): boolean => DEVICE_ERRORS.has(errorCode(error) ?? '')

/** True for damage that a repair works around; a newer format, a missing permission and the like are not. */
export function isDamage(error: unknown): boolean {
  if (!(error instanceof HoldfastError)) return false
  const { code, cause } = error as HoldfastError
  return code === 'HOLDFAST_CORRUPT' || (code === 'HOLDFAST_IO' && isDeviceError(cause))
}

const CHUNK_BYTES = 1024 * 1024
const SPOT_BYTES = 4096
/** Stands for bytes that cannot be read. Not zero: zeros would pass for unwritten space. */
const UNREADABLE = 0xff

/** The handle, or undefined and a problem when the file is not there or cannot be opened. */
export function openTolerant(files: FileSystem, path: string, findings: Findings): FileHandle | undefined {
  try {
    return files.open(path, 'read')
  } catch (error) {
    if (errorCode(error) === 'ENOENT') findings.problem(path, 'missing')
    else if (isDeviceError(error)) findings.problem(path, `cannot be opened: ${errorCode(error)}`)
    else throw ioError('opening', path, error)
    return undefined
  }
}

/** The whole file, with 0xff where it cannot be read; undefined and a problem when there is nothing to read. */
export function readTolerant(files: FileSystem, path: string, findings: Findings): Buffer | undefined {
  const handle = openTolerant(files, path, findings)
  if (handle === undefined) return undefined
  try {
    const bytes = Buffer.allocUnsafeSlow(handle.size())
    for (let at = 0; at < bytes.length; at += CHUNK_BYTES) {
      readSpots(handle, bytes.subarray(at, at + CHUNK_BYTES), at, findings)
    }
    return bytes
  } finally {
    handle.close()
  }
}

/** Fills `into` from `position` on: at once, or spot by spot when that fails. */
export function readSpots(handle: FileHandle, into: Buffer, position: number, findings: Findings): void {
  if (readOrFill(handle, into, position)) return
  for (let at = 0; at < into.length; at += SPOT_BYTES) {
    if (!readOrFill(handle, into.subarray(at, at + SPOT_BYTES), position + at)) {
      findings.problem(handle.path, 'cannot be read: the device reports an error', position + at)
    }
  }
}

function readOrFill(handle: FileHandle, into: Buffer, position: number): boolean {
  try {
    const read = handle.read(into, position)
    into.fill(UNREADABLE, read)
    return true
  } catch (error) {
    if (!isDeviceError(error)) throw ioError('reading', handle.path, error)
    into.fill(UNREADABLE)
    return false
  }
}
