/** Open descriptors of immutable files, least recently used closed first: thousands of segments, at most `max` open. */
import type { FileHandle, FileSystem } from '../env/file-system.js'
import { errorCode, ioError } from '../errors.js'
import { corrupt } from './format.js'

export class FileCache {
  private readonly files: FileSystem
  private readonly max: number
  private readonly open = new Map<string, FileHandle>()

  constructor(files: FileSystem, max: number) {
    this.files = files
    this.max = max
  }

  /** For reading at once; the handle may be closed by the next `get`. */
  get(path: string): FileHandle {
    let handle = this.open.get(path)
    if (handle !== undefined) {
      this.open.delete(path)
      this.open.set(path, handle)
      return handle
    }
    while (this.open.size >= this.max) this.drop(this.open.keys().next().value as string)
    try {
      handle = this.files.open(path, 'read')
    } catch (error) {
      if (errorCode(error) === 'ENOENT') throw corrupt(path, 'missing, although it is in use')
      throw ioError('opening', path, error)
    }
    this.open.set(path, handle)
    return handle
  }

  drop(path: string): void {
    try {
      this.open.get(path)?.close()
    } catch {
      // Read only: nothing can be lost.
    }
    this.open.delete(path)
  }

  close(): void {
    for (const path of [...this.open.keys()]) this.drop(path)
  }
}
