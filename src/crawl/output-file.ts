/**
 * The file of finished pages. Its true length is not the file's but the position in the crawl's durable state, which
 * moves in the same commit as the page: what a killed run wrote beyond it is cut off before anything is added.
 *
 * Invariant: bytes before `position.bytes` never change, and the file never holds half a line below it.
 */
import { basename, dirname, isAbsolute, relative, resolve } from 'node:path'
import type { FileHandle, FileSystem } from '../env/file-system.js'
import { HoldfastError, ioError } from '../errors.js'

export const OUTPUT_NAME_DEFAULT = 'pages.ndjson'

export interface OutputPosition {
  readonly bytes: number
  readonly lines: number
}

/** What the state holds. Inside the job's directory the path is relative, so that the directory can be moved. */
export interface OutputState extends OutputPosition {
  readonly path: string
}

export class OutputFile {
  readonly path: string
  readonly #storedPath: string
  readonly #handle: FileHandle
  #bytes: number
  #lines: number
  /** The file could not be cut back after a failed write: nothing may be written behind the debris. */
  #broken = false

  private constructor(path: string, storedPath: string, handle: FileHandle, position: OutputPosition) {
    this.path = path
    this.#storedPath = storedPath
    this.#handle = handle
    this.#bytes = position.bytes
    this.#lines = position.lines
  }

  /**
   * Opens the job's output and cuts it to where the last commit left it. `wanted` is the user's `--out`; without it the
   * job goes on in the file it has.
   */
  static open(
    files: FileSystem,
    directory: string,
    wanted: string | undefined,
    stored: OutputState | undefined,
  ): OutputFile {
    const path = outputPath(directory, wanted, stored)
    const position = stored ?? { bytes: 0, lines: 0 }
    // A file that is gone is one that holds nothing: the same questions, and no empty file made for the wrong answer.
    if (position.bytes > 0 && !exists(files, path)) throw refusal({ path, directory, wanted, stored, size: 0 })
    const handle = openHandle(files, path)
    try {
      const size = handle.size()
      const ours = stored === undefined ? size === 0 : size >= stored.bytes && endsLine(handle, stored.bytes)
      if (!ours) throw refusal({ path, directory, wanted, stored, size })
      // Zeroes beyond the position are as unwanted as a half line: a power loss can leave both.
      if (size > position.bytes) handle.truncate(position.bytes)
    } catch (error) {
      handle.close()
      throw ioError('opening the output', path, error)
    }
    return new OutputFile(path, storedPath(directory, path), handle, position)
  }

  get position(): OutputPosition {
    return { bytes: this.#bytes, lines: this.#lines }
  }

  /** The position as the commit of the last line must store it. */
  get state(): OutputState {
    return { path: this.#storedPath, bytes: this.#bytes, lines: this.#lines }
  }

  /** Adds one line, whole or not at all. It counts once `state` has been committed. */
  append(line: Uint8Array): void {
    if (this.#broken) throw new HoldfastError('HOLDFAST_IO', `${this.path} could not be cut back`, { path: this.path })
    const before = this.position
    try {
      const written = this.#handle.write(line, before.bytes)
      if (written < line.length) throw Object.assign(new Error('short write'), { code: 'ENOSPC' })
    } catch (error) {
      this.cutTo(before)
      throw ioError('writing', this.path, error)
    }
    this.#bytes += line.length
    this.#lines++
  }

  /** Takes back lines whose page was not committed. */
  cutTo(position: OutputPosition): void {
    this.#bytes = position.bytes
    this.#lines = position.lines
    try {
      this.#handle.truncate(position.bytes)
    } catch {
      // The next open cuts it; until then nothing may be added.
      this.#broken = true
    }
  }

  /**
   * Blanks a line that was not committed although one behind it was. A JSON text may begin with white space, so the
   * blanks, newline included, become part of the line behind and the file stays NDJSON.
   */
  blank(from: number, to: number): void {
    this.#handle.write(Buffer.alloc(to - from, ' '), from)
    this.#handle.syncNow()
  }

  async sync(): Promise<void> {
    try {
      await this.#handle.sync()
    } catch (error) {
      throw ioError('syncing', this.path, error)
    }
  }

  close(): void {
    this.#handle.close()
  }
}

function outputPath(directory: string, wanted: string | undefined, stored: OutputState | undefined): string {
  if (wanted !== undefined) return resolve(wanted)
  return resolve(directory, stored?.path ?? OUTPUT_NAME_DEFAULT)
}

function storedPath(directory: string, path: string): string {
  const inside = relative(resolve(directory), path)
  return inside === '' || inside.startsWith('..') || isAbsolute(inside) ? path : inside
}

function exists(files: FileSystem, path: string): boolean {
  try {
    return files.exists(path)
  } catch (error) {
    throw ioError('opening the output', path, error)
  }
}

function openHandle(files: FileSystem, path: string): FileHandle {
  try {
    if (files.exists(path)) return files.open(path, 'edit')
    files.makeDirectory(dirname(path))
    const handle = files.open(path, 'create')
    files.syncDirectoryNow(dirname(path))
    return handle
  } catch (error) {
    throw ioError('opening the output', path, error)
  }
}

/** Why this file cannot be gone on with. */
function refusal(found: {
  readonly path: string
  readonly directory: string
  readonly wanted: string | undefined
  readonly stored: OutputState | undefined
  readonly size: number
}): HoldfastError {
  const { path, directory, wanted, stored, size } = found
  if (stored === undefined) {
    return new HoldfastError(
      'HOLDFAST_MISMATCH',
      `${path} holds ${size} bytes already and belongs to no crawl in ${directory}; name another --out, or remove it`,
      { path },
    )
  }
  const before = resolve(directory, stored.path)
  if (wanted !== undefined && before !== path) {
    return new HoldfastError(
      'HOLDFAST_MISMATCH',
      `the output of this crawl is ${before} (${stored.bytes} bytes) and ${path} does not hold it: ` +
        'move it there, or leave out --out',
      { path },
    )
  }
  const what = size < stored.bytes ? `only ${size} are there` : 'they have changed'
  return new HoldfastError(
    'HOLDFAST_CORRUPT',
    `the crawl wrote ${stored.bytes} bytes to ${path}, and ${what}: ` +
      `put ${basename(path)} back as it was, or start a new crawl`,
    { path, offset: Math.min(size, stored.bytes) },
  )
}

/** A cheap look at whether this is our file: a line must end where the last commit says. */
function endsLine(handle: FileHandle, bytes: number): boolean {
  if (bytes === 0) return true
  const last = new Uint8Array(1)
  return handle.read(last, bytes - 1) === 1 && last[0] === 0x0a
}
