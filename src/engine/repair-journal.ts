/**
 * What the journals still say: for each job they speak of, whether it ended and how it stood last; the fingerprints, the
 * key/values, the slot clocks. Unlike replay nothing is refused: a batch that checks out counts, whatever is lost before it.
 * Invariant: a job that any surviving record ended stays ended.
 */
import { DecodeError } from '../bytes/byte-reader.js'
import type { FileSystem } from '../env/file-system.js'
import { KEY, newProbe, probeBytes, TOMBSTONE } from '../seen/seen-key.js'
import { SeenTable } from '../seen/seen-table.js'
import { join, journalName } from '../store/file-names.js'
import {
  BATCH_HEADER_BYTES,
  CARRY_DEAD,
  CARRY_DELAYED,
  CARRY_LEASED,
  CARRY_READY,
  decodeFileHeader,
  FILE_HEADER_BYTES,
  FRAME_BATCH,
  JOB_HAS_FINGERPRINT,
  JOB_SEEN,
  JOURNAL_MAGIC,
  unsupportedFormat,
} from '../store/format.js'
import { emptyJobHeader, readJobHeader } from '../store/job-record.js'
import { type CounterValues, type Manifest, zeroCounters } from '../store/manifest.js'
import { type CarryFields, type Home, type RecordVisitor, readBatchHeader, visitBatch } from '../store/records.js'
import { type Findings, type RepairProblem, readTolerant } from './repair-findings.js'
import { findSalt, type Piece, readPieces } from './repair-frames.js'

/** How a job stands after the journals. What is undefined they do not say: it is as the job's segment has it. */
export interface Fate {
  ended: boolean
  /** Ready, delayed or dead: a lease that was running is ready again. */
  state: number
  attempt: number | undefined
  failures: number | undefined
  due: number | undefined
  reason: string | undefined
  /** The job record, if a journal has it. */
  buffer: Buffer | undefined
  start: number
  end: number
}

export class JournalSalvage implements RecordVisitor {
  readonly fates = new Map<number, Fate>()
  /** Ordinals of each segment that a record spoke of: their jobs are accounted for by their fates. */
  readonly touched = new Map<number, Set<number>>()
  /** The last word of the journals on each fingerprint. */
  readonly keys = new SeenTable()
  readonly values = new Map<string, Buffer>()
  readonly slots = new Map<string, number>()
  readonly counters: CounterValues
  /** Higher than any id spoken of. */
  nextId = 1
  hasFingerprints = false
  /** Something that was written is gone. */
  incomplete = false
  private readonly findings: Findings
  private readonly header = emptyJobHeader()
  private readonly probe = newProbe()
  private time = 0
  private path = ''
  private offset = 0
  /** Of the last batch that counted; undefined before the first. */
  private sequence: number | undefined
  private promised = 0
  /** Damage since the last good batch: what it cost is known at the next one. */
  private wound: RepairProblem | undefined

  constructor(findings: Findings, counters: CounterValues = zeroCounters()) {
    this.findings = findings
    this.counters = { ...counters }
  }

  /** Reads journals in the order of their numbers. `manifest` says which count; without one all in the directory do. */
  readAll(files: FileSystem, directory: string, present: readonly number[], jobId: Buffer, manifest?: Manifest): void {
    const numbers = present.filter((number) => number >= (manifest?.journal.first ?? 0))
    const named = manifest?.journal.last ?? 0
    const last = Math.max(named, numbers[numbers.length - 1] ?? 0)
    let next = manifest?.journal.first ?? numbers[0] ?? 1
    this.promised = manifest?.journal.sequence ?? 0
    for (const number of numbers) {
      if (number > next) this.tellMissing(directory, next, number - 1)
      next = number + 1
      const path = join(directory, journalName(number))
      const bytes = readTolerant(files, path, this.findings)
      if (bytes === undefined) this.incomplete = true
      // A checkpoint that was cut short leaves an empty one behind: nothing was in it.
      else if (bytes.length > 0 || number < last || number <= named) this.readOne(path, bytes, number, jobId)
    }
    if (next <= named) this.tellMissing(directory, next, named)
    if (this.sequence !== undefined && this.sequence < this.promised) {
      const path = join(directory, journalName(last))
      this.tellGap(path, undefined, `ends at batch ${this.sequence}, but batch ${this.promised} was written`)
    }
    if (this.incomplete) {
      this.findings.guess(
        'Part of the journal is lost: jobs finished there may come back, jobs added there may be gone, and attempts, ' +
          'delays and key/values are as the rest of it has them.',
      )
    }
  }

  private tellMissing(directory: string, from: number, to: number): void {
    const message = from === to ? 'this journal is missing' : `this journal and all up to ${journalName(to)} are missing`
    this.lose(this.findings.problem(join(directory, journalName(from)), message))
  }

  private lose(problem: RepairProblem): void {
    this.wound = problem
    this.incomplete = true
  }

  private readOne(path: string, bytes: Buffer, number: number, jobId: Buffer): void {
    const { findings } = this
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
      this.sequence ??= header.firstSequence - 1
      this.promised = Math.max(this.promised, header.syncedSequence)
    } else {
      const found = findSalt(bytes, JOURNAL_MAGIC, [FRAME_BATCH])
      if (found === undefined) {
        this.lose(findings.gap(path, 0, bytes.length, `${read.reason}, and no batch checks out`))
        return
      }
      findings.problem(path, `${read.reason}; its batches were read all the same`, 0)
      salt = found
    }
    for (const piece of readPieces(bytes, FILE_HEADER_BYTES, salt, [FRAME_BATCH])) this.piece(path, bytes, piece)
  }

  private piece(path: string, bytes: Buffer, piece: Piece): void {
    if (piece.kind === 'unwritten') return
    if (piece.kind === 'gap') {
      const where = piece.end === bytes.length ? ' (to the end of the file: damage, or a write that a crash cut)' : ''
      this.lose(this.findings.gap(path, piece.at, piece.end - piece.at, `${piece.reason}${where}`))
      return
    }
    this.path = path
    this.offset = piece.at
    try {
      this.batch(bytes, piece.start, piece.end)
    } catch (error) {
      if (!(error instanceof DecodeError)) throw error
      this.incomplete = true
      this.findings.problem(path, `a batch could be read in part only: ${error.message}`, piece.at)
    }
  }

  private batch(bytes: Buffer, start: number, end: number): void {
    if (end - start < BATCH_HEADER_BYTES) throw new DecodeError('batch header cut short', start)
    const header = readBatchHeader(bytes, start, end)
    const expected = this.sequence === undefined ? header.sequence : this.sequence + 1
    if (header.sequence < expected) {
      this.findings.problem(this.path, `batch ${header.sequence} again: left out`, this.offset)
      return
    }
    if (header.sequence > expected) {
      const count = header.sequence - expected
      const what = count === 1 ? `batch ${expected} is` : `batches ${expected} to ${header.sequence - 1} are`
      this.tellGap(this.path, this.offset, `${what} gone`)
    }
    this.wound = undefined
    this.sequence = header.sequence
    this.promised = Math.max(this.promised, header.synced)
    this.time = header.time
    visitBatch(bytes, start, end, this)
  }

  /** Joined to the damage that explains it, if there is any. */
  private tellGap(path: string, offset: number | undefined, message: string): void {
    if (this.wound === undefined) this.findings.problem(path, message, offset)
    else this.wound.message += `; ${message}`
    this.wound = undefined
    this.incomplete = true
  }

  private fate(id: number, home?: Home): Fate {
    if (home !== undefined && home.segment !== 0) this.touch(home.segment, home.ordinal)
    let fate = this.fates.get(id)
    if (fate === undefined) {
      const unknown = { attempt: undefined, failures: undefined, due: undefined, reason: undefined }
      fate = { ended: false, state: CARRY_READY, ...unknown, buffer: undefined, start: 0, end: 0 }
      this.fates.set(id, fate)
      if (id >= this.nextId) this.nextId = id + 1
    }
    return fate
  }

  private touch(segment: number, ordinal: number): void {
    const ordinals = this.touched.get(segment)
    if (ordinals === undefined) this.touched.set(segment, new Set([ordinal]))
    else ordinals.add(ordinal)
  }

  /** The fate of the job whose record this is; undefined when the record cannot be read, which is told. */
  private withContent(buffer: Buffer, start: number, end: number): Fate | undefined {
    const { header } = this
    try {
      readJobHeader(buffer, start, end, header)
    } catch (error) {
      if (!(error instanceof DecodeError)) throw error
      this.findings.lostRecords++
      this.findings.problem(this.path, `a job of this batch cannot be read: ${error.message}`, this.offset)
      return undefined
    }
    if (header.flags & JOB_HAS_FINGERPRINT) this.hasFingerprints = true
    const fate = this.fate(header.id)
    fate.buffer = buffer
    fate.start = start
    fate.end = end
    return fate
  }

  // ---- RecordVisitor

  add(due: number, buffer: Buffer, start: number, end: number): void {
    const fate = this.withContent(buffer, start, end)
    if (fate === undefined) return
    if (this.header.flags & JOB_SEEN) this.key(buffer, this.header.fingerprintAt, KEY)
    const state = due > 0 ? CARRY_DELAYED : CARRY_READY
    Object.assign(fate, { state, attempt: 0, failures: 0, due, reason: '' })
    this.counters.added++
  }

  carry(fields: CarryFields, buffer: Buffer, start: number, end: number): void {
    if (fields.segment !== 0) this.touch(fields.segment, fields.ordinal)
    const fate = this.withContent(buffer, start, end)
    if (fate === undefined) return
    const { attempt, failures, due, reason } = fields
    const state = fields.state === CARRY_LEASED ? CARRY_READY : fields.state
    Object.assign(fate, { state, attempt, failures, due, reason })
  }

  take(id: number, home: Home, attempt: number): void {
    Object.assign(this.fate(id, home), { state: CARRY_READY, attempt })
  }

  ack(id: number, home: Home): void {
    this.fate(id, home).ended = true
    this.counters.acked++
  }

  drop(id: number, home: Home): void {
    this.fate(id, home).ended = true
  }

  retry(id: number, home: Home, attempt: number, failures: number, due: number, reason: string): void {
    const state = due > 0 ? CARRY_DELAYED : CARRY_READY
    Object.assign(this.fate(id, home), { state, attempt, failures, due, reason })
    this.counters.retried++
  }

  bury(id: number, home: Home, attempt: number, failures: number, reason: string): void {
    const due = Math.floor(this.time)
    Object.assign(this.fate(id, home), { state: CARRY_DEAD, attempt, failures, due, reason })
    this.counters.buried++
  }

  requeue(id: number, home: Home): void {
    Object.assign(this.fate(id, home), { state: CARRY_READY, attempt: 0, failures: 0, due: 0, reason: '' })
    this.counters.requeued++
  }

  release(id: number, home: Home, attempt: number, expired: boolean): void {
    Object.assign(this.fate(id, home), { state: CARRY_READY, attempt })
    if (expired) this.counters.expired++
  }

  seen(buffer: Buffer, at: number): void {
    this.key(buffer, at, KEY)
  }

  forget(buffer: Buffer, at: number): void {
    this.key(buffer, at, TOMBSTONE)
  }

  private key(buffer: Buffer, at: number, state: typeof KEY | typeof TOMBSTONE): void {
    this.hasFingerprints = true
    probeBytes(this.probe, buffer, at)
    this.keys.set(this.probe, state)
  }

  /** True if the journals' last word on the fingerprint is that it was forgotten. */
  forgot(buffer: Buffer, at: number): boolean {
    probeBytes(this.probe, buffer, at)
    return this.keys.get(this.probe) === TOMBSTONE
  }

  set(key: string, value: Buffer): void {
    this.values.set(key, value)
  }

  unset(key: string): void {
    this.values.delete(key)
  }

  slot(name: string, notBefore: number): void {
    this.slots.set(name, notBefore)
  }

  open(recovered: number): void {
    this.counters.recovered += recovered
  }

  duplicates(count: number): void {
    this.counters.duplicates += count
  }

  close(): void {}
}
