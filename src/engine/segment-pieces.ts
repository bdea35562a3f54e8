/**
 * Writes one planned segment (C3), beside the running work. Jobs that are taken meanwhile are written all the same: their
 * records keep their ordinals, and what happened since is in the journal.
 */
import { SEGMENT_BLOCK_BYTES } from '../limits.js'
import type { Chunk, JobEntry } from '../queue/job-entry.js'
import { NO_JOB } from '../queue/job-table.js'
import { readAddedAt } from '../store/job-record.js'
import { type RecordState, SegmentWriter } from '../store/segment-writer.js'
import type { CheckpointPlan, PlannedSegment } from './checkpoint-plan.js'
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
    for (const piece of planned.pieces) {
      const { source, from, to } = piece
      const { lanes, slots } = state.ready
      const isLane = 'lane' in source
      writer.beginLane(isLane ? slots.name(lanes.slotOf(source.lane)) : source.name)
      const nodes = isLane ? nodesOf(state, plan, source.lane) : undefined
      for (let i = from; i < to; i++) {
        if (nodes === undefined) writeEntry(writer, (source as { jobs: readonly JobEntry[] }).jobs[i])
        else writeNode(state, writer, nodes[i])
        if (writer.bytes < sliceEnd) continue
        sliceEnd = writer.bytes + SLICE_BYTES
        await pause()
      }
    }
    segment.seal(await writer.finish())
  } catch (error) {
    writer.abandon()
    throw error
  }
}

/** Nodes of the frozen lane by rising id. */
function nodesOf(state: StoreState, plan: CheckpointPlan, lane: number): Int32Array {
  const { frozen } = plan
  const i = state.ready.lanes.frozenOf(lane)
  const nodes = new Int32Array(frozen.totals[i])
  let at = 0
  for (let node = frozen.heads[i]; node !== NO_JOB; node = state.jobs.next(node)) nodes[at++] = node
  return state.lifo ? nodes.reverse() : nodes
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
