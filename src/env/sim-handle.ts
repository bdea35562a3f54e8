/**
 * An open file on a simulated disk.
 *
 * Invariant: a handle reaches its file and not a name, so it goes on after the file was renamed, replaced or unlinked;
 * the bytes of a file without a name are free again when its last handle is closed.
 */
import type { FileHandle } from './file-system.js'
import { type SimDisk, syncTurns } from './sim-disk.js'
import { simError } from './sim-faults.js'
import type { SimFile } from './sim-file.js'

export class SimHandle implements FileHandle {
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
    this.#disk.faults.checkRead(this.path)
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
    await syncTurns()
    this.#disk.faults.checkAlive()
    this.#file.complete(capture)
  }

  syncNow(): void {
    this.#check('fdatasync')
    this.#file.complete(this.#disk.beginSync(this.#file, this.path))
  }

  close(): void {
    this.#disk.faults.checkAlive()
    if (this.#closed) return
    this.#closed = true
    this.#file.handles--
    this.#disk.handles--
    this.#disk.freeIfGone(this.#file)
  }

  #check(call: string, allowed = true): void {
    this.#disk.faults.checkAlive()
    if (this.#closed || !allowed) throw simError('EBADF', call, this.path)
  }
}
