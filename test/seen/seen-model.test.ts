/**
 * The seen-set against a plain Set, with a checkpoint at any stage and reopening at any moment. The model's journal is a
 * list of what was added and forgotten; reopening replays what came after the freeze of the last commit, as the engine does.
 */
import fc from 'fast-check'
import { expect, test } from 'vitest'
import type { SeenSet, SeenTuning } from '../../src/seen/seen-set.js'
import { type Committed, counterKey, EMPTY, openSet, spreadKey, TINY, world } from './seen-support.js'

const POOL = 16
/** Other seeds: HOLDFAST_SEED=7 HOLDFAST_RUNS=1000 npx vitest run test/seen/seen-model.test.ts */
const SEED = Number(process.env['HOLDFAST_SEED'] ?? 41)
const RUNS = Number(process.env['HOLDFAST_RUNS'] ?? 80)
/** Added together, so that runs of several pages come about. */
const BULK_FROM = 1000
const BULK_KEYS = 300

type Op =
  | { readonly do: 'add' | 'addAndUndo' | 'undoRecent' | 'forget'; readonly key: number }
  | { readonly do: 'addBulk' | 'forgetBulk' | 'freeze' | 'finish' | 'commit' | 'abort' | 'reopen' | 'check' }
  | { readonly do: 'turns'; readonly count: number }

const keyed = (name: 'add' | 'addAndUndo' | 'undoRecent' | 'forget', weight: number) => ({
  weight,
  arbitrary: fc.record({ do: fc.constant(name), key: fc.nat(POOL - 1) }),
})
const plain = (
  name: 'addBulk' | 'forgetBulk' | 'freeze' | 'finish' | 'commit' | 'abort' | 'reopen' | 'check',
  weight: number,
) => ({
  weight,
  arbitrary: fc.constant({ do: name }),
})
const opArbitrary: fc.Arbitrary<Op> = fc.oneof(
  keyed('add', 30),
  keyed('addAndUndo', 4),
  keyed('undoRecent', 5),
  keyed('forget', 12),
  plain('addBulk', 1),
  plain('forgetBulk', 1),
  plain('freeze', 8),
  { weight: 8, arbitrary: fc.record({ do: fc.constant('turns' as const), count: fc.nat(150) }) },
  plain('finish', 6),
  plain('commit', 8),
  plain('abort', 2),
  plain('reopen', 3),
  plain('check', 2),
)

interface JournalEntry {
  readonly key: number
  readonly forget: boolean
}

class Machine {
  private readonly env
  private readonly keys = new Map<number, Buffer>()
  private readonly make: (n: number) => Buffer
  private readonly model = new Set<number>()
  private set: SeenSet
  private committed: Committed = EMPTY
  /** What came after the freeze of the last commit; a running checkpoint's freeze is at `frozenAt`. */
  private journal: JournalEntry[] = []
  private frozenAt = 0
  private writing: Promise<Committed> | undefined
  private written: Committed | undefined
  private readonly tuning: SeenTuning
  merges = 0

  constructor(seed: number) {
    this.env = world(seed)
    this.make = seed % 2 === 0 ? spreadKey : counterKey
    // With every other pair of seeds merges of more than a few keys run beside.
    this.tuning = seed % 4 < 2 ? TINY : { ...TINY, besideKeysMin: 12, runsMax: 6 }
    this.set = openSet(this.env, EMPTY, this.tuning)
  }

  private keyOf(n: number): Buffer {
    const key = this.keys.get(n) ?? this.make(n)
    this.keys.set(n, key)
    return key
  }

  async step(op: Op): Promise<void> {
    const bulk = Array.from({ length: BULK_KEYS }, (_, i) => BULK_FROM + i)
    if (op.do === 'add') this.add(op.key)
    else if (op.do === 'addAndUndo') this.addAndUndo(op.key)
    else if (op.do === 'undoRecent') await this.undoRecent(op.key)
    else if (op.do === 'forget') this.forget(op.key)
    else if (op.do === 'addBulk') this.addAll(bulk)
    else if (op.do === 'forgetBulk') this.forgetAll(bulk)
    else if (op.do === 'freeze') this.freeze()
    else if (op.do === 'turns') await this.env.clock.settle(op.count)
    else if (op.do === 'finish') await this.finish()
    else if (op.do === 'commit') await this.commit()
    else if (op.do === 'abort') this.abort()
    else if (op.do === 'reopen') await this.reopen()
    else this.set.check()
    this.compare(op.do === 'reopen' || op.do === 'commit' || op.do === 'abort')
  }

  private add(key: number): void {
    const isNew = !this.model.has(key)
    expect(this.set.add(this.keyOf(key), 0)).toBe(isNew)
    if (!isNew) return
    this.model.add(key)
    this.journal.push({ key, forget: false })
  }

  private addAll(keys: readonly number[]): void {
    for (const key of keys) this.add(key)
  }

  private forgetAll(keys: readonly number[]): void {
    for (const key of keys) this.forget(key)
  }

  private addAndUndo(key: number): void {
    if (!this.set.add(this.keyOf(key), 0)) return
    expect(this.model.has(key)).toBe(false)
    this.set.undoAdd(this.keyOf(key), 0)
  }

  /** An add whose commit fails late, perhaps after the freeze. Once its run may be named, it takes a forget to undo. */
  private async undoRecent(key: number): Promise<void> {
    const at = this.journal.findLastIndex((entry) => entry.key === key)
    if (at < 0 || this.journal[at].forget) return
    this.set.undoAdd(this.keyOf(key), 0)
    this.model.delete(key)
    // A write that had ended shows within a few turns; one that starts over takes many.
    await this.env.clock.settle(5)
    if (this.written !== undefined && at < this.frozenAt) {
      this.journal.push({ key, forget: true })
      return
    }
    this.journal.splice(at, 1)
    if (at < this.frozenAt) this.frozenAt--
  }

  private forget(key: number): void {
    expect(this.set.forget(this.keyOf(key), 0)).toBe(this.model.has(key))
    if (this.model.delete(key)) this.journal.push({ key, forget: true })
  }

  private freeze(): void {
    if (this.writing !== undefined) return
    this.set.freeze()
    this.frozenAt = this.journal.length
    const writing = this.set.writeFrozen().then((written) => {
      if (this.writing === writing) this.written = written
      return written
    })
    writing.catch(() => {})
    this.writing = writing
  }

  private async finish(): Promise<void> {
    await this.writing
  }

  private async commit(): Promise<void> {
    if (this.writing === undefined) return
    const before = this.set.runs.length
    this.committed = await this.writing
    this.set.commitFrozen()
    if (this.committed.runs.length <= before) this.merges++
    this.journal = this.journal.slice(this.frozenAt)
    this.noCheckpoint()
    expect(this.set.runs).toEqual(this.committed.runs)
  }

  private abort(): void {
    this.set.abortFrozen()
    this.noCheckpoint()
  }

  private async reopen(): Promise<void> {
    const settled = this.set.settled()
    this.set.close()
    await this.writing?.catch(() => {})
    await settled
    this.noCheckpoint()
    expect(this.env.files.openHandles()).toBe(0)
    this.set = openSet(this.env, this.committed, this.tuning)
    this.set.removeUnnamed()
    expect(this.env.files.allFiles()).toHaveLength(this.committed.runs.length)
    for (const { key, forget } of this.journal) {
      if (forget) this.set.forget(this.keyOf(key), 0)
      else this.set.insertNew(this.keyOf(key), 0)
    }
    this.set.check()
  }

  private noCheckpoint(): void {
    this.writing = undefined
    this.written = undefined
    this.frozenAt = 0
  }

  private compare(withBulk: boolean): void {
    expect(this.set.size).toBe(this.model.size)
    const wrong: number[] = []
    const look = (key: number): void => {
      if (this.set.has(this.keyOf(key), 0) !== this.model.has(key)) wrong.push(key)
    }
    for (let key = 0; key < POOL; key++) look(key)
    for (let key = BULK_FROM; withBulk && key < BULK_FROM + BULK_KEYS; key += 7) look(key)
    expect(wrong).toEqual([])
  }

  async end(): Promise<void> {
    await this.reopen()
    await this.step({ do: 'freeze' })
    await this.step({ do: 'commit' })
    await this.reopen()
    this.set.close()
  }
}

test('agrees with a Set through any mix of calls, checkpoints and reopenings', async () => {
  let merges = 0
  await fc.assert(
    fc.asyncProperty(fc.nat(1000), fc.array(opArbitrary, { maxLength: 120, size: 'max' }), async (seed, ops) => {
      const machine = new Machine(seed)
      for (const op of ops) await machine.step(op)
      await machine.end()
      merges += machine.merges
    }),
    { seed: SEED, numRuns: RUNS },
  )
  // The mix must reach what it is for.
  expect(merges).toBeGreaterThan(RUNS / 2)
}, 60_000)

test('an add taken back at any moment of the write is in no run', async () => {
  for (let turns = 0, ended = false; !ended; turns++) {
    const env = world(turns)
    const set = openSet(env)
    for (let n = 0; n < 30; n++) set.add(spreadKey(n), 0)
    set.freeze()
    let resolved = false
    const writing = set.writeFrozen().finally(() => {
      resolved = true
    })
    await env.clock.settle(turns)
    set.undoAdd(spreadKey(turns % 30), 0)
    // A write that had ended shows within a few turns; one that starts over takes many.
    await env.clock.settle(5)
    ended = resolved
    const committed = await writing
    set.commitFrozen()
    expect([set.size, set.has(spreadKey(turns % 30), 0)], `after ${turns} turns`).toEqual([29, false])
    set.check()
    const again = openSet(env, committed)
    expect(again.has(spreadKey(turns % 30), 0), `after ${turns} turns`).toBe(ended)
    again.check()
    if (ended) expect(turns).toBeGreaterThan(100)
  }
})

test('a set closed, or a checkpoint given up, at any moment of the write leaves no handle open', async () => {
  for (const how of ['close', 'abort'] as const) {
    for (let turns = 0, ended = false; !ended; turns++) {
      const env = world(turns)
      const set = openSet(env)
      for (let n = 0; n < 30; n++) set.add(spreadKey(n), 0)
      set.freeze()
      const writing = set.writeFrozen().then(
        () => true,
        () => false,
      )
      await env.clock.settle(turns)
      if (how === 'close') set.close()
      else set.abortFrozen()
      ended = await writing
      expect(env.files.openHandles(), `${how} after ${turns} turns`).toBe(0)
      if (how === 'close') continue
      expect(env.files.allFiles(), `${how} after ${turns} turns`).toEqual([])
      expect([set.size, set.tableCount]).toEqual([30, 30])
      set.check()
    }
  }
})
