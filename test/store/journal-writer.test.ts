/**
 * The one who appends: a frame is whole in the file or not there; what it says is synced is synced; and after a failed sync
 * it never writes again.
 */
import { beforeEach, describe, expect, test } from 'vitest'
import { batchRegion } from '../../fixtures/formats/journal-fixture.js'
import { SimFileSystem } from '../../src/env/sim-file-system.js'
import { errorCode } from '../../src/errors.js'
import { decodeFileHeader, FILE_HEADER_BYTES, JOURNAL_MAGIC } from '../../src/store/format.js'
import type { JournalWriter } from '../../src/store/journal-writer.js'
import { append, beginJournal, JOB_ID, pathOf, record, refusal, replay, rotate } from './support.js'

let files: SimFileSystem
let writer: JournalWriter

beforeEach(async () => {
  files = new SimFileSystem()
  writer = beginJournal(files)
  await files.syncDirectory('/')
  await files.syncDirectory('/journal')
})

const rejection = (promise: Promise<unknown>): Promise<string | undefined> =>
  promise.then(
    () => 'resolved',
    (error) => errorCode(error),
  )
/** What is left when only what was synced stays. */
const afterPowerLoss = (): SimFileSystem => files.crash({ seed: 1, unsynced: 'lost' })

describe('appending', () => {
  test('numbers frames and knows where it is', () => {
    expect(writer).toMatchObject({ number: 1, bytes: FILE_HEADER_BYTES, sequence: 0, syncedSequence: 0, dirty: false })
    append(writer, record(1))
    append(writer, record(2))
    expect(writer).toMatchObject({ sequence: 2, syncedSequence: 0, dirty: true })
    expect(writer.bytes).toBe(files.contents(pathOf(1)).length)
  })

  test('each frame says what was synced when it was written', async () => {
    append(writer, record(1))
    append(writer, record(2))
    expect(replay(files).synced).toBe(0)
    await writer.sync()
    expect(writer).toMatchObject({ syncedSequence: 2, dirty: false })
    append(writer, record(3))
    expect(replay(files)).toMatchObject({ synced: 2, sequence: 3 })
  })

  test.each([
    ['short', 'HOLDFAST_DISK_FULL'],
    ['ENOSPC', 'HOLDFAST_DISK_FULL'],
    ['EIO', 'HOLDFAST_IO'],
  ] as const)('a write that fails (%s) leaves the file as it was, and the next one succeeds', (kind, code) => {
    append(writer, record(1))
    const before = files.contents(pathOf(1))
    files.failAt(0, { kind, seed: 5 })
    expect(refusal(() => append(writer, record(30)))).toMatchObject({ code, path: pathOf(1) })
    expect(files.contents(pathOf(1))).toEqual(before)
    expect(writer).toMatchObject({ sequence: 1, bytes: before.length, failed: undefined })
    append(writer, record(2))
    expect(replay(files)).toMatchObject({ records: [record(1), record(2)], tornBytes: 0 })
  })

  test('when even the cutting back fails, nothing more is written', () => {
    writer = beginJournal(files, {
      wrap: (handle) => {
        handle.truncate = () => {
          throw Object.assign(new Error('EIO: simulated'), { code: 'EIO' })
        }
        return handle
      },
    })
    append(writer, record(1))
    files.failAt(0, { kind: 'short', seed: 5 })
    expect(refusal(() => append(writer, record(30))).code).toBe('HOLDFAST_DISK_FULL')
    const before = files.contents(pathOf(1))
    expect(writer.failed).toMatchObject({ code: 'HOLDFAST_IO', path: pathOf(1) })
    expect(refusal(() => append(writer, record(2)))).toBe(writer.failed)
    expect(files.contents(pathOf(1))).toEqual(before)
    // The piece of a frame that stayed is a torn tail to whoever opens it next.
    expect(replay(files)).toMatchObject({ records: [record(1)] })
  })
})

describe('zeroing ahead', () => {
  const size = (): number => files.contents(pathOf(1)).length

  beforeEach(() => {
    writer.aheadBytes = 4000
  })

  test('frames fill the zeros, and the file keeps its length until they are used up', async () => {
    append(writer, record(1))
    const length = size()
    expect(length).toBe(writer.bytes + 4000)
    const records = [record(1)]
    while (size() === length) {
      append(writer, record(2))
      records.push(record(2))
    }
    expect(writer.bytes).toBeGreaterThan(length)
    expect(size()).toBe(writer.bytes + 4000)
    await writer.sync()
    expect(replay(afterPowerLoss())).toMatchObject({ records, tornBytes: 0, position: writer.bytes })
  })

  test('a frame too long for it makes the file longer by itself alone', () => {
    append(writer, ...Array.from({ length: 30 }, (_, n) => record(n)))
    expect(size()).toBe(writer.bytes)
  })

  test('a frame torn by power loss leaves the ones before it', () => {
    append(writer, record(1))
    const whole = writer.bytes
    append(writer, record(2))
    const bytes = files.contents(pathOf(1))
    for (let cut = whole; cut < writer.bytes; cut++) {
      // The sectors before the cut came to the device, those behind it are the zeros of before.
      const torn = Buffer.concat([bytes.subarray(0, cut), Buffer.alloc(bytes.length - cut)])
      const handle = files.open(pathOf(1), 'create')
      handle.write(torn, 0)
      handle.close()
      expect(replay(files)).toMatchObject({ records: [record(1)], position: whole })
    }
  })

  test('a failed write is cut back, zeros and all; the next one zeroes ahead again', () => {
    append(writer, record(1))
    files.failAt(0, { kind: 'short', seed: 5 })
    expect(refusal(() => append(writer, record(20))).code).toBe('HOLDFAST_DISK_FULL')
    expect(size()).toBe(writer.bytes)
    append(writer, record(2))
    expect(size()).toBe(writer.bytes + 4000)
    expect(replay(files)).toMatchObject({ records: [record(1), record(2)], tornBytes: 0 })
  })

  test.each(['short', 'ENOSPC', 'EIO'] as const)('no room for zeros (%s): the frame stands without them', (kind) => {
    files.failAt(1, { kind, seed: 5 })
    append(writer, record(1))
    expect(size()).toBe(writer.bytes)
    append(writer, record(2))
    expect(size()).toBe(writer.bytes)
    expect(writer.failed).toBeUndefined()
    expect(replay(files)).toMatchObject({ records: [record(1), record(2)], tornBytes: 0 })
  })

  test('trimming cuts the zeros off; frames may follow all the same', () => {
    append(writer, record(1))
    writer.trim()
    expect(size()).toBe(writer.bytes)
    append(writer, record(2))
    expect(size()).toBe(writer.bytes + 4000)
    expect(replay(files)).toMatchObject({ records: [record(1), record(2)], tornBytes: 0 })
  })

  test('each journal has its own', async () => {
    append(writer, record(1))
    await rotate(writer, 77, record(2))
    expect(files.contents(pathOf(2)).length).toBe(writer.bytes + 4000)
    expect(replay(files)).toMatchObject({ records: [record(1), record(2)], tornBytes: 0, number: 2 })
  })
})

describe('syncing', () => {
  test.each([false, true])('on the calling thread %s', async (onThread) => {
    append(writer, record(1))
    await writer.sync(onThread)
    expect(writer).toMatchObject({ syncedSequence: 1, dirty: false })
    expect(replay(afterPowerLoss()).records).toEqual([record(1)])
  })

  test('covers what had been appended when it was asked for, and no more', async () => {
    append(writer, record(1))
    const first = writer.sync()
    await Promise.resolve()
    append(writer, record(2))
    await first
    expect(writer).toMatchObject({ syncedSequence: 1, dirty: true })
    expect(replay(afterPowerLoss()).records).toEqual([record(1)])
    await writer.sync()
    expect(replay(afterPowerLoss()).records).toEqual([record(1), record(2)])
  })

  test('with nothing to sync asks nothing of the disk', async () => {
    append(writer, record(1))
    await writer.sync()
    const before = files.mutations
    await writer.sync()
    expect(files.mutations).toBe(before)
  })

  test('a failure is final: the pages are gone, asking again would say yes and mean nothing', async () => {
    append(writer, record(1))
    files.failAt(0, { kind: 'EIO' })
    expect(await rejection(writer.sync())).toBe('HOLDFAST_IO')
    expect(await rejection(writer.sync())).toBe('HOLDFAST_IO')
    expect(writer).toMatchObject({ syncedSequence: 0, failed: { code: 'HOLDFAST_IO', path: pathOf(1) } })
    expect(refusal(() => append(writer, record(2)))).toBe(writer.failed)
  })

  test('two at once run one after the other', async () => {
    append(writer, record(1))
    const both = [writer.sync(), writer.sync()]
    const before = files.mutations
    await Promise.all(both)
    expect(files.mutations - before).toBe(1)
  })
})

describe('rotating', () => {
  test('begins the next journal with header and first batch in its place', async () => {
    append(writer, record(1))
    await writer.sync()
    const olderBytes = writer.bytes
    await rotate(writer, 99, record(2))
    expect(writer).toMatchObject({ number: 2, sequence: 2, olderBytes })
    const header = decodeFileHeader(files.contents(pathOf(2)), JOURNAL_MAGIC)
    expect(header).toMatchObject({
      kind: 'header',
      header: { number: 2, salt: 99, firstSequence: 2, syncedSequence: 1, jobId: JOB_ID },
    })
    expect(replay(files)).toMatchObject({ records: [record(1), record(2)], number: 2, tornBytes: 0 })
  })

  test('the name of the next journal is durable before anything is in it', async () => {
    await writer.prepareNext(99)
    expect(afterPowerLoss().contents(pathOf(2))).toHaveLength(0)
  })

  test('the old journal is synced before the new one', async () => {
    append(writer, record(1))
    await rotate(writer, 99, record(2))
    // Of the two syncs the second fails.
    files.failAt(1, { kind: 'EIO' })
    expect(await rejection(writer.sync())).toBe('HOLDFAST_IO')
    expect(replay(afterPowerLoss(), { present: [1] }).records).toEqual([record(1)])
    expect(writer.syncedSequence).toBe(0)
  })

  test('one that cannot write the first batch leaves the old journal to go on', async () => {
    append(writer, record(1))
    const next = await writer.prepareNext(99)
    for (const call of [0, 1]) {
      files.failAt(call, { kind: 'ENOSPC' })
      expect(refusal(() => writer.rotate(next, batchRegion([record(2)]), 1, 0, 1)).code).toBe('HOLDFAST_DISK_FULL')
      expect(writer).toMatchObject({ number: 1, sequence: 1, olderBytes: 0, failed: undefined })
    }
    next.handle.close()
    files.unlink(pathOf(2))
    append(writer, record(2))
    expect(replay(files)).toMatchObject({ records: [record(1), record(2)], number: 1 })
  })

  test('a next journal that cannot be created or named closes what it opened', async () => {
    for (const call of [0, 1]) {
      const before = files.openHandles()
      files.failAt(call, { kind: 'EMFILE' })
      expect(await rejection(writer.prepareNext(99))).toBe('HOLDFAST_IO')
      expect(files.openHandles()).toBe(before)
      expect(writer.failed).toBeUndefined()
    }
  })
})

test('a closed journal holds no file and takes no frame', async () => {
  append(writer, record(1))
  await rotate(writer, 99, record(2))
  writer.close()
  expect(files.openHandles()).toBe(0)
  expect(refusal(() => append(writer, record(3))).code).toBe('HOLDFAST_CLOSED')
  expect(await rejection(writer.sync())).toBe('HOLDFAST_CLOSED')
  expect(replay(files).records).toEqual([record(1), record(2)])
})
