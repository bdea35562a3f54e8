/**
 * Reads the journals of a damaged job. Unlike replay nothing is refused: a batch that checks out counts, in the order of
 * the sequence numbers, whatever is lost before it; and what is lost is told by file, offset and sequence.
 */
import { DecodeError } from '../bytes/byte-reader.js'
import type { FileSystem } from '../env/file-system.js'
import { join, journalName } from '../store/file-names.js'
import {
  BATCH_HEADER_BYTES,
  decodeFileHeader,
  FILE_HEADER_BYTES,
  FRAME_BATCH,
  JOURNAL_MAGIC,
  unsupportedFormat,
} from '../store/format.js'
import { type Manifest, zeroCounters } from '../store/manifest.js'
import { readBatchHeader, visitBatch } from '../store/records.js'
import { Fates } from './repair-fates.js'
import { type Findings, type RepairProblem, readTolerant } from './repair-findings.js'
import { findSalt, type Piece, readPieces } from './repair-frames.js'

export class JournalSalvage {
  readonly fates: Fates
  /** Something that was written is gone. */
  incomplete = false
  private readonly findings: Findings
  private readonly jobId: Buffer
  private readonly manifest: Manifest | undefined
  /** Of the last batch that counted; undefined before the first. */
  private sequence: number | undefined
  /** Number of the last journal; what is wrong with it may be no more than a write that a crash cut. */
  private last = 0
  /** The journal read last. */
  private path = ''
  /** Damage since the last good batch: what it cost is known at the next one. */
  private wound: RepairProblem | undefined

  /** `manifest` says which journals count; without one all that are there do. */
  constructor(findings: Findings, jobId: Buffer, manifest: Manifest | undefined) {
    this.findings = findings
    this.jobId = jobId
    this.manifest = manifest
    this.fates = new Fates(findings, manifest?.counters ?? zeroCounters())
  }

  /** `present`: the numbers of the journals in the directory, ascending. */
  readAll(files: FileSystem, directory: string, present: readonly number[]): void {
    const { manifest } = this
    const numbers = present.filter((number) => number >= (manifest?.journal.first ?? 0))
    const named = manifest?.journal.last ?? 0
    this.last = Math.max(named, numbers[numbers.length - 1] ?? 0)
    let next = manifest?.journal.first ?? numbers[0] ?? 1
    for (const number of numbers) {
      if (number > next) this.tellMissing(directory, next, number - 1)
      next = number + 1
      const path = join(directory, journalName(number))
      const bytes = readTolerant(files, path, this.findings)
      if (bytes === undefined) this.incomplete = true
      // A checkpoint that was cut short leaves an empty one behind: nothing was in it.
      else if (bytes.length > 0 || number < this.last || number <= named) this.readOne(path, bytes, number)
    }
    if (next <= named) this.tellMissing(directory, next, named)
    const written = manifest?.journal.sequence ?? 0
    if (this.sequence !== undefined && this.sequence < written) {
      this.tellGap(this.path, undefined, goneMessage(this.sequence + 1, written))
    }
    if (this.incomplete) {
      this.findings.guess(
        'Part of the journal is lost: jobs finished there may come back, jobs added there may be gone, and attempts, ' +
          'delays and key/values are as the rest of it has them.',
      )
    }
  }

  private tellMissing(directory: string, from: number, to: number): void {
    const message =
      from === to ? 'this journal is missing' : `this journal and all up to ${journalName(to)} are missing`
    this.lose(this.findings.problem(join(directory, journalName(from)), message))
  }

  private lose(problem: RepairProblem): void {
    this.wound = problem
    this.incomplete = true
  }

  private readOne(path: string, bytes: Buffer, number: number): void {
    const { findings, jobId } = this
    const read = decodeFileHeader(bytes, JOURNAL_MAGIC)
    if (read.kind === 'newer') throw unsupportedFormat(path, read.format)
    let salt: number
    if (read.kind === 'header') {
      const { header } = read
      if (!header.jobId.equals(jobId)) {
        this.lose(findings.problem(path, `belongs to another job (${header.jobId.toString('hex')}): left out`, 16))
        return
      }
      if (header.number !== number) findings.problem(path, `is journal ${header.number} under another name`, 32)
      salt = header.salt
      this.begin(header.firstSequence)
    } else {
      const found = findSalt(bytes, JOURNAL_MAGIC, [FRAME_BATCH])
      if (found === undefined) {
        this.wound = findings.gap(path, 0, bytes.length, `${read.reason}, and no batch checks out`)
        // A last journal without a batch was just begun, if nothing says otherwise.
        if (number < this.last || number <= (this.manifest?.journal.last ?? 0)) this.incomplete = true
        return
      }
      findings.problem(path, `${read.reason}; its batches were read all the same`, 0)
      salt = found
    }
    this.path = path
    for (const piece of readPieces(bytes, FILE_HEADER_BYTES, salt, [FRAME_BATCH])) this.piece(path, bytes, piece)
  }

  /** A journal is begun behind the last batch of the one before: what is missing then, is missing from that one. */
  private begin(firstSequence: number): void {
    const before = firstSequence - 1
    if (this.sequence !== undefined && this.sequence < before) {
      this.tellGap(this.path, undefined, goneMessage(this.sequence + 1, before))
    }
    this.sequence = Math.max(this.sequence ?? 0, before)
  }

  private piece(path: string, bytes: Buffer, piece: Piece): void {
    if (piece.kind === 'unwritten') return
    if (piece.kind === 'gap') {
      const toEnd = piece.end === bytes.length
      const where = toEnd ? ' (to the end of the file: damage, or a write that a crash cut)' : ''
      this.wound = this.findings.gap(path, piece.at, piece.end - piece.at, `${piece.reason}${where}`)
      // Whether batches are gone shows at the next one, unless it is not known which was due.
      if (this.sequence === undefined) this.incomplete = true
      return
    }
    try {
      this.batch(path, bytes, piece.at, piece.start, piece.end)
    } catch (error) {
      if (!(error instanceof DecodeError)) throw error
      this.incomplete = true
      this.findings.problem(path, `a batch could be read in part only: ${error.message}`, piece.at)
    }
  }

  private batch(path: string, bytes: Buffer, at: number, start: number, end: number): void {
    if (end - start < BATCH_HEADER_BYTES) throw new DecodeError('batch header cut short', start)
    const header = readBatchHeader(bytes, start, end)
    const expected = this.sequence === undefined ? header.sequence : this.sequence + 1
    if (header.sequence < expected) {
      this.findings.problem(path, `batch ${header.sequence} again: left out`, at)
      return
    }
    if (header.sequence > expected) {
      this.tellGap(path, at, goneMessage(expected, header.sequence - 1))
    }
    this.wound = undefined
    this.sequence = header.sequence
    this.fates.beginBatch(path, at, header.time)
    visitBatch(bytes, start, end, this.fates)
  }

  /** Joined to the damage that explains it, if there is any. */
  private tellGap(path: string, offset: number | undefined, message: string): void {
    if (this.wound === undefined) this.findings.problem(path, message, offset)
    else this.wound.message += `; ${message}`
    this.wound = undefined
    this.incomplete = true
  }
}

function goneMessage(from: number, to: number): string {
  return from === to ? `batch ${from} is gone` : `batches ${from} to ${to} are gone`
}
