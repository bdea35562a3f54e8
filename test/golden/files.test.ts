/**
 * The single files of format 1: encoding their meaning gives their bytes, decoding their bytes gives their meaning, and the
 * annotated text is what an independent reader says of them. When one of these fails, either a mistake changed the
 * format, or the change was meant: then it needs a new format number, not new fixtures.
 */
import { describe, expect, test } from 'vitest'
import { annotateJournal, annotateJson, annotateSegment } from '../../fixtures/formats/annotate.js'
import {
  decodeJournal,
  encodeJournal,
  JOURNAL,
  type JournalMeaning,
  type RecordMeaning,
} from '../../fixtures/formats/journal-fixture.js'
import {
  ACTIVE,
  decodeActive,
  decodeInfo,
  encodeActive,
  encodeInfo,
  INFO,
  type InfoMeaning,
} from '../../fixtures/formats/json-fixtures.js'
import { decodeSegment, encodeSegment, type SegmentMeaning } from '../../fixtures/formats/segment-fixture.js'
import type { Manifest } from '../../src/store/manifest.js'
import { golden, goldenJson, goldenText } from './fixtures.js'

describe('journal', () => {
  test('encodes to the golden bytes', async () => {
    const bytes = await encodeJournal(goldenJson<JournalMeaning>('journal.expected.json'))
    expect(bytes.toString('hex')).toBe(golden('journal.bin').toString('hex'))
  })

  test('decodes to the golden meaning, with nothing torn', () => {
    const { meaning, scan } = decodeJournal(golden('journal.bin'))
    expect(meaning).toEqual(goldenJson('journal.expected.json'))
    expect(scan).toMatchObject({ frames: 18, tornBytes: 0, sequence: 58, synced: 57, dropped: [] })
  })

  test('has every record type', () => {
    const types = new Set(goldenBatches().flatMap((batch) => batch.records.map((record) => record.type)))
    const all: Record<RecordMeaning['type'], true> = {
      add: true,
      carry: true,
      take: true,
      ack: true,
      retry: true,
      bury: true,
      requeue: true,
      release: true,
      drop: true,
      seen: true,
      forget: true,
      set: true,
      unset: true,
      slot: true,
      open: true,
      duplicates: true,
      close: true,
    }
    expect([...types].sort()).toEqual(Object.keys(all).sort())
  })

  test('reads as the document says', () => {
    expect(annotateJournal(golden('journal.bin'))).toBe(goldenText('journal.txt'))
  })

  test('the data it is made from has not drifted from the golden meaning', () => {
    expect(JOURNAL).toEqual(goldenJson('journal.expected.json'))
  })
})

const goldenBatches = (): JournalMeaning['batches'] => goldenJson<JournalMeaning>('journal.expected.json').batches

describe.each(['segment', 'segment-delayed'])('%s', (name) => {
  test('encodes to the golden bytes', async () => {
    const bytes = await encodeSegment(goldenJson<SegmentMeaning>(`${name}.expected.json`))
    expect(bytes.toString('hex')).toBe(golden(`${name}.bin`).toString('hex'))
  })

  test('decodes to the golden meaning', () => {
    expect(decodeSegment(golden(`${name}.bin`))).toEqual(goldenJson(`${name}.expected.json`))
  })

  test('reads as the document says', () => {
    expect(annotateSegment(golden(`${name}.bin`))).toBe(goldenText(`${name}.txt`))
  })
})

test('the segment has two lanes over three blocks, one of which both lanes share', () => {
  const { lanes, blockFirsts } = goldenJson<SegmentMeaning>('segment.expected.json')
  expect(lanes.map((lane) => lane.records.length)).toEqual([4, 3])
  expect(blockFirsts).toEqual([0, 3, 5])
})

describe('info.json', () => {
  test('encodes to the golden bytes', async () => {
    const bytes = await encodeInfo(goldenJson<InfoMeaning>('info.expected.json'))
    expect(bytes.toString()).toBe(goldenText('info.json'))
  })

  test('decodes to the golden meaning, in both generations', () => {
    expect(decodeInfo(golden('info.json'), '-5')).toEqual(goldenJson('info.expected.json'))
    expect(INFO).toEqual(goldenJson('info.expected.json'))
  })

  test('reads as the document says', () => {
    expect(annotateJson(golden('info.json'))).toBe(goldenText('info.txt'))
  })
})

describe('active.json', () => {
  test('encodes to the golden bytes', async () => {
    expect((await encodeActive(goldenJson<Manifest>('active.expected.json'))).toString()).toBe(
      goldenText('active.json'),
    )
  })

  test('decodes to the golden meaning', () => {
    expect(decodeActive(golden('active.json'))).toEqual(goldenJson('active.expected.json'))
    expect(ACTIVE).toEqual(goldenJson('active.expected.json'))
  })

  test('reads as the document says', () => {
    expect(annotateJson(golden('active.json'))).toBe(goldenText('active.txt'))
  })
})
