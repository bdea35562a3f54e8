/**
 * Writes one planned segment (C3), beside the running work. Jobs that are taken meanwhile are written all the same: their
 * records keep their ordinals, and what happened since is in the journal.
 */
import { SEGMENT_BLOCK_BYTES } from '../limits.js'
import type { Chunk, JobEntry } from '../queue/job-entry.js'
import { type JobTable, NO_JOB } from '../queue/job-table.js'
import { readAddedAt } from '../store/job-record.js'
import { type RecordState, SegmentWriter } from '../store/segment-writer.js'
import type { CheckpointPlan, PlannedSegment, Slice } from './checkpoint-plan.js'
import type { StoreState } from './store-state.js'

/** Written between two yields: keeps a slice near a millisecond. */
const SLICE_BYTES = 8 * SEGMENT_BLOCK_BYTES
const FRESH: RecordState = { attempt: 0, failures: 0, due: 0, reason: '' }

/** `pause` lets other work in, and throws when the checkpoint should give way. */
export async function writePlanned(
  state: StoreState,
  plan: CheckpointPlan,
  planned: PlannedSegment,
  pause: () => Promise<void>,
): Promise<void> {
  const { segment } = planned
  const writer = new SegmentWriter(state.env.files, segment.path, state.jobId, segment.id, planned.salt)
  try {
    let sliceEnd = SLICE_BYTES
    const { sources, froms, tos } = plan.pieces
    for (let piece = planned.firstPiece; piece < planned.endPiece; piece++) {
      const source = sources.at(piece)
      const to = tos.at(piece)
      const slice = source < 0 ? plan.slices[~source] : undefined
      writer.beginLane(slice?.name ?? state.ready.slotName(source))
      const nodes = slice === undefined ? new FrozenNodes(state, plan, source) : undefined
      for (let i = froms.at(piece); i < to; i++) {
        if (nodes === undefined) writeEntry(writer, (slice as Slice).jobs[i])
        else writeNode(state, writer, nodes.at(i))
        if (writer.bytes < sliceEnd) continue
        sliceEnd = writer.bytes + SLICE_BYTES
        await pause()
      }
    }
    // Those of slots are known to the queue already.
    segment.seal(await writer.finish(sources.at(planned.firstPiece) < 0))
  } catch (error) {
    writer.abandon()
    throw error
  }
}

/** Nodes of the frozen lane by rising id. A list that begins with the highest is turned around in an array. */
class FrozenNodes {
  private readonly jobs: JobTable
  private readonly reversed: Int32Array | undefined
  private node: number
  private index = 0

  constructor(state: StoreState, { frozen }: CheckpointPlan, lane: number) {
    const i = state.ready.lanes.frozenOf(lane)
    this.jobs = state.jobs
    this.node = frozen.heads.at(i)
    const total = frozen.totals.at(i)
    if (!state.lifo || total === 1) return
    this.reversed = new Int32Array(total)
    for (let at = total - 1, node = this.node; node !== NO_JOB; node = this.jobs.next(node)) this.reversed[at--] = node
  }

  /** `i` rises from call to call. */
  at(i: number): number {
    if (this.reversed !== undefined) return this.reversed[i]
    for (; this.index < i; this.index++) this.node = this.jobs.next(this.node)
    return this.node
  }
}

function writeNode({ jobs }: StoreState, writer: SegmentWriter, node: number): void {
  const entry = jobs.entry(node)
  if (entry !== undefined) return writeEntry(writer, entry)
  const { buffer } = jobs.chunk(node)
  const start = jobs.start(node)
  const end = jobs.end(node)
  writer.add(FRESH, jobs.id(node), readAddedAt(buffer, start, end), buffer, start, end)
}

function writeEntry(writer: SegmentWriter, job: JobEntry): void {
  const { buffer } = job.chunk as Chunk
  writer.add(job, job.id, readAddedAt(buffer, job.start, job.end), buffer, job.start, job.end)
}
