/** Sealed segments: what is written comes back by ordinal, and every byte of the file is under a checksum that is looked at. */
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { decodeSegment, encodeSegment, type SegmentLaneMeaning } from '../../fixtures/formats/segment-fixture.js'
import { crc32 } from '../../src/bytes/crc32.js'
import { SimFileSystem } from '../../src/env/sim-file-system.js'
import { errorCode } from '../../src/errors.js'
import { BLOCK_CACHE_COUNT, SEGMENT_BLOCK_BYTES } from '../../src/limits.js'
import { ConsumedSet, type SegmentInfo } from '../../src/store/bucket-info.js'
import { FileCache } from '../../src/store/file-cache.js'
import { HEADER_CRC_SEED } from '../../src/store/format.js'
import { BlockCache, openSegment, Segment } from '../../src/store/segment.js'
import { SegmentWriter } from '../../src/store/segment-writer.js'
import { altered, flipped, JOB_ID, OTHER_JOB_ID, refusal, SALT } from './support.js'

const PATH = '/q00000'

interface Row {
  readonly lane: string
  readonly id: number
  readonly bytes: Buffer
}

/** Writes rows that stand in the order of their lanes; the job record is any bytes here. */
async function write(
  rows: readonly Row[],
  files = new SimFileSystem(),
): Promise<{ files: SimFileSystem; info: SegmentInfo }> {
  const writer = new SegmentWriter(files, PATH, JOB_ID, 5, SALT)
  for (const [i, { lane, id, bytes }] of rows.entries()) {
    if (i === 0 || rows[i - 1].lane !== lane) writer.beginLane(lane)
    writer.add({ attempt: i, failures: 1, due: 0, reason: `r${i}` }, id, 1000 - i, bytes, 0, bytes.length)
  }
  const { bytes, footerCrc } = await writer.finish(false)
  const records = rows.length
  return { files, info: { file: 'q00000', id: 5, records, bytes, footerCrc, live: records, consumed: '' } }
}

function open(files: SimFileSystem, info: SegmentInfo, jobId = JOB_ID): Segment {
  return openSegment(PATH, info, jobId, new FileCache(files, 4), new BlockCache())
}

const rows = (count: number, size: number, lanes = 1): Row[] =>
  Array.from({ length: count }, (_, i) => ({
    lane: `lane ${Math.floor((i * lanes) / count)}`,
    id: i + 1,
    bytes: Buffer.alloc(size, i),
  }))

/** Reads everything; throws what the first bad place throws. */
function readAll(segment: Segment): Buffer[] {
  return Array.from({ length: segment.index.records }, (_, ordinal) => {
    const { buffer, start, end } = segment.read(ordinal)
    return Buffer.from(buffer.subarray(start, end))
  })
}

describe('what is written', () => {
  test('comes back by ordinal, in any order', async () => {
    const content = rows(300, 200, 7)
    const { files, info } = await write(content)
    const segment = open(files, info)
    expect(segment.index.blockFirsts.length - 1).toBeGreaterThan(3)
    for (const ordinal of [299, 0, 150, 149, 151, 1, 298]) {
      const read = segment.read(ordinal)
      expect(Buffer.from(read.buffer.subarray(read.start, read.end))).toEqual(content[ordinal].bytes)
      expect(read).toMatchObject({ attempt: ordinal, failures: 1, due: 0, reason: `r${ordinal}` })
    }
    expect(readAll(segment)).toEqual(content.map((row) => row.bytes))
  })

  test('is told by the index: lanes, ranges of ids, the oldest', async () => {
    const { files, info } = await write([
      { lane: 'b', id: 7, bytes: Buffer.from('x') },
      { lane: 'b', id: 9, bytes: Buffer.from('y') },
      { lane: 'a', id: 8, bytes: Buffer.from('z') },
    ])
    const segment = open(files, info)
    const { index } = segment
    const lanes = segment.lanes()
    segment.dropLanes()
    expect(segment.lanes()).toEqual(lanes)
    expect(lanes).toEqual([
      { name: 'b', first: 0, count: 2, lowestId: 7, highestId: 9 },
      { name: 'a', first: 2, count: 1, lowestId: 8, highestId: 8 },
    ])
    expect(index).toMatchObject({ records: 3, oldestAddedAt: 998, blockFirsts: [0, 3] })
  })

  test('any lanes and jobs come back as they were', async () => {
    const slot = fc.string({ unit: 'grapheme', maxLength: 12 })
    const record = fc.record({
      attempt: fc.maxSafeNat(),
      failures: fc.nat(300),
      due: fc.maxSafeNat(),
      reason: fc.string({ unit: 'grapheme', maxLength: 12 }),
      filler: fc.nat(6000),
    })
    const lanes = fc.array(fc.tuple(slot, fc.array(record, { minLength: 1, maxLength: 6 })), { maxLength: 5 })
    await fc.assert(
      fc.asyncProperty(lanes, async (chosen) => {
        let id = 0
        const content: SegmentLaneMeaning[] = chosen.map(([name, records]) => ({
          name,
          records: records.map(({ filler, ...state }) => ({
            ...state,
            job: {
              flags: 0,
              id: ++id,
              priority: 0,
              addedAt: 5,
              slot: name,
              request: { url: 'x:y', method: 'GET', body: Buffer.alloc(filler).toString('hex') },
            },
          })),
        }))
        const bytes = await encodeSegment({ jobId: JOB_ID.toString('hex'), id: 1, salt: SALT, lanes: content })
        expect(decodeSegment(bytes).lanes).toEqual(content)
      }),
      { numRuns: 50 },
    )
  })

  test('blocks are cut behind the record that passes their size', async () => {
    // Each record is 16 bytes longer than its content here: lengths, state and reason.
    for (const size of [
      SEGMENT_BLOCK_BYTES - 100,
      SEGMENT_BLOCK_BYTES - 20,
      SEGMENT_BLOCK_BYTES,
      3 * SEGMENT_BLOCK_BYTES,
    ]) {
      const { files, info } = await write(rows(3, size))
      const segment = open(files, info)
      const expected = size >= SEGMENT_BLOCK_BYTES - 20 ? [0, 1, 2, 3] : [0, 2, 3]
      expect(segment.index.blockFirsts, `${size}`).toEqual(expected)
      expect(readAll(segment)).toEqual(rows(3, size).map((row) => row.bytes))
    }
  })

  test('an empty segment', async () => {
    const { files, info } = await write([])
    const segment = open(files, info)
    expect(segment.index).toMatchObject({ records: 0, blockFirsts: [0], oldestAddedAt: 0 })
    expect(segment.lanes()).toEqual([])
  })

  test('a lane that got nothing is not written', async () => {
    const files = new SimFileSystem()
    const writer = new SegmentWriter(files, PATH, JOB_ID, 5, SALT)
    writer.beginLane('empty')
    writer.beginLane('full')
    writer.add({ attempt: 0, failures: 0, due: 0, reason: '' }, 1, 1, Buffer.from('x'), 0, 1)
    expect((await writer.finish(true)).lanes?.map((lane) => lane.name)).toEqual(['full'])
  })

  test('ids must rise inside a lane, and may fall from lane to lane', async () => {
    const row = (lane: string, id: number): Row => ({ lane, id, bytes: Buffer.from('x') })
    await expect(write([row('a', 2), row('a', 2)])).rejects.toThrow('ids rise')
    await expect(write([row('a', 2), row('b', 1)])).resolves.toBeDefined()
  })

  test('is synced when finish returns; the handle is closed, also of one that is abandoned', async () => {
    const { files, info } = await write(rows(3, 10))
    await files.syncDirectory('/')
    expect(files.openHandles()).toBe(0)
    const after = files.crash({ seed: 1, unsynced: 'lost' })
    expect(readAll(open(after, info))).toHaveLength(3)
    new SegmentWriter(files, '/q00001', JOB_ID, 6, SALT).abandon()
    expect(files.openHandles()).toBe(0)
  })

  test.each(['ENOSPC', 'EIO', 'short'] as const)(
    'each call of writing that fails with %s is told, naming the file',
    async (kind) => {
      let call = 0
      for (; ; call++) {
        const files = new SimFileSystem()
        files.failAt(call, { kind, seed: 1 })
        const error = await write(rows(40, 1000), files).then(
          () => undefined,
          (reason) => reason,
        )
        if (!files.hit) break
        expect(error).toMatchObject({ path: PATH })
        expect(errorCode(error)).toMatch(kind === 'EIO' ? /IO$/ : /DISK_FULL$|IO$/)
      }
      // Create, header, three blocks, footer, trailer, sync.
      expect(call).toBe(8)
    },
  )
})

describe('damage', () => {
  test('every flipped bit is found by the opening or by reading the records', async () => {
    const { files, info } = await write(rows(6, 20, 2))
    const size = files.contents(PATH).length
    for (let bit = 0; bit < size * 8; bit++) {
      const damaged = altered(files, PATH, (bytes) => flipped(bytes, bit))
      expect(
        refusal(() => readAll(open(damaged, info))),
        `bit ${bit}`,
      ).toMatchObject({
        code: 'HOLDFAST_CORRUPT',
        path: PATH,
      })
    }
  })

  test('every other length is found by the opening', async () => {
    const { files, info } = await write(rows(6, 20, 2))
    const size = files.contents(PATH).length
    for (let length = 0; length <= size + 20; length++) {
      if (length === size) continue
      const damaged = altered(files, PATH, (bytes) => Buffer.concat([bytes, Buffer.alloc(20)]).subarray(0, length))
      expect(refusal(() => open(damaged, info))).toMatchObject({ code: 'HOLDFAST_CORRUPT', path: PATH })
    }
  })

  test('a missing file, one of another job, another id, another copy of the same segment', async () => {
    const { files, info } = await write(rows(3, 20))
    expect(
      refusal(() =>
        open(
          altered(files, PATH, () => undefined),
          info,
        ),
      ).message,
    ).toContain('missing')
    expect(refusal(() => open(files, info, OTHER_JOB_ID)).message).toContain('belongs to another job')
    expect(refusal(() => open(files, { ...info, id: 6 })).message).toContain('is segment 5, expected 6')
    expect(refusal(() => open(files, { ...info, footerCrc: 1 })).message).toContain('another version')
    expect(refusal(() => open(files, { ...info, records: 4, live: 4 })).message).toContain(
      '3 records, info.json says 4',
    )
    expect(refusal(() => open(files, { ...info, live: 2 })).message).toContain('3 records are live, info.json says 2')
  })

  test('a newer format is told as such, and only when its header checks out', async () => {
    const { files, info } = await write(rows(3, 20))
    const newer = (checksum: boolean) =>
      altered(files, PATH, (bytes) => {
        bytes.writeUInt32LE(2, 8)
        if (checksum) bytes.writeUInt32LE(crc32(bytes.subarray(0, 60), HEADER_CRC_SEED), 60)
        return bytes
      })
    expect(refusal(() => open(newer(true), info))).toMatchObject({ code: 'HOLDFAST_UNSUPPORTED_FORMAT', path: PATH })
    expect(refusal(() => open(newer(false), info))).toMatchObject({ code: 'HOLDFAST_CORRUPT', path: PATH })
  })

  test('blocks that were swapped: each checks out and is not the one expected', async () => {
    const { files, info } = await write(rows(2, SEGMENT_BLOCK_BYTES))
    const [first, second, end] = open(files, info).index.blockOffsets
    expect(second - first).toBe(end - second)
    const swapped = altered(files, PATH, (bytes) =>
      Buffer.concat([
        bytes.subarray(0, first),
        bytes.subarray(second, end),
        bytes.subarray(first, second),
        bytes.subarray(end),
      ]),
    )
    const error = refusal(() => open(swapped, info).read(0))
    expect(error).toMatchObject({ code: 'HOLDFAST_CORRUPT', path: PATH, offset: first })
    expect(error.message).toContain('block of records 1+1, expected 0+1')
  })

  test('an I/O error is not damage', async () => {
    const { files, info } = await write(rows(3, 20))
    const segment = open(files, info)
    files.failReads('q00000')
    expect(refusal(() => segment.read(0))).toMatchObject({ code: 'HOLDFAST_IO', path: PATH })
    expect(refusal(() => open(files, info)).code).toBe('HOLDFAST_IO')
    files.clearFaults()
    expect(readAll(segment)).toHaveLength(3)
  })

  test('a full check finds a bad block that nobody reads, and passes over what is consumed', async () => {
    const { files, info } = await write(rows(4, SEGMENT_BLOCK_BYTES))
    const seen: number[] = []
    const segment = open(files, info)
    segment.consume(1)
    segment.checkBlocks((_record, ordinal) => seen.push(ordinal))
    expect(seen).toEqual([0, 2, 3])
    const offset = segment.index.blockOffsets[3] + 100
    const damaged = altered(files, PATH, (bytes) => flipped(bytes, offset * 8))
    expect(refusal(() => open(damaged, info).checkBlocks(() => {})).offset).toBe(segment.index.blockOffsets[3])
  })
})

describe('marks', () => {
  test('consuming is counted once and makes the segment dirty', async () => {
    const { files, info } = await write(rows(3, 20))
    const segment = open(files, info)
    expect(segment).toMatchObject({ live: 3, dirty: false })
    segment.consume(1)
    segment.consume(1)
    expect(segment).toMatchObject({ live: 2, dirty: true })
    const told = segment.info(segment.consumed)
    expect(told).toEqual({ ...info, live: 2, consumed: Buffer.from([1, 1]).toString('base64') })
    expect(open(files, told).consumed.has(1)).toBe(true)
  })

  test('an index is there only of what is sealed', () => {
    const handles = new FileCache(new SimFileSystem(), 1)
    const fields = { path: PATH, file: 'q00000', id: 1, consumed: new ConsumedSet(1), salt: 1 }
    const segment = new Segment({ ...fields, handles, cache: new BlockCache() })
    expect(() => segment.index).toThrow('sealed')
  })
})

describe('caches', () => {
  test('of blocks: bounded, the least recently used dropped first', () => {
    const cache = new BlockCache()
    const block = { buffer: Buffer.alloc(0), first: 0, starts: new Uint32Array(0), ends: new Uint32Array(0) }
    for (let i = 0; i < BLOCK_CACHE_COUNT; i++) cache.put(`${i}`, block)
    expect(cache.get('0')).toBe(block)
    cache.put('new', block)
    expect(cache.get('1')).toBeUndefined()
    expect(cache.get('0')).toBe(block)
    expect(cache.get('new')).toBe(block)
  })

  test('of files: at most so many open, the least recently used closed first', () => {
    const files = new SimFileSystem()
    for (const name of ['/a', '/b', '/c']) files.setContents(name, Buffer.from(name))
    const cache = new FileCache(files, 2)
    const a = cache.get('/a')
    const b = cache.get('/b')
    expect(cache.get('/a')).toBe(a)
    cache.get('/c')
    expect(files.openHandles()).toBe(2)
    expect(a.size()).toBe(2)
    expect(() => b.size()).toThrow()
    cache.drop('/a')
    cache.drop('/a')
    expect(files.openHandles()).toBe(1)
    cache.close()
    expect(files.openHandles()).toBe(0)
    expect(refusal(() => cache.get('/gone'))).toMatchObject({ code: 'HOLDFAST_CORRUPT', path: '/gone' })
  })
})
