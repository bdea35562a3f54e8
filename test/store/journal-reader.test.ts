/**
 * Reading journals back: what is whole, what is a torn tail, and what is corruption. The rule under test: a bad place is
 * corruption exactly if something says that the frame there had been synced.
 */
import { beforeEach, describe, expect, test } from 'vitest'
import { batchRegion } from '../../fixtures/formats/journal-fixture.js'
import { crc32 } from '../../src/bytes/crc32.js'
import { SimFileSystem } from '../../src/env/sim-file-system.js'
import { FILE_HEADER_BYTES, FRAME_BATCH, FRAME_HEADER_BYTES, HEADER_CRC_SEED } from '../../src/store/format.js'
import { sealFrame } from '../../src/store/frame.js'
import type { JournalWriter } from '../../src/store/journal-writer.js'
import {
  altered,
  append,
  beginJournal,
  DIRECTORY,
  flipped,
  OTHER_JOB_ID,
  pathOf,
  record,
  refusal,
  replay,
  resumeJournal,
  rotate,
  SALT,
} from './support.js'

let files: SimFileSystem
let writer: JournalWriter
/** Where each frame of journal 1 ends; the first is where the header ends. */
let ends: number[]

beforeEach(() => {
  files = new SimFileSystem()
  writer = beginJournal(files)
  ends = [FILE_HEADER_BYTES]
})

function add(count: number): void {
  for (let i = 0; i < count; i++) {
    append(writer, record(ends.length))
    ends.push(writer.bytes)
  }
}

const records = (count: number) => Array.from({ length: count }, (_, i) => record(i + 1))
const cut = (length: number, path = pathOf(1)): SimFileSystem =>
  altered(files, path, (bytes) => bytes.subarray(0, length))
const behind = (extra: Uint8Array): SimFileSystem => altered(files, pathOf(1), (bytes) => Buffer.concat([bytes, extra]))
const flip = (byte: number, path = pathOf(1)): SimFileSystem =>
  altered(files, path, (bytes) => flipped(bytes, byte * 8))

describe('whole journals', () => {
  test('empty', () => {
    expect(replay(files)).toMatchObject({
      records: [],
      number: 1,
      salt: SALT,
      position: FILE_HEADER_BYTES,
      sequence: 0,
      synced: 0,
      frames: 0,
      tornBytes: 0,
      tornReason: undefined,
      dropped: [],
    })
  })

  test('many frames, of many lengths', () => {
    add(500)
    const read = replay(files)
    expect(read.records).toEqual(records(500))
    expect(read).toMatchObject({ frames: 500, sequence: 500, position: ends[500], bytes: ends[500], tornBytes: 0 })
  })

  test('frames that lie across, and exactly at, the edge of the window that is read at once', () => {
    const window = 1024 * 1024
    append(writer, { type: 'set', key: 'k', value: '00'.repeat(window - 1000) })
    const left = window - writer.bytes
    // A frame that ends exactly where the first window ends, then one that is longer than a window, then a small one.
    const overhead = FRAME_HEADER_BYTES + 32 + 1 + 2 + 2
    append(writer, { type: 'set', key: 'e', value: '01'.repeat(left - overhead) })
    expect(writer.bytes).toBe(window)
    append(writer, { type: 'set', key: 'l', value: '02'.repeat(window + 5) })
    append(writer, record(1))
    const read = replay(files)
    expect(read.frames).toBe(4)
    expect(read.records.map((one) => (one as { value: string }).value.length / 2)).toEqual([
      window - 1000,
      left - overhead,
      window + 5,
      1,
    ])
    expect(read.tornBytes).toBe(0)
  })

  test('a batch of many records, and one of none', () => {
    append(writer, ...records(100))
    append(writer)
    expect(replay(files)).toMatchObject({ records: records(100), frames: 2 })
  })

  test('reopened for append, again and again', async () => {
    for (let round = 0; round < 4; round++) {
      add(3)
      await writer.sync()
      writer.close()
      const read = replay(files)
      expect(read.records).toEqual(records(3 * (round + 1)))
      writer = resumeJournal(files, read)
    }
  })

  test('several, in the order of their numbers', async () => {
    add(3)
    await rotate(writer, 11, record(4))
    append(writer, record(5))
    await rotate(writer, 13, record(6))
    expect(replay(files)).toMatchObject({ records: records(6), number: 3, salt: 13, frames: 6, dropped: [] })
  })

  test('those in front of the first that counts are not looked at', async () => {
    add(3)
    await rotate(writer, 11, record(4))
    const damaged = flip(3)
    expect(replay(damaged, { first: 2, last: 2 })).toMatchObject({ records: [record(4)], sequence: 4, frames: 1 })
  })
})

describe('a tail that is not whole', () => {
  beforeEach(() => add(5))

  test('zeros of any length are space that was not written yet', () => {
    for (const zeros of [1, 8, 9, 10, 511, 4096]) {
      expect(replay(behind(Buffer.alloc(zeros)))).toMatchObject({
        records: records(5),
        position: ends[5],
        tornBytes: 0,
      })
    }
    // More than one window of them.
    expect(replay(behind(Buffer.alloc(2_200_000)))).toMatchObject({ position: ends[5], tornBytes: 0 })
  })

  test('content behind zeros is a torn tail, however far behind', () => {
    for (const zeros of [1, 9, 600, 1_100_000]) {
      const tail = Buffer.alloc(zeros + 1)
      tail[zeros] = 1
      expect(replay(behind(tail))).toMatchObject({ records: records(5), position: ends[5], tornBytes: zeros + 1 })
    }
  })

  test('cut at any byte: everything before the frame that is cut, and the rest counted', () => {
    for (let length = ends[4] + 1; length < ends[5]; length++) {
      const read = replay(cut(length))
      expect(read).toMatchObject({ records: records(4), position: ends[4], tornBytes: length - ends[4], sequence: 4 })
      expect(read.tornReason).toContain('cut short')
    }
  })

  test('cut exactly between two frames: nothing tells that there was more', () => {
    expect(replay(cut(ends[4]))).toMatchObject({ records: records(4), tornBytes: 0 })
  })

  test('garbage', () => {
    for (const length of [1, 8, 9, 50, 1000]) {
      const garbage = Buffer.alloc(length, 0xa7)
      expect(replay(behind(garbage))).toMatchObject({ records: records(5), position: ends[5], tornBytes: length })
    }
  })

  test('a frame of a bad type that checks out', () => {
    const region = batchRegion([record(6)])
    sealFrame(region.buffer, region.start, region.end, FRAME_BATCH + 1, SALT)
    const read = replay(behind(region.buffer.subarray(region.start, region.end)))
    expect(read).toMatchObject({ records: records(5), tornReason: 'frame of type 2 in a journal' })
  })

  test('a frame too short for a batch that checks out', () => {
    const region = { buffer: Buffer.alloc(20), start: 0, end: 20 }
    sealFrame(region.buffer, 0, 20, FRAME_BATCH, SALT)
    expect(replay(behind(region.buffer))).toMatchObject({ records: records(5), tornReason: 'batch header cut short' })
  })

  test('old contents of our own file behind the end: their sequence has passed', () => {
    const old = files.contents(pathOf(1)).subarray(ends[1], ends[3])
    const read = replay(behind(old))
    expect(read).toMatchObject({ records: records(5), position: ends[5], tornBytes: old.length })
    expect(read.tornReason).toBe('sequence 2, expected 6')
  })

  test('frames of another file behind the end: their salt is not ours', () => {
    const elsewhere = new SimFileSystem()
    const other = beginJournal(elsewhere, { salt: SALT + 2, first: 6, synced: 5 })
    append(other, record(6))
    append(other, record(7))
    const foreign = elsewhere.contents(pathOf(1)).subarray(FILE_HEADER_BYTES)
    expect(replay(behind(foreign))).toMatchObject({ records: records(5), tornReason: 'frame checksum mismatch' })
  })

  test('a gap in the sequence', () => {
    const read = replay(
      altered(files, pathOf(1), (bytes) => Buffer.concat([bytes.subarray(0, ends[3]), bytes.subarray(ends[4])])),
    )
    expect(read).toMatchObject({ records: records(3), position: ends[3], tornReason: 'sequence 5, expected 4' })
  })

  test('a bad checksum or length in the last frame', () => {
    for (const byte of [0, 1, 3, 4, 8, 9, 30]) {
      expect(replay(flip(ends[4] + byte))).toMatchObject({ records: records(4), position: ends[4], sequence: 4 })
    }
  })

  test('a bad frame in the middle, when nothing had been synced, ends the journal there', () => {
    expect(replay(flip(ends[2] + 20))).toMatchObject({ records: records(2), tornBytes: ends[5] - ends[2] })
  })
})

describe('what had been synced', () => {
  /** Frames 1 to 3 are synced; frame 4 says so. */
  beforeEach(async () => {
    add(3)
    await writer.sync()
    add(2)
  })

  test('a bad frame that a later one says had been synced is corruption, wherever it is bad', () => {
    for (let byte = FILE_HEADER_BYTES; byte < ends[3]; byte++) {
      const error = refusal(() => replay(flip(byte)))
      const frame = ends.findLastIndex((end) => end <= byte)
      expect(error).toMatchObject({ code: 'HOLDFAST_CORRUPT', path: pathOf(1), offset: ends[frame] })
      expect(error.message).toContain('says that sequence 3 was synced')
    }
  })

  test('a bad frame above that is a torn tail', () => {
    for (let byte = ends[3]; byte < ends[5]; byte++) {
      const frame = ends.findLastIndex((end) => end <= byte)
      expect(replay(flip(byte))).toMatchObject({ records: records(frame), tornBytes: ends[5] - ends[frame] })
    }
  })

  test('a damaged length does not hide the frame that says so', () => {
    for (const length of [0, 1, 0xffff, 0x7fffffff, 0xffffffff]) {
      const damaged = altered(files, pathOf(1), (bytes) => {
        bytes.writeUInt32LE(length, ends[1])
        return bytes
      })
      expect(refusal(() => replay(damaged))).toMatchObject({ code: 'HOLDFAST_CORRUPT', offset: ends[1] })
    }
  })

  test('zeros in the place of a synced frame are corruption, not the end', () => {
    const damaged = altered(files, pathOf(1), (bytes) => bytes.fill(0, ends[1], ends[2]))
    expect(refusal(() => replay(damaged))).toMatchObject({ code: 'HOLDFAST_CORRUPT', offset: ends[1] })
  })

  test('a synced frame left out is corruption', () => {
    const damaged = altered(files, pathOf(1), (bytes) =>
      Buffer.concat([bytes.subarray(0, ends[1]), bytes.subarray(ends[2])]),
    )
    expect(refusal(() => replay(damaged)).message).toContain('sequence 3, expected 2')
  })

  test('content that checks out and cannot be read is corruption: no crash does that', () => {
    const region = batchRegion([record(6)])
    region.buffer[region.start + FRAME_HEADER_BYTES + 32] = 99
    writer.append(region, 1, 0, 1)
    const error = refusal(() => replay(files))
    expect(error).toMatchObject({ code: 'HOLDFAST_CORRUPT', path: pathOf(1), offset: ends[5] })
    expect(error.message).toContain('unknown record type 99')
  })

  test('what the manifest says was reached must be there, also when the journal ends at the edge of a frame', () => {
    expect(replay(cut(ends[3]), { sequence: 3 })).toMatchObject({ sequence: 3 })
    const short = refusal(() => replay(cut(ends[3]), { sequence: 4 }))
    expect(short).toMatchObject({ code: 'HOLDFAST_CORRUPT', path: pathOf(1), offset: ends[3] })
    expect(short.message).toContain('ends at sequence 3, active.json says 4')
    const torn = refusal(() => replay(cut(ends[4] - 1), { sequence: 4 }))
    expect(torn).toMatchObject({ code: 'HOLDFAST_CORRUPT', offset: ends[3] })
    expect(torn.message).toContain('active.json says that sequence 4 was reached')
  })
})

describe('several journals', () => {
  let last: number

  /** Journal 1 has frames 1 to 3, all synced; journal 2 has 4 and 5; journal 3 has 6 and says that 5 was synced. */
  beforeEach(async () => {
    add(3)
    await writer.sync()
    await rotate(writer, 11, record(4))
    append(writer, record(5))
    await writer.sync()
    await rotate(writer, 13, record(6))
    last = writer.bytes
  })

  test('one that must be there is missing', () => {
    for (const number of [1, 2]) {
      const gone = altered(files, pathOf(number), () => undefined)
      const error = refusal(() => replay(gone, { first: 1, last: 2 }))
      expect(error).toMatchObject({ code: 'HOLDFAST_CORRUPT', path: pathOf(number) })
      expect(error.message).toContain('missing')
    }
  })

  test('one is missing that only the next one tells of', () => {
    const gone = altered(files, pathOf(2), () => undefined)
    expect(refusal(() => replay(gone))).toMatchObject({ code: 'HOLDFAST_CORRUPT', path: pathOf(3), offset: 0 })
  })

  test('the last one is gone: nothing tells of it unless the manifest does', () => {
    const gone = altered(files, pathOf(3), () => undefined)
    expect(replay(gone)).toMatchObject({ records: records(5), number: 2 })
    expect(refusal(() => replay(gone, { last: 3 }))).toMatchObject({ code: 'HOLDFAST_CORRUPT', path: pathOf(3) })
    expect(refusal(() => replay(gone, { sequence: 6 }))).toMatchObject({ code: 'HOLDFAST_CORRUPT', path: pathOf(2) })
  })

  test('one in the middle is shortened, inside a frame or at its edge', () => {
    const length = files.contents(pathOf(2)).length
    for (let cutAt = 0; cutAt < length; cutAt++) {
      const error = refusal(() => replay(cut(cutAt, pathOf(2))))
      expect(error.code).toBe('HOLDFAST_CORRUPT')
    }
  })

  test('the last one is shortened: the torn part is counted, the part before it stays', () => {
    for (let cutAt = FILE_HEADER_BYTES; cutAt < last; cutAt++) {
      const torn = cutAt - FILE_HEADER_BYTES
      expect(replay(cut(cutAt, pathOf(3)))).toMatchObject({ records: records(5), number: 3, tornBytes: torn })
    }
  })

  test('the last one has no whole header yet: it is dropped', () => {
    for (let cutAt = 0; cutAt < FILE_HEADER_BYTES; cutAt++) {
      const read = replay(cut(cutAt, pathOf(3)))
      expect(read).toMatchObject({ records: records(5), number: 2, tornBytes: cutAt, dropped: [3] })
    }
    const zeros = altered(files, pathOf(3), (bytes) => Buffer.alloc(bytes.length))
    expect(replay(zeros)).toMatchObject({ records: records(5), number: 2, tornBytes: last, dropped: [3] })
  })

  test('a torn journal ends the story: those behind it are dropped, unless they say that it was synced', async () => {
    const fresh = new SimFileSystem()
    writer = beginJournal(fresh)
    append(writer, record(1))
    append(writer, record(2))
    await rotate(writer, 11, record(3))
    const torn = altered(fresh, pathOf(1), (bytes) => bytes.subarray(0, bytes.length - 1))
    const size = fresh.contents(pathOf(2)).length
    const read = replay(torn)
    expect(read).toMatchObject({ records: [record(1)], number: 1, dropped: [2] })
    expect(read.tornBytes).toBe(torn.contents(pathOf(1)).length - read.position + size)
    await writer.sync()
    append(writer, record(4))
    const proven = altered(fresh, pathOf(1), (bytes) => bytes.subarray(0, bytes.length - 1))
    expect(refusal(() => replay(proven)).message).toContain('says that sequence 3 was synced')
  })

  test('the header of the next one is witness enough, when its first batch is torn', () => {
    // Header and part of the batch: no frame of journal 2 is left to say that 3 was synced.
    for (const length of [FILE_HEADER_BYTES, FILE_HEADER_BYTES + 20]) {
      const torn = altered(cut(length, pathOf(2)), pathOf(3), () => undefined)
      expect(replay(torn)).toMatchObject({ records: records(3), number: 2 })
      const damaged = altered(torn, pathOf(1), (bytes) => flipped(bytes, (ends[1] + 12) * 8))
      const error = refusal(() => replay(damaged))
      expect(error).toMatchObject({ code: 'HOLDFAST_CORRUPT', path: pathOf(1), offset: ends[1] })
      expect(error.message).toContain('says that sequence 3 was synced')
    }
  })

  test('under another name', () => {
    const renamed = altered(files, pathOf(3), () => undefined)
    renamed.setContents(pathOf(4), files.contents(pathOf(3)))
    const read = replay(renamed)
    expect(read).toMatchObject({ records: records(5), dropped: [4], tornReason: 'is journal 3 under another name' })
  })
})

describe('headers', () => {
  test('the first journal has no good header', () => {
    add(2)
    for (let byte = 0; byte < FILE_HEADER_BYTES; byte++) {
      expect(refusal(() => replay(flip(byte)))).toMatchObject({ code: 'HOLDFAST_CORRUPT', path: pathOf(1), offset: 0 })
    }
    for (let length = 0; length < FILE_HEADER_BYTES; length++) {
      expect(refusal(() => replay(cut(length)))).toMatchObject({ code: 'HOLDFAST_CORRUPT', path: pathOf(1) })
    }
  })

  test('of another job', () => {
    add(2)
    const error = refusal(() => replay(files, { jobId: OTHER_JOB_ID }))
    expect(error).toMatchObject({ code: 'HOLDFAST_CORRUPT', path: pathOf(1) })
    expect(error.message).toContain('belongs to another job')
  })

  test('of a newer format, also when its header is longer: nothing is called damaged', () => {
    add(2)
    for (const headerBytes of [64, 128]) {
      const newer = altered(files, pathOf(1), (bytes) => {
        bytes.writeUInt32LE(2, 8)
        bytes.writeUInt32LE(headerBytes, 12)
        bytes.writeUInt32LE(crc32(bytes.subarray(0, headerBytes - 4), HEADER_CRC_SEED), headerBytes - 4)
        return bytes
      })
      const error = refusal(() => replay(newer))
      expect(error).toMatchObject({ code: 'HOLDFAST_UNSUPPORTED_FORMAT', path: pathOf(1) })
    }
  })

  test('no journal at all', () => {
    const error = refusal(() => replay(files, { first: 2, last: 1, present: [] }))
    expect(error).toMatchObject({ code: 'HOLDFAST_CORRUPT', path: DIRECTORY })
  })
})
