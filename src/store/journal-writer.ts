/**
 * The write-ahead log: the only file on the way of an acknowledgement. One owner appends; a frame is whole in the file
 * or cut back before anything else is written. `syncedSequence` never runs ahead of the device.
 */
import { assert } from '../assert.js'
import type { FileHandle, FileSystem } from '../env/file-system.js'
import { HoldfastError, ioError } from '../errors.js'
import { JOURNAL_AHEAD_FRAME_SHARE } from '../limits.js'
import { join, journalName } from './file-names.js'
import { encodeFileHeader, FILE_HEADER_BYTES, FRAME_BATCH, FRAME_HEADER_BYTES, JOURNAL_MAGIC } from './format.js'
import { sealFrame } from './frame.js'
import { closeQuietly, writeFully } from './json-file.js'

export interface JournalFile {
  readonly number: number
  readonly handle: FileHandle
  readonly salt: number
  position: number
  /** The file is zeros from `position` to here, where it ends; at most `position`: nothing was zeroed ahead. */
  zeroedTo?: number
}

export class JournalWriter {
  private readonly files: FileSystem
  private readonly directory: string
  private readonly jobId: Buffer
  private current: JournalFile
  /** Rotated away and not yet known synced: they go before the current one. */
  private older: JournalFile[] = []
  private syncQueue: Promise<void> = Promise.resolve()
  /** Why nothing may be written any more. */
  private broken: HoldfastError | undefined
  /** Of the last frame written. */
  sequence: number
  syncedSequence: number

  constructor(
    files: FileSystem,
    directory: string,
    jobId: Buffer,
    current: JournalFile,
    sequence: number,
    syncedSequence: number,
  ) {
    this.files = files
    this.directory = directory
    this.jobId = jobId
    this.current = current
    this.sequence = sequence
    this.syncedSequence = syncedSequence
  }

  get number(): number {
    return this.current.number
  }

  get bytes(): number {
    return this.current.position
  }

  /** Of journals that were rotated away and are still needed for replay. */
  olderBytes = 0

  /** What is zeroed ahead of the frames; 0: nothing, and each frame makes the file longer. */
  aheadBytes = 0

  get dirty(): boolean {
    return this.syncedSequence < this.sequence
  }

  /**
   * Writes the batch that fills the region; its frame and batch headers are filled in here. Throws HOLDFAST_DISK_FULL
   * or HOLDFAST_IO with the file as it was before; when even that cannot be had, every later call throws as well.
   */
  append(region: { buffer: Buffer; start: number; end: number }, records: number, timeMs: number, epoch: number): void {
    if (this.broken) throw this.broken
    const { buffer, start, end } = region
    const sequence = this.sequence + 1
    const head = start + FRAME_HEADER_BYTES
    writeUint64(buffer, head, sequence)
    writeUint64(buffer, head + 8, this.syncedSequence)
    buffer.writeDoubleLE(timeMs, head + 16)
    buffer.writeUInt32LE(epoch, head + 24)
    buffer.writeUInt32LE(records, head + 28)
    sealFrame(buffer, start, end, FRAME_BATCH, this.current.salt)
    const { handle, position } = this.current
    try {
      writeFully(handle, buffer.subarray(start, end), position)
    } catch (error) {
      this.cutBack()
      throw ioError('appending to', handle.path, error)
    }
    this.current.position = position + (end - start)
    this.sequence = sequence
    if (this.current.position > (this.current.zeroedTo ?? 0)) this.zeroAhead(end - start)
  }

  /** J2a: the syncs to come find the file's length as it is. Only a help: without room for it there is none. */
  private zeroAhead(frameBytes: number): void {
    if (frameBytes > this.aheadBytes * JOURNAL_AHEAD_FRAME_SHARE) return
    const { current } = this
    try {
      writeFully(current.handle, Buffer.alloc(this.aheadBytes), current.position)
      current.zeroedTo = current.position + this.aheadBytes
    } catch {
      this.aheadBytes = 0
      this.cutBack()
    }
  }

  /** The file ends where its frames end. Zeros that stay behind are cut by the next open. */
  trim(): void {
    const { current } = this
    if (this.broken !== undefined || (current.zeroedTo ?? 0) <= current.position) return
    try {
      current.handle.truncate(current.position)
    } catch {}
    // Frames to come zero ahead again, or make the file longer.
    current.zeroedTo = current.position
  }

  /** Part of a frame may be in the file: it must be gone before the next frame, or that one could not be found. */
  private cutBack(): void {
    const { handle, position } = this.current
    this.current.zeroedTo = position
    try {
      if (handle.size() > position) handle.truncate(position)
    } catch (error) {
      this.broken = ioError('cutting back', handle.path, error)
    }
  }

  get failed(): HoldfastError | undefined {
    return this.broken
  }

  /** C1: the next journal's file, empty, its name durable. */
  async prepareNext(salt: number): Promise<JournalFile> {
    const number = this.current.number + 1
    const path = join(this.directory, journalName(number))
    let handle: FileHandle | undefined
    try {
      handle = this.files.open(path, 'create')
      await this.files.syncDirectory(this.directory)
    } catch (error) {
      handle?.close()
      throw ioError('creating', path, error)
    }
    return { number, handle, salt, position: 0 }
  }

  /**
   * C2: appends go to `next` from here. The batch in `region` becomes its first frame, in one write with the header, so
   * that a journal with a header always has its first batch or a torn one.
   */
  rotate(
    next: JournalFile,
    region: { buffer: Buffer; start: number; end: number },
    records: number,
    timeMs: number,
    epoch: number,
  ): void {
    if (this.broken) throw this.broken
    const header = encodeJournalHeader(this.jobId, next, this.sequence + 1, this.syncedSequence)
    const before = this.current
    try {
      writeFully(next.handle, header, 0)
      next.position = FILE_HEADER_BYTES
      this.current = next
      this.append(region, records, timeMs, epoch)
    } catch (error) {
      this.current = before
      this.broken = undefined
      throw ioError('beginning', next.handle.path, error)
    }
    this.older.push(before)
    this.olderBytes += before.position
  }

  /**
   * Everything appended before the call is on the device when the promise resolves. A failure is final. `onThread`: the
   * calling thread waits for the device.
   */
  sync(onThread = false): Promise<void> {
    const run = this.syncQueue.then(() => this.syncOnce(onThread))
    this.syncQueue = run.catch(() => {})
    return run
  }

  private async syncOnce(onThread: boolean): Promise<void> {
    if (this.broken) throw this.broken
    const upTo = this.sequence
    if (this.syncedSequence >= upTo) return
    const { current } = this
    const older = this.older.slice()
    for (const file of older) {
      await this.syncFile(file, false)
      this.older.splice(this.older.indexOf(file), 1)
      closeQuietly(file.handle)
    }
    await this.syncFile(current, onThread)
    assert(upTo >= this.syncedSequence, 'synced position only rises')
    this.syncedSequence = upTo
  }

  private async syncFile(file: JournalFile, onThread: boolean): Promise<void> {
    try {
      if (onThread) file.handle.syncNow()
      else await file.handle.sync()
    } catch (error) {
      // The kernel has marked the pages clean: asking again would succeed and mean nothing.
      this.broken = new HoldfastError(
        'HOLDFAST_IO',
        `syncing ${file.handle.path} failed; what is on disk is unknown until it is opened again`,
        { path: file.handle.path, cause: error },
      )
      throw this.broken
    }
  }

  /** No byte is written through this writer again. */
  close(): void {
    this.broken ??= new HoldfastError('HOLDFAST_CLOSED', 'the journal is closed')
    for (const file of [...this.older, this.current]) closeQuietly(file.handle)
    this.older = []
  }
}

function writeUint64(buffer: Buffer, at: number, value: number): void {
  buffer.writeUInt32LE(value % 2 ** 32, at)
  buffer.writeUInt32LE(Math.floor(value / 2 ** 32), at + 4)
}

export function encodeJournalHeader(
  jobId: Buffer,
  file: { readonly number: number; readonly salt: number },
  firstSequence: number,
  syncedSequence: number,
): Buffer {
  return encodeFileHeader({
    magic: JOURNAL_MAGIC,
    jobId,
    number: file.number,
    salt: file.salt,
    firstSequence,
    syncedSequence,
  })
}
