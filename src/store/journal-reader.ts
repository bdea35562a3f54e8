/**
 * Replays journals and decides what a bad frame means. Only here is it known what was promised: a bad frame that
 * something behind it (or the manifest) says had been synced is corruption and refuses the open; otherwise it is the
 * torn tail of a crash, and everything from there on was never promised.
 */
import { DecodeError } from '../bytes/byte-reader.js'
import type { FileHandle, FileSystem } from '../env/file-system.js'
import { ioError } from '../errors.js'
import { FRAME_PAYLOAD_BYTES_MAX } from '../limits.js'
import { join, journalName } from './file-names.js'
import {
  BATCH_HEADER_BYTES,
  corrupt,
  decodeFileHeader,
  FILE_HEADER_BYTES,
  type FileHeader,
  FRAME_BATCH,
  FRAME_HEADER_BYTES,
  FRAME_UNWRITTEN,
  JOURNAL_MAGIC,
  unsupportedFormat,
} from './format.js'
import { readFrame } from './frame.js'
import { type BatchHeader, readBatchHeader } from './records.js'

const WINDOW_BYTES = 1024 * 1024

export interface JournalScan {
  /** The journal that goes on, and where its good frames end. */
  readonly number: number
  readonly salt: number
  readonly position: number
  readonly sequence: number
  /** Highest sequence any frame or header says was synced. */
  readonly synced: number
  readonly frames: number
  readonly bytes: number
  /** Bytes behind the last good frame, in this and later journals; later ones hold nothing that was promised. */
  readonly tornBytes: number
  readonly tornReason: string | undefined
  /** Journals behind the torn one. */
  readonly dropped: readonly number[]
}

export interface JournalExpectation {
  readonly jobId: Buffer
  readonly first: number
  readonly last: number
  readonly sequence: number
  /** Numbers of the journals in the directory, ascending. */
  readonly present: readonly number[]
}

type OnBatch = (header: BatchHeader, buffer: Buffer, start: number, end: number, path: string, offset: number) => void

export function replayJournals(
  files: FileSystem,
  directory: string,
  expected: JournalExpectation,
  onBatch: OnBatch,
): JournalScan {
  const numbers = expected.present.filter((n) => n >= expected.first)
  for (let n = expected.first; n <= expected.last; n++) {
    if (!numbers.includes(n)) throw corrupt(join(directory, journalName(n)), 'this journal is missing')
  }
  const state = { sequence: 0, synced: 0, frames: 0, bytes: 0 }
  let tail: { number: number; salt: number; position: number } | undefined
  for (const [index, number] of numbers.entries()) {
    const path = join(directory, journalName(number))
    const rest = numbers.slice(index + 1)
    const file = new JournalWindow(files, path)
    try {
      const read = readHeader(file, expected.jobId, number)
      if (typeof read === 'string') {
        const torn = refuseIfPromised(files, directory, path, 0, read, state.sequence + 1, expected, [number, ...rest])
        if (tail === undefined) throw corrupt(path, read, 0)
        return { ...tail, ...state, ...torn, dropped: [number, ...rest] }
      }
      if (tail === undefined) state.sequence = read.firstSequence - 1
      state.synced = Math.max(state.synced, read.syncedSequence)
      if (read.firstSequence !== state.sequence + 1 || (tail !== undefined && number !== tail.number + 1)) {
        const reason = `begins at sequence ${read.firstSequence}, expected ${state.sequence + 1}`
        const torn = refuseIfPromised(files, directory, path, 0, reason, state.sequence + 1, expected, [
          number,
          ...rest,
        ])
        if (tail === undefined) throw corrupt(path, reason, 0)
        return { ...tail, ...state, ...torn, dropped: [number, ...rest] }
      }
      const stopped = replayOne(file, read.salt, state, onBatch)
      tail = { number, salt: read.salt, position: file.offset }
      state.bytes += file.offset
      if (stopped !== undefined) {
        const next = state.sequence + 1
        const torn = refuseIfPromised(files, directory, path, file.offset, stopped, next, expected, rest)
        return { ...tail, ...state, ...torn, dropped: rest }
      }
    } finally {
      file.close()
    }
  }
  if (tail === undefined) throw corrupt(directory, `no journal from ${expected.first} on`)
  if (state.sequence < expected.sequence) {
    const path = join(directory, journalName(tail.number))
    throw corrupt(path, `ends at sequence ${state.sequence}, active.json says ${expected.sequence}`, tail.position)
  }
  return { ...tail, ...state, tornBytes: 0, tornReason: undefined, dropped: [] }
}

/** The header, or why there is none. */
function readHeader(file: JournalWindow, jobId: Buffer, number: number): FileHeader | string {
  file.fill(FILE_HEADER_BYTES)
  const read = decodeFileHeader(file.rest(), JOURNAL_MAGIC)
  if (read.kind === 'newer') throw unsupportedFormat(file.path, read.format)
  if (read.kind === 'bad') {
    // The header lies in one sector: a crash leaves it whole, or zeros, or a file that is too short. Anything else has rotted.
    const header = file.rest().subarray(0, FILE_HEADER_BYTES)
    if (header.length === FILE_HEADER_BYTES && header.some((byte) => byte !== 0))
      throw corrupt(file.path, read.reason, 0)
    return read.reason
  }
  if (!read.header.jobId.equals(jobId)) return 'belongs to another job'
  if (read.header.number !== number) return `is journal ${read.header.number} under another name`
  file.offset = FILE_HEADER_BYTES
  return read.header
}

/** Replays one file; leaves `file.offset` behind the last good frame. undefined: it ends there cleanly. */
function replayOne(
  file: JournalWindow,
  salt: number,
  state: { sequence: number; synced: number; frames: number },
  onBatch: OnBatch,
): string | undefined {
  for (;;) {
    file.fillFrame()
    const bytes = file.buffer
    const at = file.at
    const frame = readFrame(bytes, at, salt)
    if (frame.kind === 'end') return file.zeroToEnd() ? undefined : 'content behind unwritten space'
    if (frame.kind === 'bad') return frame.reason
    if (frame.type !== FRAME_BATCH) return `frame of type ${frame.type} in a journal`
    if (frame.end - frame.start < BATCH_HEADER_BYTES) return 'batch header cut short'
    const header = checkedHeader(file, bytes, frame.start, frame.end)
    if (header.sequence !== state.sequence + 1) {
      return `sequence ${header.sequence}, expected ${state.sequence + 1}`
    }
    try {
      onBatch(header, bytes, frame.start, frame.end, file.path, file.offset)
    } catch (error) {
      // The checksum is right and the content is not: no crash does that.
      if (error instanceof DecodeError) throw corrupt(file.path, error.message, file.offset, error)
      throw error
    }
    state.sequence = header.sequence
    state.synced = Math.max(state.synced, header.synced)
    state.frames++
    file.offset += frame.end - at
  }
}

/** The checksum was right: a header that cannot be decoded is no crash's doing. */
function checkedHeader(file: JournalWindow, bytes: Buffer, start: number, end: number): BatchHeader {
  try {
    return readBatchHeader(bytes, start, end)
  } catch (error) {
    throw corrupt(file.path, (error as Error).message, file.offset, error)
  }
}

/**
 * Decides about a bad place at `offset`, where the frame `sequence` should be. Throws HOLDFAST_CORRUPT when anything says
 * that this frame had been synced; else counts what is cut off.
 */
function refuseIfPromised(
  files: FileSystem,
  directory: string,
  path: string,
  offset: number,
  reason: string,
  sequence: number,
  expected: JournalExpectation,
  later: readonly number[],
): { tornBytes: number; tornReason: string } {
  if (sequence <= expected.sequence) {
    throw corrupt(path, `${reason}; active.json says that sequence ${expected.sequence} was reached`, offset)
  }
  let tornBytes = 0
  const names = [path, ...later.map((n) => join(directory, journalName(n))).filter((p) => p !== path)]
  for (const name of names) {
    const bytes = readWhole(files, name)
    const from = name === path ? offset : 0
    tornBytes += Math.max(0, bytes.length - from)
    const proof = highestSyncedClaim(bytes, from, sequence, expected.jobId)
    if (proof >= sequence) {
      throw corrupt(path, `${reason}; a later frame in ${name} says that sequence ${proof} was synced`, offset)
    }
  }
  return { tornBytes, tornReason: reason }
}

/** Looks at every byte for frames that check out, since a damaged length hides where the next one begins. */
function highestSyncedClaim(bytes: Buffer, from: number, sequence: number, jobId: Buffer): number {
  const read = decodeFileHeader(bytes, JOURNAL_MAGIC)
  if (read.kind !== 'header' || !read.header.jobId.equals(jobId)) return 0
  const { salt, syncedSequence, firstSequence } = read.header
  let highest = from === 0 && firstSequence >= sequence ? syncedSequence : 0
  for (let at = Math.max(from, FILE_HEADER_BYTES); at + FRAME_HEADER_BYTES + BATCH_HEADER_BYTES <= bytes.length; at++) {
    if (bytes[at + 8] !== FRAME_BATCH || bytes.readUInt32LE(at) > FRAME_PAYLOAD_BYTES_MAX) continue
    const claimed = bytes.readUInt32LE(at + FRAME_HEADER_BYTES)
    if (bytes.readUInt32LE(at + FRAME_HEADER_BYTES + 4) !== Math.floor(sequence / 2 ** 32)) continue
    if (claimed < sequence % 2 ** 32) continue
    const frame = readFrame(bytes, at, salt)
    if (frame.kind !== 'frame') continue
    highest = Math.max(highest, readBatchHeader(bytes, frame.start, frame.end).synced)
    at = frame.end - 1
  }
  return highest
}

function readWhole(files: FileSystem, path: string): Buffer {
  try {
    return files.readFile(path)
  } catch (error) {
    throw ioError('reading', path, error)
  }
}

/** A file read in windows, never as one buffer; jobs keep pointing into the windows they were found in. */
class JournalWindow {
  readonly path: string
  readonly size: number
  buffer: Buffer = Buffer.alloc(0)
  /** Position in the file of `buffer[0]`. */
  private base = 0
  /** Position in the file of the next frame. */
  offset = 0
  private readonly handle: FileHandle

  constructor(files: FileSystem, path: string) {
    this.path = path
    try {
      this.handle = files.open(path, 'read')
      this.size = this.handle.size()
    } catch (error) {
      throw ioError('opening', path, error)
    }
  }

  /** Index in `buffer` of `offset`. */
  get at(): number {
    return this.offset - this.base
  }

  rest(): Buffer {
    return this.buffer.subarray(this.at)
  }

  /** At least `bytes` from `offset` on are in the buffer, or all there are. */
  fill(bytes: number): void {
    const wanted = Math.min(bytes, this.size - this.offset)
    if (this.offset + wanted <= this.base + this.buffer.length) return
    const length = Math.min(Math.max(WINDOW_BYTES, wanted), this.size - this.offset)
    const next = Buffer.allocUnsafeSlow(length)
    try {
      const read = this.handle.read(next, this.offset)
      this.buffer = read === length ? next : next.subarray(0, read)
    } catch (error) {
      throw ioError('reading', this.path, error)
    }
    this.base = this.offset
  }

  fillFrame(): void {
    this.fill(FRAME_HEADER_BYTES)
    const { buffer, at } = this
    if (buffer.length - at < FRAME_HEADER_BYTES) return
    const length = buffer.readUInt32LE(at)
    if (buffer[at + 8] !== FRAME_UNWRITTEN && length <= FRAME_PAYLOAD_BYTES_MAX) this.fill(FRAME_HEADER_BYTES + length)
  }

  zeroToEnd(): boolean {
    const { offset } = this
    let zero = true
    while (zero && this.offset < this.size) {
      this.fill(WINDOW_BYTES)
      const rest = this.rest()
      zero = rest.length > 0 && rest.every((byte) => byte === 0)
      this.offset += rest.length
    }
    this.offset = offset
    return zero
  }

  close(): void {
    this.handle.close()
  }
}
