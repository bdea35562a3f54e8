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
  const seenOnly = Math.round((size * SEEN_ONLY_PER_PENDING) / BATCH) * BATCH
  const small = Math.max(BATCH, Math.round(seenOnly / 5 / BATCH) * BATCH)
  let next = 0
  const offer = async (): Promise<void> => {
    const batch = workload.requests(next, BATCH)
    const added = await driver.offer(batch)
    assert.ok(added === BATCH || Number.isNaN(added), `${added} of ${BATCH} were new`)
    next += BATCH
    gauge.sample()
    await turn()
  }
  /** Popped as soon as offered: memory that pending requests took and a runtime kept would look like seen ones. */
  const seeUpTo = async (upTo: number): Promise<number> => {
    while (next < upTo) {
      await offer()
      assert.equal((await driver.pop(BATCH)).length, BATCH, 'what was offered did not come back')
    }
    return gauge.settled()
  }
  const bytesSmall = await seeUpTo(small)
  const bytesSeenOnly = await seeUpTo(seenOnly)
  while (next < seenOnly + size) await offer()
  const bytesEnd = await gauge.settled()
  await driver.close()
  const bytesSeen = (bytesSeenOnly - bytesSmall) / (seenOnly - small)
  const metrics = {
    endMb: bytesEnd / 1e6,
    peakMb: gauge.peak / 1e6,
    bytesSeen,
    bytesPending: (bytesEnd - bytesSeenOnly) / size - bytesSeen,
  }
  return { operations: size, metrics }
}
