/** What the engine tells: counts, what opening found, and the events of an open store. */

export interface AddResult {
  /** Accepted: they will be handed out. */
  added: number
  /** Already seen. */
  duplicates: number
  /** Of the added, those that cannot be written to disk. */
  memoryOnly: number
  /** Not URLs, skipped. Always 0 with `onInvalid: 'throw'`. */
  invalid: number
}

export type { CounterValues as Counters } from '../store/manifest.js'

/** What opening found. */
export interface Recovery {
  /** The directory was made by this open. */
  readonly created: boolean
  /** Leases of the process before, handed out again. */
  readonly leases: number
  /** Bytes of torn tail cut off; 0 after a clean stop or a plain kill between writes. */
  readonly tornBytes: number
  /** Journal frames replayed. */
  readonly frames: number
  /** Jobs that had used up their attempts and went to the dead letters. */
  readonly buried: number
}

export interface StoreEvents {
  added: [result: AddResult]
  acked: [id: number]
  retry: [id: number, delayMs: number, reason: string | undefined]
  dead: [id: number, reason: string]
  expired: [id: number]
  'slot-paused': [slot: string, untilMs: number]
  /** Nothing ready, but something delayed or leased. */
  idle: []
  /** Nothing left at all. */
  finished: []
  checkpoint: [info: { generation: number; segments: number; durationMs: number }]
  warning: [warning: { code: string; message: string }]
}
