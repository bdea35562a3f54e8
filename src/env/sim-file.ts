/**
 * One simulated file, without its name: the bytes that the running process sees, and those that a power loss leaves.
 *
 * Invariant: only a completed sync moves bytes or a length into the synced image, and it moves the file as it was when
 * the sync was called: what was written meanwhile waits for the next one. What a failed sync gave up stays readable, and
 * becomes durable only when it is written again.
 */
import type { Random } from './random.js'

/** What a disk writes whole or not at all. */
const SECTOR_BYTES = 512

/** `lost`: only what was synced. `kept`: all that was written, as kill -9 leaves it. `torn`: decided by the seed. */
export type Unsynced = 'lost' | 'kept' | 'torn'

/** What a sync will make durable: the file as it was when the sync was called. */
export interface Capture {
  readonly order: number
  readonly version: number
  readonly size: number
  readonly sectors: ReadonlyMap<number, { readonly version: number; readonly bytes: Buffer }>
}

export class SimFile {
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

const pick = <T>(random: Random, choices: readonly T[]): T => choices[random.uint32() % choices.length]!
