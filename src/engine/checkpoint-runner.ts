/**
 * When a checkpoint is due, and one at a time: above a size of the journal, of memory, or of the seen-set's table. One that
 * could not be done, or that could not make room, is not repeated before there is as much again to do.
 */

import { type CheckpointContext, runCheckpoint } from './checkpoint.js'
import type { Committer } from './committer.js'
import type { StoreEvents } from './events.js'
import type { Reserve } from './reserve.js'
import { loadThin, nextThinSegment, takeForward } from './thin-segments.js'

export interface RunnerContext extends CheckpointContext {
  readonly committer: Committer
  readonly running: boolean
  warn(code: string, message: string): void
  listenerCount(name: keyof StoreEvents): number
  emit<K extends keyof StoreEvents>(name: K, ...values: StoreEvents[K]): boolean
}

export class CheckpointRunner {
  private readonly context: RunnerContext
  private readonly reserve: Reserve
  private current: Promise<void> | undefined
  /** What the journal and memory may hold beyond their bounds before the next. */
  private journalSlack = 0
  private memoryFloor = 0

  constructor(context: RunnerContext, reserve: Reserve) {
    this.context = context
    this.reserve = reserve
  }

  /** Starts one when it is due. */
  maybe(): void {
    if (this.current !== undefined) return
    const { options, state, journal } = this.context
    const { tuning, memoryBytes } = options
    const due =
      journal.bytes > tuning.journalBytes + this.journalSlack ||
      state.memoryBytes > Math.max(memoryBytes, this.memoryFloor) ||
      state.seen.tableCount > tuning.seenTableKeys + this.journalSlack ||
      (state.seen.isMerged && this.journalSlack === 0)
    if (due) this.run().catch(() => {})
  }

  run(): Promise<void> {
    // Noted before it begins: what it commits on the way asks again whether one is due.
    this.current ??= Promise.resolve()
      .then(() => this.once())
      .finally(() => {
        this.current = undefined
      })
    return this.current
  }

  /** Memory is far over its bound and room is being made. */
  get crowded(): boolean {
    if (this.current === undefined) return false
    const { state, options, journal } = this.context
    // The journals bound how long the next open takes; memory bounds itself.
    const journalBytes = journal.bytes + journal.olderBytes
    return (
      state.memoryBytes > 2 * options.memoryBytes ||
      journalBytes > 2 * options.tuning.journalBytes + this.journalSlack ||
      state.seen.tableCount > 2 * options.tuning.seenTableKeys + this.journalSlack
    )
  }

  /** Waits while memory is far over its bound and a checkpoint is making room. */
  async room(): Promise<void> {
    if (this.crowded) await this.ended()
  }

  /** The running one is over, however it ended. */
  async ended(): Promise<void> {
    await this.current?.catch(() => {})
  }

  private async once(): Promise<void> {
    const { context } = this
    const { clock } = context.options.env
    const { memoryBytes, tuning } = context.options
    const begun = clock.monotonic()
    try {
      await this.moveThinForward()
      const segments = await runCheckpoint(context)
      this.journalSlack = 0
      // Leased jobs stay in memory: what a checkpoint could not move is not worth another at once.
      this.memoryFloor = context.state.memoryBytes + memoryBytes / 2
      this.reserve.hold()
      if (context.listenerCount('checkpoint') > 0) {
        const durationMs = clock.monotonic() - begun
        context.emit('checkpoint', { generation: context.state.generation, segments, durationMs })
      }
    } catch (error) {
      if (context.journal.failed !== undefined) context.fail(context.journal.failed)
      if (context.running) {
        this.journalSlack += tuning.journalBytes
        this.memoryFloor = context.state.memoryBytes + memoryBytes / 2
        context.warn('checkpoint-failed', (error as Error).message)
      }
      throw error
    }
  }

  /** The last jobs of thin segments move into the journal, so that their files can go. */
  private async moveThinForward(): Promise<void> {
    const { context } = this
    for (;;) {
      context.checkpointGuard()
      const segment = nextThinSegment(context.state, context.options)
      if (segment === undefined) break
      const lanes = segment.lanes()
      while (segment.live > 0) {
        context.checkpointGuard()
        const moved = takeForward(context.state, segment, lanes, (operation, encode) =>
          context.committer.commit(operation, encode),
        )
        // In this very turn: jobs on their way are in no queue, and whoever looked meanwhile would miss them.
        context.committer.flush()
        await moved
        await context.options.env.clock.yield()
      }
    }
    loadThin(context.state, context.options)
  }
}
