/** A batch answers as its keys one by one would, whatever is in tables, caches and runs, and however it ends. */
import fc from 'fast-check'
import { expect, test } from 'vitest'
import type { SeenSet } from '../../src/seen/seen-set.js'
import { caught, checkpoint, DIRECTORY, expectHoldfastError, openSet, spreadKey, world } from './seen-support.js'

const POOL = 60

const batchArbitrary = fc.record({
  do: fc.constantFrom('add', 'has', 'addAndUndo'),
  keys: fc.array(fc.nat(POOL - 1), { maxLength: 40 }),
})
const opArbitrary = fc.oneof(
  { weight: 8, arbitrary: batchArbitrary },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('checkpoint'), keys: fc.constant<number[]>([]) }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('freeze'), keys: fc.constant<number[]>([]) }) },
  {
    weight: 2,
    arbitrary: fc.record({ do: fc.constant('forget'), keys: fc.array(fc.nat(POOL - 1), { maxLength: 3 }) }),
  },
)

const packed = (keys: readonly number[]): Buffer => Buffer.concat(keys.map(spreadKey))

async function apply(set: SeenSet, op: { do: string; keys: readonly number[] }, batched: boolean): Promise<unknown> {
  if (op.do === 'checkpoint') return void (await checkpoint(set))
  if (op.do === 'freeze') {
    // Answers out of a frozen table, which then comes back.
    set.freeze()
    const seen = op.keys.map((n) => set.has(spreadKey(n), 0))
    set.abortFrozen()
    return seen
  }
  if (op.do === 'forget') return op.keys.map((n) => set.forget(spreadKey(n), 0))
  const answers = new Uint8Array(op.keys.length)
  let count = 0
  if (batched) {
    const bytes = packed(op.keys)
    count =
      op.do === 'has' ? set.hasBatch(bytes, op.keys.length, answers) : set.addBatch(bytes, op.keys.length, answers)
  } else {
    for (const [i, n] of op.keys.entries()) {
      answers[i] = (op.do === 'has' ? set.has(spreadKey(n), 0) : set.add(spreadKey(n), 0)) ? 1 : 0
      count += answers[i]
    }
  }
  if (op.do === 'addAndUndo') {
    for (let i = op.keys.length - 1; i >= 0; i--) if (answers[i] === 1) set.undoAdd(spreadKey(op.keys[i]), 0)
  }
  return [count, [...answers], set.size, set.tableCount]
}

test('batches against the same keys one by one', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(opArbitrary, { maxLength: 30, size: 'max' }), async (ops) => {
      const [batched, single] = [openSet(world(1)), openSet(world(1))]
      for (const op of ops) expect(await apply(batched, op, true)).toEqual(await apply(single, op, false))
      batched.check()
      expect([...batched.keys()]).toEqual([...single.keys()])
    }),
    { seed: Number(process.env['HOLDFAST_SEED'] ?? 71), numRuns: Number(process.env['HOLDFAST_RUNS'] ?? 150) },
  )
}, 60_000)

test('an error while reading leaves everything as it was, and the batch can be tried again', async () => {
  const env = world(2)
  const set = openSet(env)
  for (let n = 0; n < 30; n++) set.add(spreadKey(n), 0)
  await checkpoint(set)
  const keys = packed([100, 1, 101, 100, 2])
  const isNew = new Uint8Array(5)
  env.files.failReads(DIRECTORY, 'EIO')
  expectHoldfastError(
    caught(() => set.addBatch(keys, 5, isNew)),
    'HOLDFAST_IO',
  )
  expect([set.size, set.tableCount]).toEqual([30, 0])
  env.files.clearFaults()
  expect([set.addBatch(keys, 5, isNew), [...isNew], set.size]).toEqual([2, [1, 0, 1, 0, 0], 32])
})

test('a batch that its arrays cannot hold is refused', () => {
  const set = openSet(world(3))
  expect(() => set.addBatch(spreadKey(1), 2, new Uint8Array(2))).toThrow('has room')
  expect(() => set.addBatch(packed([1, 2]), 2, new Uint8Array(1))).toThrow('has room')
  expect(set.size).toBe(0)
})
