/**
 * Writes salvaged jobs, fingerprints and key/values into an open store, through its ordinary commits: each chunk is whole
 * in the journal or not there, and checkpoints make segments of it as it grows.
 */
import { RECORD_SEEN, RECORD_SET } from '../store/format.js'
import { writeCarry } from '../store/records.js'
import type { Operation } from './committer.js'
import type { Engine } from './engine.js'
import type { SalvagedJob } from './repair-fates.js'

/** One commit of jobs or fingerprints. */
const CHUNK_JOBS = 1000
const CHUNK_BYTES = 256 * 1024
const CHUNK_KEYS = 4096
const KEY_BYTES = 16

export class Importer {
  private readonly engine: Engine
  private jobs: SalvagedJob[] = []
  private jobBytes = 0
  private readonly keys = Buffer.alloc(CHUNK_KEYS * KEY_BYTES)
  private keyCount = 0

  constructor(engine: Engine) {
    this.engine = engine
  }

  job(job: SalvagedJob): void {
    this.jobs.push(job)
    this.jobBytes += job.end - job.start
  }

  /** 16 bytes, copied. */
  key(bytes: Buffer, at: number): void {
    bytes.copy(this.keys, this.keyCount++ * KEY_BYTES, at, at + KEY_BYTES)
  }

  /** True when it is time to `flush`. */
  get full(): boolean {
    return this.jobs.length >= CHUNK_JOBS || this.jobBytes >= CHUNK_BYTES || this.keyCount === CHUNK_KEYS
  }

  async flush(): Promise<void> {
    const { engine, jobs, keyCount } = this
    const { state, options } = engine
    await engine.room()
    // The table grows while a checkpoint runs: it must not outgrow memory because we are quicker.
    if (state.seen.tableCount > 2 * options.tuning.seenTableKeys) await engine.checkpoint()
    this.jobs = []
    this.jobBytes = 0
    this.keyCount = 0
    await Promise.all([importJobs(engine, jobs), importKeys(engine, this.keys.subarray(0, keyCount * KEY_BYTES))])
  }
}

/** They keep ids, attempts, delays and reasons. */
function importJobs(engine: Engine, jobs: readonly SalvagedJob[]): Promise<void> {
  const { state } = engine
  const ends: number[] = []
  const operation: Operation = {
    finishing: false,
    apply: (chunk, base) => {
      for (const [i, { start, end, attempt, failures, due, reason, state: as }] of jobs.entries()) {
        const to = base + ends[i]
        const entry = state.entryFrom(chunk, to - (end - start), to)
        Object.assign(entry, { attempt, failures, due, reason })
        if (entry.id >= state.nextId) state.nextId = entry.id + 1
        state.enqueue(entry, as)
      }
    },
    undo: () => {},
  }
  return engine.committer.commit(operation, (writer) => {
    for (const { state: as, attempt, failures, due, reason, buffer, start, end } of jobs) {
      const fields = { state: as, segment: 0, ordinal: 0, attempt, failures, due, reason }
      writeCarry(writer, fields, buffer, start, end)
      ends.push(writer.length)
    }
    return jobs.length
  })
}

function importKeys(engine: Engine, keys: Buffer): Promise<void> {
  const { seen } = engine.state
  const added: number[] = []
  const operation: Operation = {
    finishing: false,
    apply: () => {},
    undo: () => {
      for (const at of added) seen.undoAdd(keys, at)
    },
  }
  return engine.committer.commit(operation, (writer) => {
    for (let at = 0; at < keys.length; at += KEY_BYTES) {
      // Written only when new: replay counts each such record as a key.
      if (!seen.add(keys, at)) continue
      added.push(at)
      writer.u8(RECORD_SEEN)
      writer.bytes(keys.subarray(at, at + KEY_BYTES))
    }
    return added.length
  })
}

/** As they were encoded. */
export function importValues(engine: Engine, values: ReadonlyMap<string, Buffer>): Promise<void> {
  const operation: Operation = {
    finishing: false,
    apply: () => {
      for (const [key, value] of values) engine.state.setValue(key, Buffer.from(value))
    },
    undo: () => {},
  }
  return engine.committer.commit(operation, (writer) => {
    for (const [key, value] of values) {
      writer.u8(RECORD_SET)
      writer.string(key)
      writer.varint(value.length)
      writer.bytes(value)
    }
    return values.size
  })
}
