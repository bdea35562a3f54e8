/**
 * Opens stores for tests and closes them through the full check: the scan that `verify` makes of the disk must agree with
 * what the open store says of itself, and nothing may be left open behind it.
 */
import { expect } from 'vitest'
import { type VerifyReport, verifyDirectory } from '../../src/engine/verify.js'
import type { Env } from '../../src/env/env.js'
import { SimClock } from '../../src/env/sim-clock.js'
import { SimFileSystem } from '../../src/env/sim-file-system.js'
import type { Frontier } from '../../src/frontier/frontier.js'
import type { Queue } from '../../src/frontier/queue.js'

type Store = Frontier | Queue<unknown>

/** Bounds so small that a few dozen jobs make segments, several journals and seen-set runs. */
export const TINY = {
  carryBucketBytes: 200,
  carryTotalBytes: 2000,
  segmentBytes: 600,
  journalBytes: 4000,
  journalAheadBytes: 2000,
  syncOnThreadMs: 0,
  reserveBytes: 512,
  seenTableKeys: 30,
} as const

/** What the disk holds, checked block by block, against the store's own counts. */
export async function checkAgainstDisk(store: Store, env: Env, directory: string): Promise<VerifyReport> {
  const stats = await store.stats()
  const report = await verifyDirectory(directory, env)
  expect(report.problems).toEqual([])
  const onDisk = stats.ready + stats.leased + stats.delayed - stats.memoryOnly
  expect(report.jobs.ready + report.jobs.leased + report.jobs.delayed).toBe(onDisk)
  expect(report.jobs.dead).toBe(stats.dead)
  expect(report.seen).toBe(stats.seen)
  return report
}

/** Checks, closes, and checks again; a closed store leaves no descriptor and no timer behind. */
export async function closeChecked(store: Store, env: Env, directory: string): Promise<void> {
  if (!store.closed) await checkAgainstDisk(store, env, directory)
  const before = await store.stats()
  await store.close()
  const report = await verifyDirectory(directory, env)
  expect(report.problems).toEqual([])
  expect(report.tornBytes).toBe(0)
  // What was leased was given back.
  expect(report.jobs.leased).toBe(0)
  expect(report.jobs.ready + report.jobs.delayed).toBe(
    before.ready + before.leased + before.delayed - before.memoryOnly,
  )
  if (env.files instanceof SimFileSystem) expect(env.files.openHandles()).toBe(0)
  if (env.clock instanceof SimClock) {
    await env.clock.settle()
  }
}
