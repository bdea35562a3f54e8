/**
 * What every peer of the comparison has to offer, so that one scenario file can put the same work to all of them. A method
 * that takes requests resolves when they are as durable as the run asks for, never before; a method that gives requests
 * back resolves when their removal is as durable as that. Nothing here favours a layout: a peer stores as suits it best.
 */
import type { BenchRequest } from '../workload.js'

/** `process`: survives kill -9 of the process. `power`: survives power loss, so every promise waits for an fsync. */
export type Durability = 'process' | 'power'
/** What the store is opened for: a queue by priority, a queue that also knows what it saw, or a queue per host. */
export type Layout = 'queue' | 'crawl' | 'hosts'

export interface OpenOptions {
  readonly directory: string
  readonly durability: Durability
  readonly layout: Layout
}

export interface Driver {
  /** Accepts all, without looking for duplicates. */
  push(batch: readonly BenchRequest[]): Promise<void>
  /** One request of one of many producers: peers with a group commit share it between the producers. */
  pushOne(request: BenchRequest): Promise<void>
  /**
   * Removes up to `max` and gives them back, highest priority first, first in first out inside one. With layout 'hosts':
   * the next of each of the next `max` hosts in rotation. Empty when nothing is left.
   */
  pop(max: number): Promise<BenchRequest[]>
  /** Layout 'crawl': accepts those not seen before and says how many that were. */
  offer(batch: readonly BenchRequest[]): Promise<number>
  /** Layout 'crawl': the next request, which stays in the store until `finish`, if the peer can do that. */
  takeOne(): Promise<BenchRequest | undefined>
  /** Ends what `takeOne` gave and offers what it led to, as atomically as the peer can. Says how many were new. */
  finish(links: readonly BenchRequest[]): Promise<number>
  /** Makes good on what was promised and is not true yet. Timed. Most peers have nothing to do here. */
  settle(): Promise<void>
  close(): Promise<void>
  /** The process that holds the data, when it is not this one. */
  readonly serverPid?: number
}

export interface Peer {
  readonly name: string
  /** 'fifo': the peer has no priorities, or (the bare log) does without them; it is checked against arrival order. */
  readonly order: 'priority' | 'fifo'
  /** Share of the scenario's size this peer is given, so that a slow one ends. */
  readonly share: number
  /** It needs what bench/peers/package.json names. */
  readonly modules?: true
  /** The script that does the timed work instead of a driver. */
  readonly python?: string
  /** It keeps less than the scenario asks for: marked in every table, with this reason. */
  readonly unkept?: string
  /** How it was set up; printed. */
  readonly setting: string
  /** Why it cannot do this scenario; undefined: it can. */
  lacks(scenario: string, durability: Durability): string | undefined
  /** Imports what it needs. Untimed; what it returns is what scenario 6 times. */
  load(): Promise<(options: OpenOptions) => Promise<Driver>>
}

/** A part of the interface that a peer was not asked for. */
export function absent(peer: string, what: string): never {
  throw new Error(`${peer} has no ${what}: its driver should have said so`)
}

/**
 * Requests of all the producers of one turn, handed to `commit` together. For peers whose caller has to do the grouping;
 * invariant: a producer goes on only after the commit its request was part of.
 */
export class TurnBatch {
  private waiting: BenchRequest[] = []
  private running: Promise<void> | undefined
  private readonly commit: (batch: readonly BenchRequest[]) => Promise<void> | void

  constructor(commit: (batch: readonly BenchRequest[]) => Promise<void> | void) {
    this.commit = commit
  }

  add(request: BenchRequest): Promise<void> {
    this.waiting.push(request)
    this.running ??= new Promise<void>((resolve) => setImmediate(resolve)).then(() => {
      const batch = this.waiting
      this.waiting = []
      this.running = undefined
      return this.commit(batch)
    })
    return this.running
  }
}
