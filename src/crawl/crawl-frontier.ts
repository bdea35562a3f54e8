/** What the crawler needs of a frontier, and no more: a test can stand in for it. */
import type {
  AddOptions,
  AddResult,
  FrontierOptions,
  LoopOptions,
  Recovery,
  Requests,
  Stats,
  Visit,
} from '../frontier/types.js'

export interface CrawlFrontier {
  readonly recovery: Recovery
  add(requests: Requests, options?: AddOptions): Promise<AddResult>
  /** Ends when the frontier is finished, and, without throwing, when the signal aborts. */
  visits(options?: LoopOptions): AsyncIterableIterator<Visit>
  stats(): Promise<Stats>
  state(key: string): unknown
  setState(entries: Record<string, unknown>): Promise<void>
  pauseSlot(slot: string, untilMs: number): Promise<void>
  close(): Promise<void>
}

export type OpenFrontier = (directory: string, options?: FrontierOptions) => Promise<CrawlFrontier>
