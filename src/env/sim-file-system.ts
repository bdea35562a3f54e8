/**
 * A disk in memory that can lose, tear and refuse: the ground on which every promise is tested.
 *
 * Three images of everything: *written* (what the running process sees), *synced data* (per file: its content as of the
 * last sync, `sim-file.ts`) and *synced names* (per directory: as of the last `syncDirectory`, `sim-pending-names.ts`).
 * `crash()` makes the disk that a power loss leaves: the synced images, plus what chance had already carried over.
 * `failAt()` plans a fault against one of the mutating calls (`sim-faults.ts`).
 *
 * Invariant: nothing is durable that was not asked for. A sync of a file covers its bytes and its length, never its
 * name; a made directory needs the sync of its parent. Everything here is deterministic: asynchronous calls complete in
 * a fixed number of microtask turns, and all chance comes from a seed.
 */
import { posix } from 'node:path'
import { assert } from '../assert.js'
import type { FileHandle, FileSystem, OpenMode } from './file-system.js'
import { seededRandom } from './random.js'
import { absolute, SimDirectory } from './sim-directory.js'
import { SimDisk, syncTurns } from './sim-disk.js'
import { type SimFault, simError } from './sim-faults.js'
import { SimFile, type Unsynced } from './sim-file.js'
import { SimHandle } from './sim-handle.js'

export { SimCrash, type SimFault } from './sim-faults.js'
export type { Unsynced } from './sim-file.js'

export class SimFileSystem implements FileSystem {
  readonly #disk = new SimDisk()
  readonly #tree = this.#disk.tree

  open(path: string, mode: OpenMode): FileHandle {
    this.#disk.faults.checkAlive()
    if (mode === 'create') this.#disk.faults.mutate('create', absolute(path))
    const { directory, name, full } = this.#tree.parent(path, 'open')
    const found = directory?.names.get(name)
    if (directory === undefined || found?.kind === 'directory') throw simError('EISDIR', 'open', full)
    if (mode === 'create') {
      const file = found ?? new SimFile()
      if (found === undefined) this.#disk.changeNames([{ directory, name, node: file }])
      this.#disk.usedBytes -= file.written.size
      if (file.written.size > 0) file.truncate(0)
      return new SimHandle(this.#disk, full, file, true)
    }
    if (found === undefined) throw simError('ENOENT', 'open', full)
    if (mode === 'edit' && this.#disk.faults.readOnly) throw simError('EROFS', 'open', full)
    return new SimHandle(this.#disk, full, found, mode === 'edit')
  }

  readFile(path: string): Buffer {
    this.#disk.faults.checkAlive()
    const file = this.#tree.file(path, 'open')
    this.#disk.faults.checkRead(absolute(path))
    return file.written.slice(0, file.written.size)
  }

  readDirectory(path: string): string[] {
    this.#disk.faults.checkAlive()
    return [...this.#tree.directory(path, 'scandir').names.keys()].sort()
  }

  exists(path: string): boolean {
    this.#disk.faults.checkAlive()
    return this.#tree.lookUp(path) !== undefined
  }

  makeDirectory(path: string): void {
    const full = absolute(path)
    // Asked before the count: on a read-only disk too, a directory that is there is no error.
    if (this.#disk.faults.readOnly && this.#tree.lookUp(full)?.kind === 'directory') return
    this.#disk.faults.mutate('makeDirectory', full)
    let directory = this.#tree.root
    const parts = full.split('/').filter((part) => part !== '')
    for (const [depth, name] of parts.entries()) {
      let next = directory.names.get(name)
      if (next?.kind === 'file') throw simError(depth === parts.length - 1 ? 'EEXIST' : 'ENOTDIR', 'mkdir', full)
      if (next === undefined) {
        next = new SimDirectory()
        this.#disk.changeNames([{ directory, name, node: next }])
      }
      directory = next
    }
  }

  rename(from: string, to: string): void {
    this.#disk.faults.mutate('rename', absolute(from))
    const source = this.#tree.parent(from, 'rename')
    const target = this.#tree.parent(to, 'rename')
    if (source.directory === undefined || target.directory === undefined) throw simError('EBUSY', 'rename', '/')
    const node = source.directory.names.get(source.name)
    const replaced = target.directory.names.get(target.name)
    if (node === undefined) throw simError('ENOENT', 'rename', source.full)
    if (node === replaced) return
    if (node.kind === 'directory' && target.full.startsWith(`${source.full}/`)) {
      throw simError('EINVAL', 'rename', target.full)
    }
    if (replaced?.kind === 'directory') {
      if (node.kind === 'file') throw simError('EISDIR', 'rename', target.full)
      if (replaced.names.size > 0) throw simError('ENOTEMPTY', 'rename', target.full)
    } else if (replaced !== undefined && node.kind === 'directory') throw simError('ENOTDIR', 'rename', target.full)
    // The source goes first, so that a file moved onto itself under another name ends up named.
    this.#disk.changeNames([
      { directory: source.directory, name: source.name, node: undefined },
      { directory: target.directory, name: target.name, node },
    ])
  }

  async remove(path: string): Promise<void> {
    this.unlink(path)
  }

  unlink(path: string): void {
    this.#disk.faults.mutate('unlink', absolute(path))
    const { directory, name, full } = this.#tree.parent(path, 'unlink')
    const found = directory?.names.get(name)
    if (directory === undefined || found?.kind === 'directory') throw simError('EISDIR', 'unlink', full)
    if (found === undefined) throw simError('ENOENT', 'unlink', full)
    this.#disk.changeNames([{ directory, name, node: undefined }])
  }

  removeDirectory(path: string): void {
    this.#disk.faults.mutate('removeDirectory', absolute(path))
    const { directory, name, full } = this.#tree.parent(path, 'rmdir')
    if (directory === undefined) throw simError('EBUSY', 'rmdir', full)
    if (this.#tree.directory(full, 'rmdir').names.size > 0) throw simError('ENOTEMPTY', 'rmdir', full)
    this.#disk.changeNames([{ directory, name, node: undefined }])
  }

  async syncDirectory(path: string): Promise<void> {
    this.#disk.faults.checkAlive()
    const covered = this.#disk.beginSyncDirectory(this.#tree.directory(path, 'open'), absolute(path))
    await syncTurns()
    this.#disk.faults.checkAlive()
    this.#disk.pending.complete(covered)
  }

  syncDirectoryNow(path: string): void {
    this.#disk.faults.checkAlive()
    const covered = this.#disk.beginSyncDirectory(this.#tree.directory(path, 'open'), absolute(path))
    this.#disk.pending.complete(covered)
  }

  /** Mutating calls so far: write, truncate, sync, open 'create', makeDirectory, rename, unlink and so on. */
  get mutations(): number {
    return this.#disk.faults.mutations
  }

  /** Plans one fault for the mutating call `callsAhead` (0 = the next one). A new plan replaces the last. */
  failAt(callsAhead: number, fault: SimFault): void {
    this.#disk.faults.failAt(callsAhead, fault)
  }

  /** Whether the planned fault was reached. */
  get hit(): boolean {
    return this.#disk.faults.hit
  }

  /** Whether a planned crash was reached: this disk answers no call any more, only `crash()` and the looks below. */
  get crashed(): boolean {
    return this.#disk.faults.crashed
  }

  /** Reading a file whose path contains `part` fails with `code`, until `clearFaults()`. */
  failReads(part: string, code = 'EIO'): void {
    this.#disk.faults.failReads(part, code)
  }

  /** Forgets the plan, sticky faults and read faults. A crashed disk stays crashed. */
  clearFaults(): void {
    this.#disk.faults.clearFaults()
  }

  get capacityBytes(): number {
    return this.#disk.capacityBytes
  }

  /** Room for the content of all files, counted by their lengths. Names cost nothing. */
  set capacityBytes(bytes: number) {
    this.#disk.capacityBytes = bytes
  }

  /** Bytes that count against the capacity, those of unlinked files with open handles included. */
  get usedBytes(): number {
    return this.#disk.usedBytes
  }

  get readOnly(): boolean {
    return this.#disk.faults.readOnly
  }

  set readOnly(value: boolean) {
    this.#disk.faults.readOnly = value
  }

  /** Handles given out and not closed. */
  openHandles(): number {
    return this.#disk.handles
  }

  /** Flips bits of one byte, in what is seen and in what is synced: rot. */
  corrupt(path: string, offset: number, xorMask: number): void {
    const file = this.#tree.file(path, 'open')
    assert(offset < file.written.size, `offset ${offset} lies in ${path}, which has ${file.written.size} bytes`)
    file.written.flip(offset, xorMask)
    file.synced.flip(offset, xorMask)
  }

  /** What the running process sees. Works on a crashed disk too. */
  contents(path: string): Buffer {
    const file = this.#tree.file(path, 'open')
    return file.written.slice(0, file.written.size)
  }

  /** Puts a file there, durable with its name and directories, without counting as a call. */
  setContents(path: string, bytes: Uint8Array): void {
    const full = absolute(path)
    let directory = this.#tree.root
    for (const part of posix.dirname(full).split('/')) {
      if (part === '') continue
      const next = directory.names.get(part) ?? new SimDirectory()
      assert(next.kind === 'directory', `${part} of ${full} is a directory`)
      this.#disk.pending.settle(directory, part, next)
      directory = next
    }
    const name = posix.basename(full)
    const found = directory.names.get(name)
    assert(found?.kind !== 'directory', `${full} is not a directory`)
    const file = found ?? new SimFile()
    this.#disk.usedBytes += bytes.length - file.written.size
    file.truncate(0)
    file.write(bytes, 0)
    file.complete(file.capture())
    file.named = true
    this.#disk.pending.settle(directory, name, file)
  }

  /** Paths of all files, sorted. */
  allFiles(): string[] {
    return this.#tree.allFiles()
  }

  /**
   * The disk after a power loss, as a new one on which everything is synced. This one is only looked at: it may be
   * asked again with another seed, or go on.
   */
  crash(options: { readonly seed: number; readonly unsynced: Unsynced }): SimFileSystem {
    const random = seededRandom(options.seed)
    const after = new SimFileSystem()
    after.capacityBytes = this.capacityBytes
    const names = this.#disk.pending.afterCrash(options.unsynced, random)
    const copy = (from: SimDirectory, path: string): void => {
      for (const [name, node] of [...names(from)].sort(([a], [b]) => (a < b ? -1 : 1))) {
        if (node.kind === 'file') after.setContents(`${path}/${name}`, node.afterCrash(options.unsynced, random))
        else {
          after.#setDirectory(`${path}/${name}`)
          copy(node, `${path}/${name}`)
        }
      }
    }
    copy(this.#tree.root, '')
    return after
  }

  #setDirectory(path: string): void {
    const { directory, name } = this.#tree.parent(path, 'mkdir')
    assert(directory !== undefined, 'the root is there')
    this.#disk.pending.settle(directory, name, new SimDirectory())
  }
}
