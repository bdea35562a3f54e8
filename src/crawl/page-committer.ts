/**
 * Puts finished pages into the output and ends their jobs, each exactly once, kills included.
 *
 *   O1  the page's lease is still live          (nothing between O1 and O3 yields, in `process`)
 *   O2  its line is written behind the last committed one; in `power` the file is synced
 *   O3  ack or bury, with the output's new length in the same commit. Commit point: that commit.
 *
 * A crash before O3 leaves a line beyond the committed length, which the next open cuts off, and a page that is handed
 * out again. After O3 both are durable. Invariant: at most one group of pages is between O2 and the end of O3, so a
 * commit that fails never lies below one that holds.
 */
import type { AckOptions, RequestInit, Settlement, Visit } from '../frontier/types.js'
import type { OutputFile } from './output-file.js'
import { encodePageLine, type PageLine } from './page-line.js'

/** The key of the crawl's position in the frontier's state. */
export const OUTPUT_STATE_KEY = 'crawl.output'

/** Pages that share one sync in `power`. */
const GROUP_PAGES_MAX = 64
/** Together well below what the frontier puts in one frame, so that a group is committed as one. */
const GROUP_CHARS_MAX = 256 * 1024

export interface FinishedPage {
  readonly visit: CommitVisit
  readonly line: PageLine
  /** What it led to. */
  readonly add: readonly RequestInit[]
  /** Given: the page goes to the dead letters with this reason. `add` is then empty. */
  readonly bury?: string
  /** More to set in the same commit. */
  readonly state?: Record<string, unknown>
}

export type CommitVisit = Pick<Visit, 'live' | 'ack' | 'bury'>

/** `lost`: the lease was over, somebody else will finish the page; nothing was written. */
export type CommitOutcome = 'committed' | 'lost'

interface Waiting {
  readonly page: FinishedPage
  readonly chars: number
  readonly resolve: (outcome: CommitOutcome) => void
  readonly reject: (error: unknown) => void
}

interface Placed extends Waiting {
  readonly state: Record<string, unknown>
  readonly from: number
  readonly to: number
}

export class PageCommitter {
  readonly #output: OutputFile
  readonly #power: boolean
  #waiting: Waiting[] = []
  #running = false
  #failure: { readonly error: unknown } | undefined

  constructor(output: OutputFile, options: { readonly power: boolean }) {
    this.#output = output
    this.#power = options.power
  }

  /** Resolves when line and job are durable. After one rejection all later calls reject with the same error. */
  commit(page: FinishedPage): Promise<CommitOutcome> {
    return new Promise((resolve, reject) => {
      if (this.#failure !== undefined) {
        reject(this.#failure.error)
        return
      }
      this.#waiting.push({ page, chars: charsOf(page), resolve, reject })
      if (!this.#running) void this.#run()
    })
  }

  async #run(): Promise<void> {
    this.#running = true
    while (this.#waiting.length > 0) {
      const group = this.#nextGroup()
      try {
        if (this.#failure !== undefined) throw this.#failure.error
        await this.#commitGroup(group)
      } catch (error) {
        this.#failure ??= { error }
        for (const one of group) one.reject(error)
      }
    }
    this.#running = false
  }

  /** One page in `process`, where a commit costs no more than a write; as many as fit in `power`, where it costs two syncs. */
  #nextGroup(): Waiting[] {
    let count = 1
    let chars = this.#waiting[0].chars
    while (this.#power && count < Math.min(GROUP_PAGES_MAX, this.#waiting.length)) {
      chars += this.#waiting[count].chars
      if (chars > GROUP_CHARS_MAX) break
      count++
    }
    return this.#waiting.splice(0, count)
  }

  async #commitGroup(group: Waiting[]): Promise<void> {
    const start = this.#output.position
    let live = group
    let placed: Placed[] = []
    // Syncing takes time in which a lease can end. Its line must then not be below a committed one: write again.
    for (;;) {
      for (const one of live) if (!one.page.visit.live) one.resolve('lost')
      live = live.filter((one) => one.page.visit.live)
      if (live.length === 0) return
      try {
        placed = live.map((one) => this.#place(one))
        if (this.#power) await this.#output.sync()
      } catch (error) {
        this.#output.cutTo(start)
        throw error
      }
      if (placed.every((one) => one.page.visit.live)) break
      this.#output.cutTo(start)
    }
    await this.#settleAll(withoutRepeats(placed), start)
  }

  #place(one: Waiting): Placed {
    const from = this.#output.position.bytes
    this.#output.append(encodePageLine(one.page.line))
    const { state } = this.#output
    return { ...one, state: { ...one.page.state, [OUTPUT_STATE_KEY]: state }, from, to: state.bytes }
  }

  /** O3. All calls are made before the first `await`: they are encoded in this order, with nobody else's in between. */
  async #settleAll(placed: readonly Placed[], start: { bytes: number; lines: number }): Promise<void> {
    const results = await Promise.allSettled(placed.map((one) => settle(one)))
    const lastDone = results.findLastIndex((result) => result.status === 'fulfilled')
    const failed = results.find((result) => result.status === 'rejected')
    if (failed !== undefined) {
      this.#failure = { error: failed.reason }
      if (lastDone === -1) this.#output.cutTo(start)
    }
    results.forEach((result, index) => {
      const one = placed[index]
      if (result.status === 'fulfilled') one.resolve('committed')
      else {
        // Refused, but the committed length is beyond it (a full disk can take one call of a commit and leave another).
        if (index < lastDone) this.#output.blank(one.from, one.to)
        one.reject(result.reason)
      }
    })
  }
}

/** Async so that what is thrown at once and what rejects later look alike; the call itself is made at once. */
async function settle(one: Placed): Promise<void> {
  const { visit, add, bury } = one.page
  const settlement: Settlement = { state: one.state }
  if (bury !== undefined) {
    await visit.bury({ ...settlement, reason: bury })
    return
  }
  const options: AckOptions = { ...settlement, add, addOptions: { onInvalid: 'skip' } }
  await visit.ack(options)
}

/**
 * A link found by several pages of a group is added by the first. A repeat would be answered "duplicate" on the
 * strength of a commit that is not written yet, and would tie the two calls together when the disk is full.
 */
function withoutRepeats(placed: readonly Placed[]): Placed[] {
  if (placed.length === 1) return [...placed]
  const added = new Set<string>()
  return placed.map((one) => {
    const add = one.page.add.filter((request) => !added.has(String(request.url)))
    for (const request of add) added.add(String(request.url))
    return { ...one, page: { ...one.page, add } }
  })
}

function charsOf(page: FinishedPage): number {
  let chars = page.line.url.length
  for (const request of page.add) chars += String(request.url).length + 64 + page.line.url.length
  return chars
}
