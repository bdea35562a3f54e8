/**
 * A file system that stops writing the moment its owner may not write any more: when the lock is lost or a sync has failed,
 * whatever is under way (a checkpoint, a merge) meets the reason at its next call. Reading goes on.
 */
import type { FileHandle, FileSystem } from './file-system.js'

/** `refuse` throws why nothing may be written; it is asked before every call that changes the disk. */
export function guardedFiles(files: FileSystem, refuse: () => void): FileSystem {
  const guarded = <A extends unknown[], R>(call: (...args: A) => R): ((...args: A) => R) => {
    return (...args) => {
      refuse()
      return call(...args)
    }
  }
  const guardedLater = <A extends unknown[], R>(call: (...args: A) => Promise<R>): ((...args: A) => Promise<R>) => {
    return async (...args) => {
      refuse()
      return call(...args)
    }
  }
  return {
    open(path, mode) {
      if (mode === 'read') return files.open(path, mode)
      refuse()
      return guardedHandle(files.open(path, mode), refuse)
    },
    readFile: (path) => files.readFile(path),
    readDirectory: (path) => files.readDirectory(path),
    exists: (path) => files.exists(path),
    makeDirectory: guarded((path: string) => files.makeDirectory(path)),
    rename: guarded((from: string, to: string) => files.rename(from, to)),
    unlink: guarded((path: string) => files.unlink(path)),
    remove: guardedLater((path: string) => files.remove(path)),
    removeDirectory: guarded((path: string) => files.removeDirectory(path)),
    syncDirectory: guardedLater((path: string) => files.syncDirectory(path)),
    syncDirectoryNow: guarded((path: string) => files.syncDirectoryNow(path)),
  }
}

function guardedHandle(handle: FileHandle, refuse: () => void): FileHandle {
  return {
    path: handle.path,
    write(bytes, position) {
      refuse()
      return handle.write(bytes, position)
    },
    read: (into, position) => handle.read(into, position),
    size: () => handle.size(),
    truncate(length) {
      refuse()
      handle.truncate(length)
    },
    async sync() {
      refuse()
      return handle.sync()
    },
    syncNow() {
      refuse()
      handle.syncNow()
    },
    close: () => handle.close(),
  }
}
