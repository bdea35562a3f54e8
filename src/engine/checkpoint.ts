/**
 * Moves the start of replay forward: steps C1 to C9 of docs/durability.md, beside the running work. The commit point is
 * the rename of active.json in C8. Before it the old generation is whole, after it the new one.
 */
import { ByteWriter } from '../bytes/byte-writer.js'
import { HoldfastError, ioError } from '../errors.js'
import { CHUNK_BYTES } from '../limits.js'
import { compareBuckets, KIND_START } from '../queue/bucket.js'
import type { ConsumedSet } from '../store/bucket-info.js'
import { join, journalName } from '../store/file-names.js'
import { RECORD_SET, RECORD_SLOT } from '../store/format.js'
import type { JournalFile, JournalWriter } from '../store/journal-writer.js'
import { closeQuietly } from '../store/json-file.js'
import { type Manifest, writeManifest } from '../store/manifest.js'
import { beginBatch } from '../store/records.js'
import type { Segment } from '../store/segment.js'
import { removeBeside, removeIfThere, type SegmentSet } from '../store/segment-set.js'
import { CheckpointPlan } from './checkpoint-plan.js'
import type { EngineOptions } from './engine-options.js'
import { newSalt } from './recovery.js'
import { writePlanned } from './segment-pieces.js'
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

/** Jobs that leave memory between two yields. */
const THAW_SLICE_COUNT = 4000

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
  const records = plan.writeCarried(writer) + writeValues(writer, state) + writeSlotClocks(writer, state, now)
  journal.rotate(
    next,
    { buffer: writer.buffer, start: writer.start, end: writer.position },
    records,
    state.env.clock.now(),
    state.epoch,
  )
  // The rotation is written: only now does memory change, so a failure above leaves nothing to undo.
  plan.moveCarried(writer.buffer, writer.start)
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
  const { slots } = state.ready
  for (let slot = 0; slot < slots.end; slot++) {
    if (!slots.has(slot) || slots.notBefore(slot) <= now) continue
    writer.u8(RECORD_SLOT)
    writer.string(slots.name(slot))
    writer.varint(Math.ceil(slots.notBefore(slot)))
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
    return bucket.store !== undefined && bucket.readyLanes > 0
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
  const pause = async (): Promise<void> => {
    await state.env.clock.yield()
    context.checkpointGuard()
  }
  for (const planned of plan.segments) {
    if (!directories.has(planned.set.directory)) planned.set.makeDirectory()
    directories.add(planned.set.directory)
    await writePlanned(state, plan, planned, pause) // C3
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

/** C9: nothing here is needed any more, so nothing here can fail the checkpoint. */
async function finish(context: CheckpointContext, frozen: Frozen): Promise<void> {
  const { state } = context
  const { files } = state.env
  state.generation = frozen.manifest.generation
  context.journal.olderBytes = 0
  state.seen.commitFrozen()
  // In this turn memory follows the manifest; what is removed after it is needed by nobody.
  const removals = [...state.segmentSets()].map((set) => set.commit())
  let count = 0
  const thawed = frozen.plan.thaw((more) => {
    count += more
    if (count < THAW_SLICE_COUNT) return undefined
    count = 0
    return state.env.clock.yield()
  })
  for (const name of files.readDirectory(state.paths.journal)) {
    if (name < journalName(frozen.manifest.journal.first)) await removeBeside(files, join(state.paths.journal, name))
  }
  await Promise.all(removals)
  await thawed
  await state.ready.prune(context.now(), () => state.env.clock.yield())
  state.pruneBuckets()
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
