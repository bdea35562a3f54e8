/**
 * The one large merge that may run beside everything else: adds, look-ups, and checkpoints, which go on writing small runs
 * meanwhile. What it made takes the place of its inputs with the next checkpoint, whose manifest names it.
 *
 * Invariants: its inputs are the newest runs there were when it began, and its number was taken then, so it is older than
 * every run made meanwhile; until a manifest names what it made, the inputs are the truth, and a kill costs only the work.
 */
import { type FlushContext, type Flushed, mergeRuns, planBeside } from './seen-flush.js'
import type { SeenRunReader } from './seen-run-reader.js'
import type { TaskCare } from './seen-tasks.js'

interface Merging {
  readonly number: number
  readonly inputs: ReadonlySet<SeenRunReader>
  readonly ended: Promise<void>
  made: Flushed | undefined
}

export class MergeBeside {
  private current: Merging | undefined

  /** It is done, and waits for a checkpoint. */
  get isReady(): boolean {
    return this.current?.made !== undefined
  }

  /** Resolves when nothing runs any more, however it ended. */
  async ended(): Promise<void> {
    await this.current?.ended
  }

  /** Starts the merge that is due among all the runs of the set, if one is and none runs. */
  maybeStart(context: FlushContext, runs: readonly SeenRunReader[], takeNumber: () => number, care: TaskCare): void {
    if (this.current !== undefined) return
    const plan = planBeside(context, runs)
    if (plan === undefined) return
    const number = takeNumber()
    const inputs = new Set(runs.slice(0, plan.merged))
    const run = async (): Promise<void> => {
      try {
        const made = await mergeRuns(context, plan, runs, number, care)
        // The set may have been closed in the very turn in which it ended.
        if (isWanted(care)) merging.made = made
        else made.run?.close()
      } catch (error) {
        this.current = undefined
        if (isWanted(care)) context.warn('seen-merge-failed', (error as Error).message)
      }
    }
    const merging: Merging = { number, inputs, made: undefined, ended: Promise.resolve().then(run) }
    this.current = merging
  }

  /** The runs as they will be: what is ready in the place of its inputs. Of these, `free` are newer than what still runs. */
  view(runs: readonly SeenRunReader[]): { runs: readonly SeenRunReader[]; free: number } {
    const { current } = this
    if (current === undefined) return { runs, free: runs.length }
    const at = runs.findIndex((run) => current.inputs.has(run))
    if (current.made === undefined) return { runs, free: at }
    const made = current.made.run === undefined ? [] : [current.made.run]
    const whole = [...runs.slice(0, at), ...made, ...runs.slice(at + current.inputs.size)]
    return { runs: whole, free: whole.length }
  }

  /** What was ready at the last `view` is in the manifest now, or merged further. Returns the run if there is one. */
  published(): SeenRunReader | undefined {
    const run = this.current?.made?.run
    this.current = undefined
    return run
  }

  close(): void {
    this.current?.made?.run?.close()
  }
}

function isWanted(care: TaskCare): boolean {
  try {
    care.assertWanted()
    return true
  } catch {
    return false
  }
}
