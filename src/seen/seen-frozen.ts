/** What a checkpoint holds on to between `freeze` and its end. */
import type { SeenRunReader } from './seen-run-reader.js'
import type { SeenTable } from './seen-table.js'

export interface Written {
  readonly size: number
  /** Newest first. */
  readonly readers: readonly SeenRunReader[]
  /** Made for this checkpoint: no file of the set before. */
  readonly run: SeenRunReader | undefined
  /** The merge beside was ready, and is in `readers` or in `run`. */
  readonly withBeside: boolean
}

export interface Frozen {
  readonly table: SeenTable
  /** Keys seen as of the freeze, less those whose add was taken back since. */
  size: number
  /** Rises when the table is changed by `undoAdd`: what was being written from it is then of no use. */
  version: number
  /** Of the run being written. */
  number: number
  writing: boolean
  cancelled: boolean
  written: Written | undefined
}
