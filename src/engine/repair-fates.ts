/**
 * How each job stands that the journals speak of: whether it ended, and if not, its last state; also the last word on each
 * fingerprint, key/value and slot. Invariant: a job that any surviving record ended stays ended.
 */
import { DecodeError } from '../bytes/byte-reader.js'
import { KEY, newProbe, probeBytes, TOMBSTONE } from '../seen/seen-key.js'
import { SeenTable } from '../seen/seen-table.js'
import { CARRY_DEAD, CARRY_DELAYED, CARRY_LEASED, CARRY_READY, JOB_HAS_FINGERPRINT, JOB_SEEN } from '../store/format.js'
import { emptyJobHeader, readJobHeader } from '../store/job-record.js'
import type { CounterValues } from '../store/manifest.js'
import type { CarryFields, Home, RecordVisitor } from '../store/records.js'
import type { Findings } from './repair-findings.js'

/** A job to be written into the new directory. */
export interface SalvagedJob {
  readonly state: number
  readonly attempt: number
  readonly failures: number
  readonly due: number
  readonly reason: string
  /** Its job record. */
  readonly buffer: Buffer
  readonly start: number
  readonly end: number
}

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

export class Fates implements RecordVisitor {
  readonly byId = new Map<number, Fate>()
  /** Ordinals of each segment that a record spoke of: their jobs are accounted for by their fates. */
  readonly touched = new Map<number, Set<number>>()
  /** The last word on each fingerprint. */
  readonly keys = new SeenTable()
  readonly values = new Map<string, Buffer>()
  readonly slots = new Map<string, number>()
  readonly counters: CounterValues
  /** Higher than any id spoken of. */
  nextId = 1
  hasFingerprints = false
  private readonly findings: Findings
  private readonly header = emptyJobHeader()
  private readonly probe = newProbe()
  private path = ''
  private offset = 0
  private timeMs = 0

  constructor(findings: Findings, counters: CounterValues) {
    this.findings = findings
    this.counters = { ...counters }
  }

  /** The records that follow are of this batch. */
  beginBatch(path: string, offset: number, timeMs: number): void {
    this.path = path
    this.offset = offset
    this.timeMs = timeMs
  }

  private fate(id: number, home?: Home): Fate {
    if (home !== undefined && home.segment !== 0) this.touch(home.segment, home.ordinal)
    let fate = this.byId.get(id)
    if (fate === undefined) {
      const unknown = { attempt: undefined, failures: undefined, due: undefined, reason: undefined }
      fate = { ended: false, state: CARRY_READY, ...unknown, buffer: undefined, start: 0, end: 0 }
      this.byId.set(id, fate)
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

  /** The jobs that journals hold, oldest first. */
  *jobs(): Generator<SalvagedJob> {
    const ids = [...this.byId.keys()].sort((a, b) => a - b)
    for (const id of ids) {
      const {
        ended,
        state,
        attempt = 0,
        failures = 0,
        due = 0,
        reason = '',
        buffer,
        start,
        end,
      } = this.byId.get(id) as Fate
      if (ended || buffer === undefined) continue
      yield { state, attempt, failures, due: state === CARRY_READY ? 0 : due, reason, buffer, start, end }
    }
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
    const due = Math.floor(this.timeMs)
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
