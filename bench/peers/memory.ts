/**
 * Scenario 7: what a peer holds in memory of its own once it knows and keeps a lot. Counted is RssAnon, of the server too
 * where there is one: pages of mapped files can be dropped by the system and are nobody's need. Bytes per seen come from
 * the slope between two sizes with nothing pending, so that what a runtime takes at all is in neither.
 */
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { collectGarbage, turn } from '../measure.js'
import type { Driver } from './driver.js'
import { BATCH, type Context, type Outcome } from './scenarios.js'

const SLOW_PER_SECOND = 20_000
/** Offered and popped first, to see how quick the peer is. */
const TRIAL = 10_000
const SLOW_SHARE = 0.1
const SAMPLE_EVERY_MS = 100
/** Seen but no longer pending, for each that is pending: 3 M beside 2 M make 5 M seen. */
const SEEN_ONLY_PER_PENDING = 1.5

export function privateBytes(pid: number | 'self'): number {
  const found = /^RssAnon:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))
  if (found === null) throw new Error(`/proc/${pid}/status has no RssAnon: memory is measured on Linux only`)
  return Number(found[1]) * 1024
}

class Gauge {
  peak = 0
  private sampledAt = 0
  private readonly driver: Driver

  constructor(driver: Driver) {
    this.driver = driver
  }

  now(): number {
    const { serverPid } = this.driver
    const bytes = privateBytes('self') + (serverPid === undefined ? 0 : privateBytes(serverPid))
    this.peak = Math.max(this.peak, bytes)
    return bytes
  }

  sample(): void {
    const at = performance.now()
    if (at - this.sampledAt < SAMPLE_EVERY_MS) return
    this.sampledAt = at
    this.now()
  }

  /** What is left once garbage is gone and background work has had its turns. */
  async settled(): Promise<number> {
    for (let round = 0; round < 3; round++) {
      await turn()
      collectGarbage()
    }
    return this.now()
  }
}

export async function memory({ workload, size, open }: Context): Promise<Outcome> {
  const driver = await open('crawl')
  const gauge = new Gauge(driver)
  let next = 0
  const offer = async (upTo: number): Promise<void> => {
    while (next < upTo) {
      const batch = workload.requests(next, Math.min(BATCH, upTo - next))
      const added = await driver.offer(batch)
      assert.ok(added === batch.length || Number.isNaN(added), `${added} of ${batch.length} were new`)
      next += batch.length
      gauge.sample()
      await turn()
    }
  }
  const pop = async (many: number): Promise<void> => {
    for (let left = many; left > 0; ) {
      const { length } = await driver.pop(Math.min(BATCH, left))
      assert.ok(length > 0, 'less was pending than had been offered')
      left -= length
      gauge.sample()
      await turn()
    }
  }
  const begun = performance.now()
  const trial = Math.min(size, TRIAL)
  await offer(trial)
  await pop(trial)
  const slow = (2 * trial * 1000) / (performance.now() - begun) < SLOW_PER_SECOND
  const pending = slow ? Math.ceil(size * SLOW_SHARE) : size
  const seenOnly = Math.max(trial, Math.round(pending * SEEN_ONLY_PER_PENDING))
  const small = Math.max(trial, Math.round(seenOnly / 5))
  await offer(small)
  await pop(small - trial)
  const bytesSmall = await gauge.settled()
  await offer(seenOnly)
  await pop(seenOnly - small)
  const bytesSeenOnly = await gauge.settled()
  await offer(seenOnly + pending)
  const bytesEnd = await gauge.settled()
  await driver.close()
  const bytesSeen = seenOnly === small ? Number.NaN : (bytesSeenOnly - bytesSmall) / (seenOnly - small)
  const metrics = {
    endMb: bytesEnd / 1e6,
    peakMb: gauge.peak / 1e6,
    bytesSeen,
    bytesPending: (bytesEnd - bytesSeenOnly) / pending - bytesSeen,
  }
  const notes = slow
    ? [`slower than ${SLOW_PER_SECOND.toLocaleString('en-US')}/s, so it was given a tenth: compare bytes, not MB`]
    : []
  return { operations: pending, metrics, notes }
}
