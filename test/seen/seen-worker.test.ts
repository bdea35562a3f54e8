/**
 * Runs written in a worker thread: the same bytes, the same errors, and a thread that dies or never starts. The thread loads
 * the built module (dist), everything else is the source.
 */
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import type { Env } from '../../src/env/env.js'
import { nodeEnv } from '../../src/env/node-env.js'
import { nodeWorkers } from '../../src/env/node-worker.js'
import { seededRandom } from '../../src/env/random.js'
import type { WorkerService } from '../../src/env/worker.js'
import { SeenSet, type SeenTuning } from '../../src/seen/seen-set.js'
import { checkpoint, EMPTY, expectHoldfastError, JOB_ID, spreadKey } from './seen-support.js'

const BUILT = new URL('../../dist/seen/seen-worker.js', import.meta.url)
const TUNING: Partial<SeenTuning> = { workerKeysMin: 0, levelGrowth: 3, levelBaseKeys: 500, filterKeysMax: 700 }

let root: string
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'holdfast-seen-worker-'))
})
afterEach(() => rmSync(root, { recursive: true, force: true }))

/** A thread with another module; counts how many were started. */
function workersOf(module: URL): WorkerService & { started: number } {
  const service = {
    started: 0,
    start: () => {
      service.started++
      return nodeWorkers.start(module)
    },
  }
  return service
}

const script = (code: string): URL => new URL(`data:text/javascript,${encodeURIComponent(code)}`)

function open(name: string, workers: WorkerService | undefined, tuning: Partial<SeenTuning> = TUNING): SeenSet {
  const { workers: _, ...env } = nodeEnv
  const world: Env = { ...env, random: seededRandom(7), ...(workers === undefined ? {} : { workers }) }
  return SeenSet.open({ env: world, directory: join(root, name), jobId: JOB_ID, ...EMPTY, tuning })
}

function addRange(set: SeenSet, from: number, to: number): void {
  for (let n = from; n < to; n++) set.add(spreadKey(n), 0)
}

const filesOf = (name: string): Map<string, string> =>
  new Map(
    readdirSync(join(root, name))
      .sort()
      .map((file) => [file, readFileSync(join(root, name, file)).toString('base64')]),
  )

describe('a worker thread', () => {
  test('writes byte for byte what this thread writes, flushes and merges', async () => {
    const workers = workersOf(BUILT)
    for (const [name, service] of [
      ['here', undefined],
      ['there', workers],
    ] as const) {
      const set = open(name, service)
      for (let round = 0; round < 9; round++) {
        addRange(set, round * 400, (round + 1) * 400)
        for (let n = round * 10; n < round * 10 + 3; n++) set.forget(spreadKey(n), 0)
        await checkpoint(set)
        set.check()
      }
      expect(set.size).toBe(9 * 397)
      set.close()
    }
    expect(workers.started).toBe(1)
    expect(filesOf('there')).toEqual(filesOf('here'))
    expect(filesOf('here').size).toBeGreaterThan(1)
  })

  test('a merge beside runs in it while flushes go first', async () => {
    const set = open('s', workersOf(BUILT), { ...TUNING, besideKeysMin: 1000 })
    let beside = 0
    for (let round = 0; round < 30; round++) {
      addRange(set, round * 300, (round + 1) * 300)
      await checkpoint(set)
      if (round % 5 === 4) await set.settled()
      if (set.isMerged) beside++
    }
    await set.settled()
    await checkpoint(set)
    expect(beside).toBeGreaterThan(0)
    set.check()
    expect([set.size, readdirSync(join(root, 's')).length]).toEqual([9000, set.runs.length])
    set.close()
  })

  test('that cannot start is done without', async () => {
    for (const module of [new URL('./no-such-module.js', BUILT), script('throw new Error("no")')]) {
      const workers = workersOf(module)
      const set = open(`without${workersOf.length}${module.href.length}`, workers)
      addRange(set, 0, 1000)
      await checkpoint(set)
      addRange(set, 1000, 2000)
      await checkpoint(set)
      set.check()
      expect([set.size, workers.started]).toEqual([2000, 1])
      set.close()
    }
  })

  test('that dies fails the checkpoint cleanly; the next has a new one', async () => {
    const dying = script(`
      import { parentPort } from 'node:worker_threads'
      parentPort.postMessage({ ready: true })
      parentPort.on('message', () => process.exit(3))`)
    let module = dying
    const service: WorkerService = { start: () => nodeWorkers.start(module) }
    const set = open('s', service)
    addRange(set, 0, 1000)
    set.freeze()
    const error = await set.writeFrozen().catch((reason: unknown) => reason)
    expect(expectHoldfastError(error, 'HOLDFAST_IO').message).toContain('worker thread ended')
    set.abortFrozen()
    expect([set.size, set.tableCount, readdirSync(join(root, 's'))]).toEqual([1000, 1000, []])
    module = BUILT
    await checkpoint(set)
    set.check()
    expect(set.runs).toHaveLength(1)
    set.close()
  })

  test('an error in it comes back as what it was, and leaves no file', async () => {
    const set = open('s', workersOf(BUILT))
    addRange(set, 0, 1000)
    const { runs } = await checkpoint(set)
    const file = join(root, 's', runs[0].file)
    rmSync(file)
    addRange(set, 1000, 1700)
    set.freeze()
    const error = expectHoldfastError(await set.writeFrozen().catch((reason: unknown) => reason), 'HOLDFAST_IO')
    expect([error.path, error.message]).toEqual([file, expect.stringContaining('ENOENT')])
    set.abortFrozen()
    expect(readdirSync(join(root, 's'))).toEqual([])
    set.close()
  })

  test('a checkpoint given up, or a set closed, while it works: rejected, and nothing is named', async () => {
    for (const how of ['abort', 'close'] as const) {
      const set = open(how, workersOf(BUILT))
      addRange(set, 0, 60_000)
      set.freeze()
      const writing = set.writeFrozen().catch((reason: unknown) => reason)
      while (!readdirSync(root).includes(how) || readdirSync(join(root, how)).length === 0) await nodeEnv.clock.yield()
      if (how === 'abort') set.abortFrozen()
      else set.close()
      expectHoldfastError(await writing, 'HOLDFAST_CLOSED')
      expect(set.size).toBe(60_000)
      if (how === 'close') continue
      expect(readdirSync(join(root, how))).toEqual([])
      await checkpoint(set)
      set.check()
      set.close()
    }
  })
})
