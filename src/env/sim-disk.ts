/**
 * One simulated disk, below paths and handles: every change to a file or a name passes here, meets the planned faults,
 * and is paid for in room.
 *
 * Invariant: `usedBytes` is the sum of the lengths of all files that have a name or an open handle, and a write never
 * takes it above the capacity.
 */
import { seededRandom } from './random.js'
import { type SimDirectory, SimTree, setName } from './sim-directory.js'
import { SimCrash, SimFaults, simError } from './sim-faults.js'
import type { Capture, SimFile } from './sim-file.js'
import { type NameChange, type NameOperation, SimPendingNames } from './sim-pending-names.js'

/** Turns between the call of an asynchronous sync and its completion: room for others to write meanwhile. */
const SYNC_TURNS = 3

/** Shared by the file system and the handles it gave out. */
export class SimDisk {
  readonly tree = new SimTree()
  readonly pending = new SimPendingNames()
  readonly faults = new SimFaults()
  /** Given out and not closed. */
  handles = 0
  capacityBytes = Number.POSITIVE_INFINITY
  usedBytes = 0

  write(file: SimFile, path: string, bytes: Uint8Array, position: number): number {
    const fault = this.faults.mutate('write', path)
    if (fault === undefined) return this.#writeWithinCapacity(file, path, bytes, position)
    if (fault.kind === 'short') {
      return this.#writeWithinCapacity(file, path, bytes.subarray(0, Math.floor(bytes.length / 2)), position)
    }
    if (fault.kind === 'crash' && fault.seed !== undefined) {
      const length = seededRandom(fault.seed).uint32() % (bytes.length + 1)
      this.#writeWithinCapacity(file, path, bytes.subarray(0, length), position)
    }
    throw this.faults.failure(fault, 'write', path)
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
    this.faults.mutate('truncate', path)
    const growth = length - file.written.size
    if (growth > 0 && this.usedBytes + growth > this.capacityBytes) throw simError('ENOSPC', 'truncate', path)
    file.truncate(length)
    this.usedBytes += growth
  }

  beginSync(file: SimFile, path: string): Capture {
    try {
      this.faults.mutate('sync', path)
    } catch (error) {
      if (!(error instanceof SimCrash)) file.dropDirty()
      throw error
    }
    return file.capture()
  }

  freeIfGone(file: SimFile): void {
    if (!file.named && file.handles === 0) this.usedBytes -= file.written.size
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
    this.pending.add(changes)
  }

  /** What the sync will make durable, for `pending.complete`. */
  beginSyncDirectory(directory: SimDirectory, path: string): NameOperation[] {
    try {
      this.faults.mutate('syncDirectory', path)
    } catch (error) {
      if (!(error instanceof SimCrash)) this.pending.forget(directory)
      throw error
    }
    return this.pending.coveredBySyncOf(directory)
  }
}

/** The time that an asynchronous sync takes. */
export async function syncTurns(): Promise<void> {
  for (let turn = 0; turn < SYNC_TURNS; turn++) await Promise.resolve()
}
