/** How leases end, and the records that say so. */
import type { ByteWriter } from '../bytes/byte-writer.js'
import { HoldfastError } from '../errors.js'
import type { JobEntry } from '../queue/job-entry.js'
import type { LeaseEntry } from '../queue/lease-table.js'
import * as F from '../store/format.js'
import { writeById } from '../store/records.js'
import type { MemoryJob } from './adder.js'
import type { StoreState } from './store-state.js'

export type Ending =
  | { readonly verb: 'ack' }
  | { readonly verb: 'retry'; readonly delayMs: number; readonly reason: string; readonly counted: boolean }
  | { readonly verb: 'bury'; readonly reason: string }
  | { readonly verb: 'release' }

export function writeEnding(state: StoreState, writer: ByteWriter, job: JobEntry, ending: Ending, due: number): number {
  if (job.memoryOnly) {
    const { fingerprint, recordSeen } = job.value as MemoryJob
    if (ending.verb !== 'ack' || fingerprint === undefined || !recordSeen) return 0
    // Only now is it seen for ever: had the process died before, it would be found again.
    writer.u8(F.RECORD_SEEN)
    writer.bytes(fingerprint)
    return 1
  }
  if (ending.verb === 'ack') writeJob(state, writer, F.RECORD_ACK, job)
  else if (ending.verb === 'bury') writeBury(state, writer, job, ending.reason)
  else if (ending.verb === 'release') writeRelease(state, writer, job, job.attempt - 1, false)
  else {
    writeJob(state, writer, F.RECORD_RETRY, job)
    writer.varint(job.attempt)
    writer.varint(job.failures + (ending.counted ? 1 : 0))
    writer.varint(due)
    writer.string(ending.reason)
  }
  return 1
}

/** A record that names the job by id and home; what belongs to the type follows. */
export function writeJob(state: StoreState, writer: ByteWriter, type: number, job: JobEntry): void {
  const home = state.homeOf(job)
  writeById(writer, type, job.id, home?.id ?? 0, job.ordinal)
}

export function writeBury(state: StoreState, writer: ByteWriter, job: JobEntry, reason: string): void {
  writeJob(state, writer, F.RECORD_BURY, job)
  writer.varint(job.attempt)
  writer.varint(job.failures)
  writer.string(reason)
}

export function writeRelease(
  state: StoreState,
  writer: ByteWriter,
  job: JobEntry,
  attempt: number,
  expired: boolean,
): void {
  writeJob(state, writer, F.RECORD_RELEASE, job)
  writer.varint(attempt)
  writer.u8(expired ? 1 : 0)
}

export function staleError(lease: LeaseEntry, epoch: number, why: string): HoldfastError {
  return new HoldfastError('HOLDFAST_STALE_LEASE', `lease ${epoch}.${lease.number} of job ${lease.job.id} ${why}`)
}
