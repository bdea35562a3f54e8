/**
 * Moves the start of replay forward: steps C1 to C9 of docs/durability.md, beside the running work. The commit point is
 * the rename of active.json in C8. Before it the old generation is whole, after it the new one.
 */
import { ByteWriter } from '../bytes/byte-writer.js'
import { HoldfastError, ioError } from '../errors.js'
import { CHUNK_BYTES, SEGMENT_BLOCK_BYTES } from '../limits.js'
import { compareBuckets, KIND_START } from '../queue/bucket.js'
import type { ConsumedSet } from '../store/bucket-info.js'
import { join, journalName } from '../store/file-names.js'
import { RECORD_SET, RECORD_SLOT } from '../store/format.js'
import { readAddedAt } from '../store/job-record.js'
import type { JournalFile, JournalWriter } from '../store/journal-writer.js'
import { closeQuietly } from '../store/json-file.js'
import { type Manifest, writeManifest } from '../store/manifest.js'
import { beginBatch, writeCarry } from '../store/records.js'
import type { Segment } from '../store/segment.js'
import { removeBeside, removeIfThere, type SegmentSet } from '../store/segment-set.js'
import { SegmentWriter } from '../store/segment-writer.js'
import { CheckpointPlan, type PlannedSegment } from './checkpoint-plan.js'
import type { EngineOptions } from './engine-options.js'
import { newSalt } from './recovery.js'
import type { StoreState } from './store-state.js'

export interface CheckpointContext {
  readonly state: StoreState
  readonly options: EngineOptions
  readonly journal: JournalWriter
  /** Anchored wall time. */
  now(): number
  /** Writes the batch that is being gathered; throws when the store cannot write. */
  flush(): void
  /** The new active.json is in place but not known durable: nobody may go on. */
  fail(error: HoldfastError): void
  /** Throws when the checkpoint should give way: the store closes or failed. */
  checkpointGuard(): void
  manifest: Manifest
}

/** Written between two yields: keeps a slice near a millisecond. */
const DROP_SLICE_COUNT = 5000
const SLICE_BYTES = 4 * SEGMENT_BLOCK_BYTES

interface Frozen {
  readonly plan: CheckpointPlan
  readonly marks: Map<SegmentSet, Map<Segment, ConsumedSet>>
  readonly manifest: Omit<Manifest, 'buckets' | 'seen'>
  /** active.json was renamed: from there on it is forward or nothing. */
  renamed: boolean
}

/** Resolves with the number of segments written. Rejects with everything undone in memory. */
export async function runCheckpoint(context: CheckpointContext): Promise<number> {
  const { state, journal } = context
  const next = await journal.prepareNext(newSalt(state)) // C1
  let frozen: Frozen
  try {
    context.checkpointGuard()
    frozen = freeze(context, next)
  } catch (error) {
    if (journal.number === next.number) {
      // Commits go to the new journal already, and memory may be half frozen: only a re-open may go on.
      context.fail(ioError('freezing', next.handle.path, error))
      throw error
    }
    closeQuietly(next.handle)
    removeIfThere(state.env.files, next.handle.path)
    throw error
  }
  try {
    await publish(context, frozen)
  } catch (error) {
    // Undoing would remove files that the new active.json may name.
    if (frozen.renamed) context.fail(ioError('publishing', state.paths.active, error))
    else undo(context, frozen)
    throw error
  }
  await finish(context, frozen)
  return frozen.plan.segments.length
}

/** C2. One turn of the event loop: what is carried, frozen and marked belongs to one instant of the journal. */
function freeze(context: CheckpointContext, next: JournalFile): Frozen {
  const { state, journal, options } = context
  context.flush()
  const now = context.now()
  const plan = new CheckpointPlan(state, options, now)
  const writer = new ByteWriter(CHUNK_BYTES)
  beginBatch(writer)
  const places: number[] = []
  for (const { job, state: as } of plan.carried) {
    const { attempt, failures, due, reason } = job
    const home = state.homeOf(job)
    const fields = { state: as, segment: home?.id ?? 0, ordinal: job.ordinal, attempt, failures, due, reason }
    const chunk = job.chunk as NonNullable<typeof job.chunk>
    writeCarry(writer, fields, chunk.buffer, job.start, job.end)
    places.push(writer.length)
  }
  const records = plan.carried.length + writeValues(writer, state) + writeSlotClocks(writer, state, now)
  journal.rotate(
    next,
    { buffer: writer.buffer, start: writer.start, end: writer.position },
    records,
    state.env.clock.now(),
    state.epoch,
  )
  // The rotation is written: only now does memory change, so a failure above leaves nothing to undo.
  const chunk = { buffer: writer.buffer, bytes: writer.buffer.length, live: 0 }
  for (const [i, { job }] of plan.carried.entries()) {
    const end = writer.start + places[i]
    state.move(job, chunk, end - job.length, end)
    job.home = undefined
  }
  plan.freeze()
  const marks = takeMarks(state)
  state.seen.freeze()
  const generation = ++state.highestGeneration
  return {
    plan,
    marks,
    renamed: false,
    manifest: {
      jobId: state.jobId.toString('hex'),
      kind: state.kind,
      order: state.lifo ? 'lifo' : 'fifo',
      generation,
      epoch: state.epoch,
      startprios: startPriorities(state),
      journal: { first: next.number, last: next.number, sequence: journal.sequence },
      nextId: state.nextId,
      nextSegmentId: state.nextSegmentId,
      counters: { ...state.counters },
    },
  }
}

function writeValues(writer: ByteWriter, state: StoreState): number {
  for (const [key, value] of state.values) {
    writer.u8(RECORD_SET)
    writer.string(key)
    writer.varint(value.length)
    writer.bytes(value)
  }
  return state.values.size
}

export function writeSlotClocks(writer: ByteWriter, state: StoreState, now: number): number {
  let records = 0
  for (const slot of state.ready.slots.values()) {
    if (slot.notBefore <= now) continue
    writer.u8(RECORD_SLOT)
    writer.string(slot.name)
    writer.varint(Math.ceil(slot.notBefore))
    records++
  }
  return records
}

function takeMarks(state: StoreState): Map<SegmentSet, Map<Segment, ConsumedSet>> {
  const all = new Map<SegmentSet, Map<Segment, ConsumedSet>>()
  for (const set of state.segmentSets()) {
    const marks = new Map<Segment, ConsumedSet>()
    for (const segment of set.segments) {
      if (!segment.dirty) continue
      marks.set(segment, segment.consumed.copy())
      segment.dirty = false
    }
    all.set(set, marks)
  }
  return all
}

/** As Scrapy's active.json lists them: the buckets that hold requests, best first. */
function startPriorities(state: StoreState): (number | string)[] {
  const buckets = [...state.buckets.values()].filter((bucket) => {
    if (bucket.store === undefined) return false
    for (const lane of bucket.lanes.values()) if (lane.count > 0) return true
    return false
  })
  buckets.sort(compareBuckets)
  return buckets.map((bucket) => (bucket.kind === KIND_START ? bucket.name : 0 - bucket.priority))
}

/** C3 to C8. */
async function publish(context: CheckpointContext, frozen: Frozen): Promise<void> {
  const { state, journal } = context
  const { files } = state.env
  const { plan, marks, manifest } = frozen
  const directories = new Set<string>()
  for (const planned of plan.segments) {
    if (!directories.has(planned.set.directory)) planned.set.makeDirectory()
    directories.add(planned.set.directory)
    await writeSegment(context, planned) // C3
  }
  const seen = await state.seen.writeFrozen() // C4
  context.checkpointGuard()
  try {
    for (const directory of directories) await files.syncDirectory(directory) // C5
    await files.syncDirectory(state.paths.queue)
    await files.syncDirectory(state.paths.root)
  } catch (error) {
    throw ioError('syncing the directories of', state.paths.root, error)
  }
  for (const set of state.segmentSets()) {
    const added = plan.segments.filter((one) => one.set === set).map((one) => one.segment)
    await set.stage(manifest.generation, marks.get(set) ?? new Map(), added) // C6
  }
  await journal.sync() // C7
  context.checkpointGuard()
  const buckets = [...state.segmentSets()].filter((set) => set.isNamed).map((set) => set.name)
  const whole: Manifest = { ...manifest, buckets, seen }
  await writeManifest(files, state.paths, whole, () => {
    frozen.renamed = true
  }) // C8
  context.manifest = whole
}

async function writeSegment(context: CheckpointContext, planned: PlannedSegment): Promise<void> {
  const { state } = context
  const { segment } = planned
  const writer = new SegmentWriter(state.env.files, segment.path, state.jobId, segment.id, planned.salt)
  try {
    let sliceEnd = SLICE_BYTES
    for (const lane of planned.lanes) {
      writer.beginLane(lane.name)
      for (const job of lane.jobs) {
        // Taken meanwhile or not: its record keeps its ordinal, and what happened since is in the journal.
        const { buffer } = job.chunk as NonNullable<typeof job.chunk>
        writer.add(job, job.id, readAddedAt(buffer, job.start, job.end), buffer, job.start, job.end)
        if (writer.bytes < sliceEnd) continue
        sliceEnd = writer.bytes + SLICE_BYTES
        await state.env.clock.yield()
        context.checkpointGuard()
      }
    }
    segment.seal(await writer.finish())
  } catch (error) {
    writer.abandon()
    throw error
  }
}

/** C9: nothing here is needed any more, so nothing here can fail the checkpoint. */
async function finish(context: CheckpointContext, frozen: Frozen): Promise<void> {
  const { state } = context
  const { files } = state.env
  state.generation = frozen.manifest.generation
  context.journal.olderBytes = 0
  state.seen.commitFrozen()
  // In this turn memory follows the manifest; what is removed after it is needed by nobody.
  const removals = [...state.segmentSets()].map((set) => set.commit())
  const left = frozen.plan.thaw()
  for (const name of files.readDirectory(state.paths.journal)) {
    if (name < journalName(frozen.manifest.journal.first)) await removeBeside(files, join(state.paths.journal, name))
  }
  await Promise.all(removals)
  state.ready.prune(state.buckets.values(), context.now())
  // Only the counting of memory is left: in slices, since there may be very many.
  let count = 0
  for (const jobs of left) {
    for (const job of jobs) {
      state.drop(job)
      if (++count % DROP_SLICE_COUNT === 0) await state.env.clock.yield()
    }
  }
}

function undo(context: CheckpointContext, frozen: Frozen): void {
  const { state } = context
  frozen.plan.unfreeze()
  state.seen.abortFrozen()
  for (const [set, marks] of frozen.marks) {
    for (const segment of marks.keys()) segment.dirty = true
    set.abandon(frozen.plan.segments.filter((one) => one.set === set).map((one) => one.segment))
  }
}

/** A checkpoint that gives way because the store closes. */
export const closingError = (): HoldfastError => new HoldfastError('HOLDFAST_CLOSED', 'the store is closing')
