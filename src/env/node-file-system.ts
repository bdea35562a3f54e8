/**
 * The real disk. A thin layer over node:fs that keeps the contract of `file-system.ts` and retries nothing: whether an
 * error may be survived is for the store to say, and after a failed sync the answer is no.
 *
 * Invariant: a descriptor is closed only when no sync runs on it. The kernel reuses descriptor numbers at once, so a
 * sync still waiting in the thread pool would otherwise report on somebody else's file.
 */
import {
  closeSync,
  fdatasync,
  fdatasyncSync,
  fstatSync,
  fsyncSync,
  ftruncateSync,
  mkdirSync,
  openSync,
  promises,
  readdirSync,
  readFileSync,
  readSync,
  renameSync,
  rmdirSync,
  statSync,
  unlinkSync,
  writeSync,
} from 'node:fs'
import { errorCode } from '../errors.js'
import type { FileHandle, FileSystem, OpenMode } from './file-system.js'

const FLAGS: Record<OpenMode, string> = { read: 'r', edit: 'r+', create: 'w+' }

/** Windows has no sync of a directory: NTFS journals its names by itself, and opening one fails with EPERM. */
const DIRECTORIES_SYNC = process.platform !== 'win32'

class NodeFileHandle implements FileHandle {
  readonly path: string
  readonly #descriptor: number
  #syncsRunning = 0
  #closed = false

  constructor(path: string, mode: OpenMode) {
    this.path = path
    this.#descriptor = openSync(path, FLAGS[mode])
  }

  write(bytes: Uint8Array, position: number): number {
    return writeSync(this.#open('write'), bytes, 0, bytes.length, position)
  }

  read(into: Uint8Array, position: number): number {
    const descriptor = this.#open('read')
    let filled = 0
    // The kernel may answer with less than there is; only 0 means the end.
    while (filled < into.length) {
      const count = readSync(descriptor, into, filled, into.length - filled, position + filled)
      if (count === 0) break
      filled += count
    }
    return filled
  }

  size(): number {
    return fstatSync(this.#open('fstat')).size
  }

  truncate(length: number): void {
    ftruncateSync(this.#open('ftruncate'), length)
  }

  async sync(): Promise<void> {
    const descriptor = this.#open('fdatasync')
    this.#syncsRunning++
    try {
      await new Promise<void>((resolve, reject) => {
        fdatasync(descriptor, (error) => (error === null ? resolve() : reject(error)))
      })
    } finally {
      this.#syncsRunning--
      if (this.#closed && this.#syncsRunning === 0) closeLate(descriptor)
    }
  }

  syncNow(): void {
    fdatasyncSync(this.#open('fdatasync'))
  }

  /** A second call does nothing, so that cleaning up after an error need not know how far things had got. */
  close(): void {
    if (this.#closed) return
    this.#closed = true
    if (this.#syncsRunning === 0) closeSync(this.#descriptor)
  }

  #open(call: string): number {
    if (this.#closed) throw badDescriptor(call, this.path)
    return this.#descriptor
  }
}

/**
 * The close that had to wait for a sync. Its error has no one left to go to, and needs none: what the sync covered is
 * durable or was reported by the sync itself, and nothing later was promised.
 */
function closeLate(descriptor: number): void {
  try {
    closeSync(descriptor)
  } catch {
    // See above.
  }
}

function badDescriptor(call: string, path: string): Error {
  return Object.assign(new Error(`EBADF: the file is closed, ${call} '${path}'`), {
    code: 'EBADF',
    syscall: call,
    path,
  })
}

export const nodeFiles: FileSystem = {
  open: (path, mode) => new NodeFileHandle(path, mode),
  readFile: (path) => readFileSync(path),
  readDirectory: (path) => readdirSync(path).sort(),
  exists(path) {
    // Not `existsSync`, which says "no" where the truth is "may not look": a job we cannot read is not an absent one.
    try {
      return statSync(path, { throwIfNoEntry: false }) !== undefined
    } catch (error) {
      if (errorCode(error) === 'ENOTDIR') return false
      throw error
    }
  },
  makeDirectory(path) {
    mkdirSync(path, { recursive: true })
  },
  rename: (from, to) => renameSync(from, to),
  unlink: (path) => unlinkSync(path),
  remove: (path) => promises.unlink(path),
  removeDirectory: (path) => rmdirSync(path),
  async syncDirectory(path) {
    if (!DIRECTORIES_SYNC) return
    const directory = await promises.open(path, 'r')
    try {
      await directory.sync()
    } finally {
      await directory.close()
    }
  },
  syncDirectoryNow(path) {
    if (!DIRECTORIES_SYNC) return
    const descriptor = openSync(path, 'r')
    try {
      fsyncSync(descriptor)
    } finally {
      closeSync(descriptor)
    }
  },
}
