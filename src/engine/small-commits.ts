/** Commits that are neither adds nor endings: key/values, pauses, dead letters, forgetting. */
import {
  CARRY_READY,
  FINGERPRINT_BYTES,
  RECORD_DROP,
  RECORD_FORGET,
  RECORD_REQUEUE,
  RECORD_SLOT,
} from '../store/format.js'
import { decodeValue } from './codec.js'
import type { Operation } from './committer.js'
import { writeJob } from './ending.js'
import type { LeaseDesk } from './lease-desk.js'
import type { StoreState } from './store-state.js'
import { writeValues } from './value-records.js'

export function value(desk: LeaseDesk, key: string): unknown {
  const encoded = desk.state.values.get(key)
  return encoded === undefined ? undefined : decodeValue(encoded)
}

export function setValues(desk: LeaseDesk, values: Record<string, unknown>): Promise<void> {
  desk.context.assertOpen()
  let apply = (): void => {}
  let undo = (): void => {}
  return desk.committer.commit({ finishing: true, apply: () => apply(), undo: () => undo() }, (writer) => {
    const written = writeValues(desk.state, writer, values)
    apply = written.apply
    undo = written.undo
    return written.records
  })
}

export function pauseSlot(desk: LeaseDesk, name: string, untilMs: number): Promise<void> {
  desk.context.assertOpen()
  const apply = (): void => {
    const slot = desk.state.ready.slot(name)
    desk.state.ready.setClock(slot, untilMs)
    if (desk.context.listenerCount('slot-paused') > 0) desk.context.emit('slot-paused', name, untilMs)
  }
  return desk.committer.commit({ finishing: true, apply, undo: () => {} }, (writer) => {
    writer.u8(RECORD_SLOT)
    writer.string(name)
    writer.varint(Math.max(0, Math.ceil(untilMs)))
    return 1
  })
}

/** Brings dead letters back (`requeue`) or ends them (`drop`). Resolves with how many. */
export async function fromDead(
  desk: LeaseDesk,
  verb: 'requeue' | 'drop',
  wanted: (id: number) => boolean,
): Promise<number> {
  desk.context.assertOpen()
  const { state } = desk
  const jobs = state.dead.take(wanted)
  if (jobs.length === 0) return 0
  const operation: Operation = {
    finishing: true,
    apply: () => {
      for (const job of jobs) {
        if (verb === 'drop') {
          desk.throwAway(job)
          continue
        }
        job.attempt = 0
        job.failures = 0
        job.reason = ''
        if (job.memoryOnly) state.memoryOnly++
        state.enqueue(job, CARRY_READY)
        state.counters.requeued++
      }
    },
    undo: () => {
      for (const job of jobs) state.dead.put(job)
    },
  }
  await desk.committer.commit(operation, (writer) => {
    const type = verb === 'requeue' ? RECORD_REQUEUE : RECORD_DROP
    let records = 0
    for (const job of jobs) {
      if (job.memoryOnly) continue
      writeJob(state, writer, type, job)
      records++
    }
    return records
  })
  return jobs.length
}

function forgetKey(state: StoreState, key: Buffer): void {
  state.seenRemovals++
  state.seen.forget(key, 0)
}

/** Takes a fingerprint out of the seen-set. False: it was not in it. */
export async function forget(desk: LeaseDesk, fingerprint: Uint8Array): Promise<boolean> {
  desk.context.assertOpen()
  const { state } = desk
  if (!state.seen.has(fingerprint, 0)) return false
  const key = Buffer.from(fingerprint.subarray(0, FINGERPRINT_BYTES))
  await desk.committer.commit({ finishing: false, apply: () => forgetKey(state, key), undo: () => {} }, (writer) => {
    writer.u8(RECORD_FORGET)
    writer.bytes(key)
    return 1
  })
  return true
}
