/**
 * Every decoder, fed bytes that are not what it expects: anything at all, and valid input with a few bytes changed, cut or
 * put in. What comes out is a value, a DecodeError or a HoldfastError; nothing else, not ever, and no claimed length
 * decides how much memory is touched. A failing run prints its seed; `{ seed, path }` in `RUN` reproduces it.
 */
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { encodeJournal, JOURNAL, readRecords } from '../../fixtures/formats/journal-fixture.js'
import { ACTIVE, INFO } from '../../fixtures/formats/json-fixtures.js'
import { decodeSegment, encodeSegment, SEGMENT_DELAYED } from '../../fixtures/formats/segment-fixture.js'
import { ByteReader, DecodeError } from '../../src/bytes/byte-reader.js'
import { ByteWriter } from '../../src/bytes/byte-writer.js'
import { SimFileSystem } from '../../src/env/sim-file-system.js'
import { HoldfastError } from '../../src/errors.js'
import { readRequest, writeRequest } from '../../src/frontier/request-codec.js'
import { ConsumedSet, readBucketInfo } from '../../src/store/bucket-info.js'
import { jobPaths } from '../../src/store/file-names.js'
import {
  BATCH_HEADER_BYTES,
  decodeFileHeader,
  encodeFileHeader,
  FRAME_HEADER_BYTES,
  JOURNAL_MAGIC,
} from '../../src/store/format.js'
import { readFrame } from '../../src/store/frame.js'
import { emptyJobHeader, readJobHeader, writeJobHeader } from '../../src/store/job-record.js'
import { decodeJson, encodeJson } from '../../src/store/json-file.js'
import { readManifest } from '../../src/store/manifest.js'
import { type RecordVisitor, readBatchHeader, visitBatch } from '../../src/store/records.js'
import { readSegmentIndex, type SegmentIndex, writeLane, writeSegmentIndex } from '../../src/store/segment-index.js'
import { JOB_ID, SALT } from '../store/support.js'

function writeWhole(writer: ByteWriter, index: SegmentIndex): void {
  const lanes = new ByteWriter(16)
  for (const lane of index.lanes) writeLane(lanes, lane)
  writeSegmentIndex(writer, index, { count: index.lanes.length, bytes: lanes })
}

const RUN: fc.Parameters<unknown> = { numRuns: 3000 }
/** What one decoding may add to memory outside the heap, and to the heap: far below what a claimed length could ask for. */
const MEMORY_BYTES_MAX = 64 * 1024 * 1024

function bytesOf(write: (writer: ByteWriter) => void): Buffer {
  const writer = new ByteWriter(64)
  write(writer)
  return Buffer.from(writer.buffer.subarray(writer.start, writer.position))
}

/** Valid input, damaged in up to four places. */
function damaged(valid: readonly Buffer[]): fc.Arbitrary<Buffer> {
  const place = fc.tuple(
    fc.constantFrom('flip', 'set', 'cut', 'insert', 'repeat'),
    fc.nat(),
    fc.oneof(fc.constantFrom(0, 1, 0x7f, 0x80, 0xff), fc.nat(255)),
  )
  return fc.tuple(fc.constantFrom(...valid), fc.array(place, { maxLength: 4 })).map(([bytes, places]) => {
    let out = Buffer.from(bytes)
    for (const [what, where, byte] of places) {
      const at = out.length === 0 ? 0 : where % out.length
      const before = out.subarray(0, at)
      if (what === 'cut') out = Buffer.from(before)
      else if (what === 'insert') out = Buffer.concat([before, Buffer.alloc(1 + (byte % 9), byte), out.subarray(at)])
      else if (what === 'repeat') out = Buffer.concat([out, out.subarray(at)])
      else if (out.length > 0) out[at] = what === 'set' ? byte : out[at] ^ (1 << (byte & 7))
    }
    return out
  })
}

const anyBytes = fc.uint8Array({ maxLength: 200 }).map((some) => Buffer.from(some))

/** The codec of payloads is not ours: what it throws is passed on, and whoever asks for a payload expects that. */
const fromCodec = (error: unknown): boolean => error instanceof Error && /[\\/]cbor-x[\\/]/.test(error.stack ?? '')
const isAllowed = (error: unknown): boolean => error instanceof DecodeError || error instanceof HoldfastError

/** Runs a decoder over any bytes and over damaged valid ones. */
function holds(valid: readonly Buffer[], decode: (bytes: Buffer) => unknown, allowed = isAllowed): void {
  // The valid input itself must pass: otherwise only the refusals would be tested.
  for (const bytes of valid) decode(bytes)
  fc.assert(
    fc.property(fc.oneof(anyBytes, damaged(valid)), (bytes) => {
      const before = process.memoryUsage()
      try {
        decode(bytes)
      } catch (error) {
        if (!allowed(error)) throw error
      }
      const after = process.memoryUsage()
      expect(after.arrayBuffers - before.arrayBuffers).toBeLessThan(MEMORY_BYTES_MAX)
      expect(after.heapUsed - before.heapUsed).toBeLessThan(MEMORY_BYTES_MAX)
    }),
    RUN,
  )
}

const journal = await encodeJournal({ ...JOURNAL, salt: SALT })
const segment = await encodeSegment(SEGMENT_DELAYED)

/** Each batch of the golden journal, without its frame header. */
const batches: Buffer[] = []
for (let at = 64; at < journal.length; ) {
  const frame = readFrame(journal, at, SALT)
  if (frame.kind !== 'frame') throw new Error(frame.kind)
  batches.push(Buffer.from(journal.subarray(frame.start, frame.end)))
  at = frame.end
}

describe('frames and headers', () => {
  test('readFrame', () => {
    holds([journal.subarray(64, 700), Buffer.alloc(40)], (bytes) => {
      for (let at = 0; at <= bytes.length; at++) {
        const read = readFrame(bytes, at, SALT)
        if (read.kind !== 'frame') continue
        expect(read.start).toBe(at + FRAME_HEADER_BYTES)
        expect(read.end).toBeLessThanOrEqual(bytes.length)
        expect(read.end).toBeGreaterThanOrEqual(read.start)
      }
    })
  })

  test('decodeFileHeader', () => {
    const header = encodeFileHeader({
      magic: JOURNAL_MAGIC,
      jobId: JOB_ID,
      number: 1,
      salt: SALT,
      firstSequence: 5,
      syncedSequence: 4,
    })
    holds([header], (bytes) => decodeFileHeader(bytes, JOURNAL_MAGIC))
  })
})

describe('batches', () => {
  test('readBatchHeader', () => {
    holds(batches, (bytes) => readBatchHeader(bytes, 0, bytes.length))
  })

  /** Takes everything and looks at nothing. */
  const silent = new Proxy({}, { get: () => () => {} }) as RecordVisitor

  test('visitBatch', () => {
    holds(batches, (bytes) => visitBatch(bytes, 0, bytes.length, silent))
  })

  test('visitBatch, with the jobs and requests in it', () => {
    const decode = (bytes: Buffer): unknown => readRecords(bytes, 0, bytes.length)
    holds(batches, decode, (error) => isAllowed(error) || fromCodec(error))
  })

  test('visitBatch, past a header that claims any number of records', () => {
    const records = batches.map((batch) => batch.subarray(BATCH_HEADER_BYTES))
    holds([...records], (bytes) => {
      const head = Buffer.alloc(BATCH_HEADER_BYTES)
      head.writeUInt32LE(0xffffffff, 28)
      const whole = Buffer.concat([head, bytes])
      expect(() => visitBatch(whole, 0, whole.length, silent)).toThrow(DecodeError)
    })
  })
})

describe('segments', () => {
  const index = decodeIndex(segment)
  const footerOffset = index.blockOffsets[index.blockOffsets.length - 1]

  function decodeIndex(bytes: Buffer) {
    const offset = Number(bytes.readBigUInt64LE(bytes.length - 16))
    return readSegmentIndex(bytes, offset + FRAME_HEADER_BYTES, bytes.length - 16, offset)
  }

  test('readSegmentIndex', () => {
    const many = {
      records: 1000,
      oldestAddedAt: 0,
      lanes: Array.from({ length: 20 }, (_, i) => ({
        name: `${i}`,
        first: i * 50,
        count: 50,
        lowestId: i,
        highestId: i + 999,
      })),
      blockOffsets: [64, 100, 5000, footerOffset + 9000],
      blockFirsts: [0, 10, 500, 1000],
    }
    holds([bytesOf((w) => writeWhole(w, index)), bytesOf((w) => writeWhole(w, many))], (bytes) => {
      const read = readSegmentIndex(bytes, 0, bytes.length, footerOffset + 9000)
      // What it lets through adds up.
      expect(read.lanes.reduce((sum, lane) => sum + lane.count, 0)).toBe(read.records)
      expect(read.blockFirsts[read.blockFirsts.length - 1]).toBe(read.records)
      expect(read.blockOffsets).toHaveLength(read.blockFirsts.length)
    })
  })

  test('a whole segment', () => {
    holds([segment], (bytes) => {
      // Only what the fixture's own reader takes from the end of the file without asking.
      if (bytes.length < 100 || bytes.readBigUInt64LE(bytes.length - 16) > bytes.length - 30) return
      decodeSegment(bytes)
    })
  })
})

describe('jobs', () => {
  test('readJobHeader', () => {
    const valid = [undefined, new Uint8Array(16).fill(3)].map((fingerprint) =>
      bytesOf((w) => writeJobHeader(w, 1, 300, -5, 2 ** 40, 'bücher.example', fingerprint)),
    )
    holds(valid, (bytes) => {
      const header = readJobHeader(bytes, 0, bytes.length, emptyJobHeader())
      expect(header.payloadAt).toBeLessThanOrEqual(bytes.length)
    })
  })

  const requests = [
    { url: 'https://example.com/', method: 'GET' },
    { url: 'https://example.com/', method: 'POST', body: new Uint8Array(20) },
    { url: 'x:y', method: 'GET', headers: { a: 'b' }, meta: { list: [1, 'two', { three: 3n }], date: new Date(0) } },
    { url: 'x:y', method: 'PUT', body: new Uint8Array(1), meta: { map: new Map([[1, 2]]), set: new Set(['x']) } },
  ].map((parts) => bytesOf((w) => writeRequest(w, { body: undefined, headers: undefined, meta: undefined, ...parts })))

  test('readRequest', () => {
    holds(
      requests,
      (bytes) => readRequest(bytes, 0, bytes.length),
      (error) => isAllowed(error) || fromCodec(error),
    )
  })

  test('readRequest, whatever the open part is', () => {
    const head = bytesOf((w) => {
      w.u8(4)
      w.string('x:y')
    })
    // Behind shape, URL, and of the second method and body.
    const open = [requests[2].subarray(5), requests[3].subarray(11)]
    const decode = (bytes: Buffer): unknown => {
      const whole = Buffer.concat([head, bytes])
      return readRequest(whole, 0, whole.length)
    }
    holds(open, decode, (error) => isAllowed(error) || fromCodec(error))
    // Nothing of a message that could not be read stays in the codec.
    expect(readRequest(requests[2], 0, requests[2].length).headers).toEqual({ a: 'b' })
  })
})

describe('JSON files', () => {
  const info = encodeJson({ format: 1, bucket: '-5', ...INFO.current, previous: INFO.previous })
  const active = encodeJson({ format: 1, ...ACTIVE })

  test('decodeJson', () => {
    holds([info, active], (bytes) => decodeJson(bytes, '/x'))
  })

  test('any JSON value under a right checksum', () => {
    const paths = jobPaths('/job')
    fc.assert(
      fc.property(fc.dictionary(fc.string(), fc.jsonValue()), fc.jsonValue(), (fields, value) => {
        const files = new SimFileSystem()
        for (const change of Object.keys(ACTIVE)) {
          files.setContents(paths.active, encodeJson({ format: 1, ...ACTIVE, ...fields, [change]: value }))
          try {
            readManifest(files, paths)
          } catch (error) {
            if (!(error instanceof HoldfastError)) throw error
          }
        }
        for (const change of ['generation', 'segments', 'previous', 'nextFile', 'bucket']) {
          const state = { format: 1, bucket: '0', ...INFO.current, previous: INFO.previous, ...fields, [change]: value }
          files.setContents('/d/info.json', encodeJson(state))
          for (const committed of [0, 8, 100]) {
            try {
              readBucketInfo(files, '/d', '0', committed)
            } catch (error) {
              if (!(error instanceof HoldfastError)) throw error
            }
          }
        }
      }),
      { numRuns: 150 },
    )
  })

  test('ConsumedSet.decode', () => {
    const sets = [0, 1, 7, 300].map((records) => {
      const set = new ConsumedSet(records)
      for (let i = 0; i < records; i += 3) set.add(i)
      return Buffer.from(set.encode(), 'base64')
    })
    // The count of records and of live ones are right for none but one of them.
    for (const [bytes, records] of [[sets[3], 300]] as const)
      ConsumedSet.decode(bytes.toString('base64'), records, 200, '')
    fc.assert(
      fc.property(fc.oneof(anyBytes, damaged(sets)), fc.nat(400), fc.nat(400), (bytes, records, live) => {
        try {
          const set = ConsumedSet.decode(bytes.toString('base64'), records, live, '/x')
          expect(set.live).toBe(live)
        } catch (error) {
          if (!isAllowed(error)) throw error
        }
      }),
      RUN,
    )
    fc.assert(
      fc.property(fc.string({ maxLength: 100 }), (text) => {
        try {
          ConsumedSet.decode(text, 100, 100, '/x')
        } catch (error) {
          if (!isAllowed(error)) throw error
        }
      }),
      RUN,
    )
  })
})

test('ByteReader refuses before it allocates', () => {
  const huge = bytesOf((w) => w.varint(Number.MAX_SAFE_INTEGER))
  for (const read of ['string', 'bytes', 'skip'] as const) {
    const reader = new ByteReader(huge)
    expect(() => (read === 'string' ? reader.string() : reader[read](reader.varint()))).toThrow(DecodeError)
  }
})
