/**
 * A disk in memory that can lose, tear and refuse: the ground on which every promise is tested.
 *
 * Three images of everything: *written* (what the running process sees), *synced data* (per file: its content as of the
 * last sync) and *synced names* (per directory: as of the last `syncDirectory`). `crash()` makes the disk that a power
 * loss leaves: the synced images, plus what chance had already carried over.
 *
 * Invariant: nothing is durable that was not asked for. A sync of a file covers its bytes and its length, never its
 * name; a made directory needs the sync of its parent. Everything here is deterministic: asynchronous calls complete in
 * a fixed number of microtask turns, and all chance comes from a seed.
 */
import { posix } from 'node:path'
import { assert } from '../assert.js'
import type { FileHandle, FileSystem, OpenMode } from './file-system.js'
import { type Random, seededRandom } from './random.js'

/** What a disk writes whole or not at all. */
const SECTOR_BYTES = 512
/** Turns between the call of an asynchronous sync and its completion: room for others to write meanwhile. */
const SYNC_TURNS = 3

/** Thrown by the call at which the machine was planned to stop, and by every call on that disk afterwards. */
export class SimCrash extends Error {
  constructor() {
    super('simulated crash: this disk answers no more')
    this.name = 'SimCrash'
  }
}

/** `lost`: only what was synced. `kept`: all that was written, as kill -9 leaves it. `torn`: decided by the seed. */
export type Unsynced = 'lost' | 'kept' | 'torn'

export interface SimFault {
  readonly kind: 'crash' | 'EIO' | 'ENOSPC' | 'EMFILE' | 'short'
  /** The same kind of call (blocking or not) fails each time from then on, until `clearFaults()`. */
  readonly sticky?: boolean
  /** For a crash in a write: a prefix of the bytes, as long as the seed says, has been written. Without it, none. */
  readonly seed?: number
}

type Call =
  | 'write'
  | 'truncate'
  | 'sync'
  | 'create'
  | 'makeDirectory'
  | 'rename'
  | 'unlink'
  | 'removeDirectory'
  | 'syncDirectory'

/** Bytes that read as zeros wherever nothing was written, up to `size`. */
class Image {
  size = 0
  #bytes = Buffer.alloc(0)

  write(bytes: ArrayLike<number>, position: number): void {
    const end = position + bytes.length
    if (end > this.#bytes.length) {
      const grown = Buffer.alloc(Math.max(end, this.#bytes.length * 2, SECTOR_BYTES))
      grown.set(this.#bytes.subarray(0, this.size))
      this.#bytes = grown
    }
    this.#bytes.set(bytes, position)
    this.size = Math.max(this.size, end)
  }

  resize(size: number): void {
    // Zeroed here, so that a later growth finds zeros and not the bytes that were cut off.
    if (size < this.size) this.#bytes.fill(0, size, this.size)
    this.size = size
  }

  /** A copy of `from` to `end`, with zeros beyond the end of the file. */
  slice(from: number, end: number): Buffer {
    const out = Buffer.alloc(end - from)
    // After a growth by `resize` the buffer may be shorter than the file: what is missing is zeros.
    out.set(this.#bytes.subarray(from, Math.min(end, this.size)))
    return out
  }

  flip(offset: number, mask: number): void {
    if (offset < this.size) this.write([this.slice(offset, offset + 1)[0]! ^ mask], offset)
  }
}

/** What a sync will make durable: the file as it was when the sync was called. */
interface Capture {
  readonly order: number
  readonly version: number
  readonly size: number
  readonly sectors: ReadonlyMap<number, { readonly version: number; readonly bytes: Buffer }>
}

class SimFile {
  readonly kind = 'file'
  written = new Image()
  synced = new Image()
  named = false
  handles = 0
  /** Sectors that differ from the synced image and that the next sync will write, with the version of their content. */
  readonly #dirty = new Map<number, number>()
  /** Sectors that a failed sync gave up: marked clean although the disk never got them. */
  readonly #dropped = new Set<number>()
  /** Every length since the last sync, oldest first: any of them may be the one that reached the disk. */
  #sizes: { readonly version: number; readonly size: number }[] = []
  #version = 0
  #syncsCalled = 0
  #syncCompleted = 0

  write(bytes: Uint8Array, position: number): void {
    if (bytes.length === 0) return
    this.#touch(Math.min(position, this.written.size), position + bytes.length)
    this.written.write(bytes, position)
    this.#noteSize()
  }

  truncate(length: number): void {
    this.#touch(Math.min(length, this.written.size), Math.max(length, this.written.size))
    this.written.resize(length)
    this.#noteSize()
  }

  capture(): Capture {
    const sectors = new Map<number, { version: number; bytes: Buffer }>()
    for (const [sector, version] of this.#dirty) {
      const from = sector * SECTOR_BYTES
      sectors.set(sector, { version, bytes: this.written.slice(from, from + SECTOR_BYTES) })
    }
    return { order: ++this.#syncsCalled, version: this.#version, size: this.written.size, sectors }
  }

  complete(capture: Capture): void {
    // A later call that ended first covered all of this, and newer content: it must not be put back.
    if (capture.order < this.#syncCompleted) return
    this.#syncCompleted = capture.order
    for (const [sector, { version, bytes }] of capture.sectors) {
      this.synced.write(bytes, sector * SECTOR_BYTES)
      if (this.#dirty.get(sector) === version) this.#dirty.delete(sector)
    }
    this.synced.resize(capture.size)
    this.#sizes = this.#sizes.filter((entry) => entry.version > capture.version)
  }

  /** After a failed sync the pages are marked clean, as Linux does: still to be read, never to be written again. */
  dropDirty(): void {
    for (const sector of this.#dirty.keys()) this.#dropped.add(sector)
    this.#dirty.clear()
  }

  afterCrash(unsynced: Unsynced, random: Random): Buffer {
    if (unsynced === 'kept') return this.written.slice(0, this.written.size)
    if (unsynced === 'lost') return this.synced.slice(0, this.synced.size)
    const size = this.#tornSize(random)
    const out = this.synced.slice(0, size)
    const keptOfEight = pick(random, [1, 4, 7])
    const sectors = [...new Set([...this.#dirty.keys(), ...this.#dropped])].sort((a, b) => a - b)
    for (const sector of sectors) {
      const kept = random.uint32() % 8 < keptOfEight
      const from = sector * SECTOR_BYTES
      if (kept && from < size) out.set(this.written.slice(from, Math.min(from + SECTOR_BYTES, size)), from)
    }
    return out
  }

  /** The synced length, the written one, or one between: a length may reach the disk before the bytes below it. */
  #tornSize(random: Random): number {
    const sizes = [this.synced.size, ...this.#sizes.map((entry) => entry.size), this.written.size]
    return pick(random, [sizes[0]!, this.written.size, pick(random, sizes)])
  }

  #touch(from: number, end: number): void {
    this.#version++
    for (let sector = Math.floor(from / SECTOR_BYTES); sector * SECTOR_BYTES < end; sector++) {
      this.#dirty.set(sector, this.#version)
      this.#dropped.delete(sector)
    }
  }

  #noteSize(): void {
    this.#sizes.push({ version: this.#version, size: this.written.size })
  }
}

class SimDirectory {
  readonly kind = 'directory'
  readonly names = new Map<string, SimNode>()
  readonly syncedNames = new Map<string, SimNode>()
}

type SimNode = SimFile | SimDirectory

/** One name pointing elsewhere than before: to `node`, or to nothing. */
interface NameChange {
  readonly directory: SimDirectory
  readonly name: string
  readonly node: SimNode | undefined
}

/** What one call did to names, all of it or nothing: a rename is two changes, perhaps in two directories. */
interface NameOperation {
  readonly changes: readonly NameChange[]
  /** A sync of the directory failed on it: only a sync after some newer change will write the directory again. */
  forgotten: boolean
}

class SimHandle implements FileHandle {
  readonly path: string
  readonly #disk: SimDisk
  readonly #file: SimFile
  readonly #writable: boolean
  #closed = false

  constructor(disk: SimDisk, path: string, file: SimFile, writable: boolean) {
    this.path = path
    this.#disk = disk
    this.#file = file
    this.#writable = writable
    file.handles++
    disk.handles++
  }

  write(bytes: Uint8Array, position: number): number {
    this.#check('write', this.#writable)
    return this.#disk.write(this.#file, this.path, bytes, position)
  }

  read(into: Uint8Array, position: number): number {
    this.#check('read')
    this.#disk.checkRead(this.path)
    const count = Math.max(0, Math.min(into.length, this.#file.written.size - position))
    into.set(this.#file.written.slice(position, position + count))
    return count
  }

  size(): number {
    this.#check('fstat')
    return this.#file.written.size
  }

  truncate(length: number): void {
    this.#check('ftruncate', this.#writable)
    this.#disk.truncate(this.#file, this.path, length)
  }

  async sync(): Promise<void> {
    this.#check('fdatasync')
    const capture = this.#disk.beginSync(this.#file, this.path)
    await turns(SYNC_TURNS)
    this.#disk.checkAlive()
    this.#file.complete(capture)
  }

  syncNow(): void {
    this.#check('fdatasync')
    this.#file.complete(this.#disk.beginSync(this.#file, this.path))
  }

  close(): void {
    this.#disk.checkAlive()
    if (this.#closed) return
    this.#closed = true
    this.#file.handles--
    this.#disk.handles--
    this.#disk.freeIfGone(this.#file)
  }

  #check(call: string, allowed = true): void {
    this.#disk.checkAlive()
    if (this.#closed || !allowed) throw simError('EBADF', call, this.path)
  }
}

/** The state of one disk and the rules of its faults, shared by the file system and the handles it gave out. */
class SimDisk {
  root = new SimDirectory()
  /** Not yet durable, oldest first, over all directories. */
  pending: NameOperation[] = []
  mutations = 0
  handles = 0
  hit = false
  crashed = false
  readOnly = false
  capacityBytes = Number.POSITIVE_INFINITY
  usedBytes = 0
  #plan: { readonly at: number; readonly fault: SimFault } | undefined
  #stuck: { readonly call: Call; readonly fault: SimFault } | undefined
  #readFaults: { readonly part: string; readonly code: string }[] = []

  checkAlive(): void {
    if (this.crashed) throw new SimCrash()
  }

  checkRead(path: string): void {
    const fault = this.#readFaults.find(({ part }) => path.includes(part))
    if (fault !== undefined) throw simError(fault.code, 'read', path)
  }

  failReads(part: string, code: string): void {
    this.#readFaults.push({ part, code })
  }

  failAt(callsAhead: number, fault: SimFault): void {
    this.#plan = { at: this.mutations + callsAhead, fault }
    this.hit = false
  }

  clearFaults(): void {
    this.#plan = undefined
    this.#stuck = undefined
    this.#readFaults = []
  }

  /** Counts a mutating call and throws what was planned for it, save for a write: that one is told how it fails. */
  mutate(call: Call, path: string): SimFault | undefined {
    this.checkAlive()
    const index = this.mutations++
    const planned = this.#plan !== undefined && index === this.#plan.at ? this.#plan.fault : undefined
    if (planned !== undefined) {
      this.hit = true
      if (planned.sticky === true) this.#stuck = { call, fault: planned }
    }
    const fault = planned ?? (this.#stuck?.call === call ? this.#stuck.fault : undefined)
    if (fault !== undefined && call !== 'write') throw this.failure(fault, call, path)
    if (fault === undefined && this.readOnly && call !== 'sync' && call !== 'syncDirectory') {
      throw simError('EROFS', call, path)
    }
    return fault
  }

  failure(fault: SimFault, call: Call, path: string): Error {
    if (fault.kind === 'crash') {
      this.crashed = true
      return new SimCrash()
    }
    return simError(fault.kind === 'short' ? 'ENOSPC' : fault.kind, call, path)
  }

  write(file: SimFile, path: string, bytes: Uint8Array, position: number): number {
    const fault = this.mutate('write', path)
    if (fault === undefined) return this.#writeWithinCapacity(file, path, bytes, position)
    if (fault.kind === 'short') {
      return this.#writeWithinCapacity(file, path, bytes.subarray(0, Math.floor(bytes.length / 2)), position)
    }
    if (fault.kind === 'crash' && fault.seed !== undefined) {
      const length = seededRandom(fault.seed).uint32() % (bytes.length + 1)
      this.#writeWithinCapacity(file, path, bytes.subarray(0, length), position)
    }
    throw this.failure(fault, 'write', path)
  }

  #writeWithinCapacity(file: SimFile, path: string, bytes: Uint8Array, position: number): number {
    const endMax = file.written.size + Math.max(0, this.capacityBytes - this.usedBytes)
    const count = Math.max(0, Math.min(bytes.length, endMax - position))
    if (count === 0 && bytes.length > 0) throw simError('ENOSPC', 'write', path)
    const sizeBefore = file.written.size
    file.write(bytes.subarray(0, count), position)
    this.usedBytes += file.written.size - sizeBefore
    return count
  }

  truncate(file: SimFile, path: string, length: number): void {
    this.mutate('truncate', path)
    const growth = length - file.written.size
    if (growth > 0 && this.usedBytes + growth > this.capacityBytes) throw simError('ENOSPC', 'truncate', path)
    file.truncate(length)
    this.usedBytes += growth
  }

  beginSync(file: SimFile, path: string): Capture {
    try {
      this.mutate('sync', path)
    } catch (error) {
      if (!(error instanceof SimCrash)) file.dropDirty()
      throw error
    }
    return file.capture()
  }

  /** The changes are visible at once, and durable when a sync of (one of) their directories has completed. */
  changeNames(changes: readonly NameChange[]): void {
    const replaced: SimFile[] = []
    for (const { directory, name, node } of changes) {
      const before = directory.names.get(name)
      if (before?.kind === 'file') {
        before.named = false
        replaced.push(before)
      }
      setName(directory.names, name, node)
      if (node?.kind === 'file') node.named = true
    }
    // Asked only now: a renamed file loses one name and gets another.
    for (const file of replaced) this.freeIfGone(file)
    this.pending.push({ changes, forgotten: false })
  }

  freeIfGone(file: SimFile): void {
    if (!file.named && file.handles === 0) this.usedBytes -= file.written.size
  }

  /**
   * The operations that a sync of `directory` makes durable: those in it, and before them whatever they build on
   * (a rename from another directory needs the creation there). A rename is one transaction: the sync of either
   * directory carries both sides.
   */
  beginSyncDirectory(directory: SimDirectory, path: string): NameOperation[] {
    const inDirectory = this.pending.filter(({ changes }) => changes.some((change) => change.directory === directory))
    try {
      this.mutate('syncDirectory', path)
    } catch (error) {
      if (!(error instanceof SimCrash)) for (const operation of inDirectory) operation.forgotten = true
      throw error
    }
    if (inDirectory.every((operation) => operation.forgotten)) return []
    return this.withGrounds((operation) => inDirectory.includes(operation))
  }

  /** The chosen pending operations and those that they build on: earlier ones on the same names. In order. */
  withGrounds(chosen: (operation: NameOperation) => boolean): NameOperation[] {
    const wanted = new NameSet()
    const covered: NameOperation[] = []
    for (const operation of [...this.pending].reverse()) {
      if (!chosen(operation) && !operation.changes.some((change) => wanted.has(change))) continue
      for (const change of operation.changes) wanted.add(change)
      covered.unshift(operation)
    }
    return covered
  }

  completeSyncDirectory(covered: readonly NameOperation[]): void {
    for (const operation of covered) {
      // Another sync may have carried it meanwhile, and later ones on the same name with it.
      if (!this.pending.includes(operation)) continue
      for (const { directory, name, node } of operation.changes) setName(directory.syncedNames, name, node)
    }
    this.pending = this.pending.filter((operation) => !covered.includes(operation))
  }
}

/** A set of (directory, name). */
class NameSet {
  readonly #names = new Map<SimDirectory, Set<string>>()

  add({ directory, name }: NameChange): void {
    const names = this.#names.get(directory)
    if (names === undefined) this.#names.set(directory, new Set([name]))
    else names.add(name)
  }

  has({ directory, name }: NameChange): boolean {
    return this.#names.get(directory)?.has(name) === true
  }
}

export class SimFileSystem implements FileSystem {
  readonly #disk = new SimDisk()

  open(path: string, mode: OpenMode): FileHandle {
    this.#disk.checkAlive()
    if (mode === 'create') this.#disk.mutate('create', absolute(path))
    const { directory, name, full } = this.#parent(path, 'open')
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
    if (mode === 'edit' && this.#disk.readOnly) throw simError('EROFS', 'open', full)
    return new SimHandle(this.#disk, full, found, mode === 'edit')
  }

  readFile(path: string): Buffer {
    this.#disk.checkAlive()
    const file = this.#file(path, 'open')
    this.#disk.checkRead(absolute(path))
    return file.written.slice(0, file.written.size)
  }

  readDirectory(path: string): string[] {
    this.#disk.checkAlive()
    return [...this.#directory(path, 'scandir').names.keys()].sort()
  }

  exists(path: string): boolean {
    this.#disk.checkAlive()
    return this.#lookUp(path) !== undefined
  }

  makeDirectory(path: string): void {
    const full = absolute(path)
    // Asked before the count: on a read-only disk too, a directory that is there is no error.
    if (this.#disk.readOnly && this.#lookUp(full)?.kind === 'directory') return
    this.#disk.mutate('makeDirectory', full)
    let directory = this.#disk.root
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
    this.#disk.mutate('rename', absolute(from))
    const source = this.#parent(from, 'rename')
    const target = this.#parent(to, 'rename')
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

  unlink(path: string): void {
    this.#disk.mutate('unlink', absolute(path))
    const { directory, name, full } = this.#parent(path, 'unlink')
    const found = directory?.names.get(name)
    if (directory === undefined || found?.kind === 'directory') throw simError('EISDIR', 'unlink', full)
    if (found === undefined) throw simError('ENOENT', 'unlink', full)
    this.#disk.changeNames([{ directory, name, node: undefined }])
  }

  removeDirectory(path: string): void {
    this.#disk.mutate('removeDirectory', absolute(path))
    const { directory, name, full } = this.#parent(path, 'rmdir')
    if (directory === undefined) throw simError('EBUSY', 'rmdir', full)
    if (this.#directory(full, 'rmdir').names.size > 0) throw simError('ENOTEMPTY', 'rmdir', full)
    this.#disk.changeNames([{ directory, name, node: undefined }])
  }

  async syncDirectory(path: string): Promise<void> {
    this.#disk.checkAlive()
    const covered = this.#disk.beginSyncDirectory(this.#directory(path, 'open'), absolute(path))
    await turns(SYNC_TURNS)
    this.#disk.checkAlive()
    this.#disk.completeSyncDirectory(covered)
  }

  syncDirectoryNow(path: string): void {
    this.#disk.checkAlive()
    const covered = this.#disk.beginSyncDirectory(this.#directory(path, 'open'), absolute(path))
    this.#disk.completeSyncDirectory(covered)
  }

  /** Mutating calls so far: write, truncate, sync, open 'create', makeDirectory, rename, unlink and so on. */
  get mutations(): number {
    return this.#disk.mutations
  }

  /** Plans one fault for the mutating call `callsAhead` (0 = the next one). A new plan replaces the last. */
  failAt(callsAhead: number, fault: SimFault): void {
    this.#disk.failAt(callsAhead, fault)
  }

  /** Whether the planned fault was reached. */
  get hit(): boolean {
    return this.#disk.hit
  }

  /** Whether a planned crash was reached: this disk answers no call any more, only `crash()` and the looks below. */
  get crashed(): boolean {
    return this.#disk.crashed
  }

  /** Reading a file whose path contains `part` fails with `code`, until `clearFaults()`. */
  failReads(part: string, code = 'EIO'): void {
    this.#disk.failReads(part, code)
  }

  /** Forgets the plan, sticky faults and read faults. A crashed disk stays crashed. */
  clearFaults(): void {
    this.#disk.clearFaults()
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
    return this.#disk.readOnly
  }

  set readOnly(value: boolean) {
    this.#disk.readOnly = value
  }

  /** Handles given out and not closed. */
  openHandles(): number {
    return this.#disk.handles
  }

  /** Flips bits of one byte, in what is seen and in what is synced: rot. */
  corrupt(path: string, offset: number, xorMask: number): void {
    const file = this.#file(path, 'open')
    assert(offset < file.written.size, `offset ${offset} lies in ${path}, which has ${file.written.size} bytes`)
    file.written.flip(offset, xorMask)
    file.synced.flip(offset, xorMask)
  }

  /** What the running process sees. Works on a crashed disk too. */
  contents(path: string): Buffer {
    const file = this.#file(path, 'open')
    return file.written.slice(0, file.written.size)
  }

  /** Puts a file there, durable with its name and directories, without counting as a call. */
  setContents(path: string, bytes: Uint8Array): void {
    const full = absolute(path)
    let directory = this.#disk.root
    for (const part of posix.dirname(full).split('/')) {
      if (part === '') continue
      const next = directory.names.get(part) ?? new SimDirectory()
      assert(next.kind === 'directory', `${part} of ${full} is a directory`)
      this.#settleName(directory, part, next)
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
    this.#settleName(directory, name, file)
  }

  /** Paths of all files, sorted. */
  allFiles(): string[] {
    const paths: string[] = []
    const walk = (directory: SimDirectory, path: string): void => {
      for (const [name, node] of directory.names) {
        if (node.kind === 'file') paths.push(`${path}/${name}`)
        else walk(node, `${path}/${name}`)
      }
    }
    walk(this.#disk.root, '')
    return paths.sort()
  }

  /**
   * The disk after a power loss, as a new one on which everything is synced. This one is only looked at: it may be
   * asked again with another seed, or go on.
   */
  crash(options: { readonly seed: number; readonly unsynced: Unsynced }): SimFileSystem {
    const random = seededRandom(options.seed)
    const after = new SimFileSystem()
    after.capacityBytes = this.capacityBytes
    const names = namesAfterCrash(this.#disk, options.unsynced, random)
    const copy = (from: SimDirectory, path: string): void => {
      for (const [name, node] of [...names(from)].sort(([a], [b]) => (a < b ? -1 : 1))) {
        if (node.kind === 'file') after.setContents(`${path}/${name}`, node.afterCrash(options.unsynced, random))
        else {
          after.#setDirectory(`${path}/${name}`)
          copy(node, `${path}/${name}`)
        }
      }
    }
    copy(this.#disk.root, '')
    return after
  }

  #setDirectory(path: string): void {
    const { directory, name } = this.#parent(path, 'mkdir')
    assert(directory !== undefined, 'the root is there')
    this.#settleName(directory, name, new SimDirectory())
  }

  /** Makes a name durable, and before it what is pending on that name. */
  #settleName(directory: SimDirectory, name: string, node: SimNode): void {
    const touches = (change: NameChange): boolean => change.directory === directory && change.name === name
    this.#disk.completeSyncDirectory(this.#disk.withGrounds(({ changes }) => changes.some(touches)))
    directory.names.set(name, node)
    directory.syncedNames.set(name, node)
  }

  #lookUp(path: string): SimNode | undefined {
    let node: SimNode | undefined = this.#disk.root
    for (const name of absolute(path).split('/')) {
      if (name === '') continue
      if (node?.kind !== 'directory') return undefined
      node = node.names.get(name)
    }
    return node
  }

  #file(path: string, call: string): SimFile {
    const { directory, name, full } = this.#parent(path, call)
    const found = directory?.names.get(name)
    if (directory === undefined || found?.kind === 'directory') throw simError('EISDIR', call, full)
    if (found === undefined) throw simError('ENOENT', call, full)
    return found
  }

  #directory(path: string, call: string): SimDirectory {
    const node = this.#lookUp(path)
    if (node === undefined) throw simError('ENOENT', call, absolute(path))
    if (node.kind === 'file') throw simError('ENOTDIR', call, absolute(path))
    return node
  }

  /** The directory that holds, or would hold, the last name of `path`. The root itself is in none. */
  #parent(path: string, call: string): { directory: SimDirectory | undefined; name: string; full: string } {
    const full = absolute(path)
    const directory = full === '/' ? undefined : this.#directory(posix.dirname(full), call)
    return { directory, name: posix.basename(full), full }
  }
}

/**
 * Which names a power loss leaves in each directory. For `torn`, each directory with something pending draws how it
 * lost it: as a journaling file system does (a prefix of its operations, in order), or in strict mode (any subset). In
 * both, an operation stays only if none before it on the same names was lost, and a rename stays whole or not at all:
 * so no name is doubled by it, and its target is never without a file.
 */
function namesAfterCrash(
  disk: SimDisk,
  unsynced: Unsynced,
  random: Random,
): (directory: SimDirectory) => ReadonlyMap<string, SimNode> {
  if (unsynced === 'kept') return (directory) => directory.names
  if (unsynced === 'lost') return (directory) => directory.syncedNames

  const result = new Map<SimDirectory, Map<string, SimNode>>()
  const lost = new NameSet()
  const directoriesCut = new Map<SimDirectory, { readonly strict: boolean; left: number }>()
  for (const operation of disk.pending) {
    for (const { directory } of operation.changes) {
      const cut = directoriesCut.get(directory)
      if (cut !== undefined) continue
      const count = disk.pending.filter(({ changes }) => changes.some((c) => c.directory === directory)).length
      directoriesCut.set(directory, { strict: random.uint32() % 2 === 0, left: random.uint32() % (count + 1) })
    }
  }
  for (const operation of disk.pending) {
    const directories = new Set(operation.changes.map((change) => change.directory))
    let kept = !operation.changes.some((change) => lost.has(change))
    for (const directory of directories) {
      const cut = directoriesCut.get(directory)!
      if (cut.strict) kept = random.uint32() % 2 === 0 && kept
      else if (cut.left-- <= 0) kept = false
    }
    for (const change of operation.changes) {
      if (!kept) {
        lost.add(change)
        // What came after a lost operation is beyond the end of the prefix.
        const cut = directoriesCut.get(change.directory)!
        if (!cut.strict) cut.left = 0
        continue
      }
      let names = result.get(change.directory)
      if (names === undefined) {
        names = new Map(change.directory.syncedNames)
        result.set(change.directory, names)
      }
      setName(names, change.name, change.node)
    }
  }
  return (directory) => result.get(directory) ?? directory.syncedNames
}

function setName(names: Map<string, SimNode>, name: string, node: SimNode | undefined): void {
  if (node === undefined) names.delete(name)
  else names.set(name, node)
}

const absolute = (path: string): string => posix.resolve('/', path)

const pick = <T>(random: Random, choices: readonly T[]): T => choices[random.uint32() % choices.length]!

async function turns(count: number): Promise<void> {
  for (let turn = 0; turn < count; turn++) await Promise.resolve()
}

function simError(code: string, call: string, path: string): Error {
  return Object.assign(new Error(`${code}: simulated, ${call} '${path}'`), { code, syscall: call, path })
}
