/** What the tests of the store share: salts, batches, a journal directory on a simulated disk, and what was read of it. */
import { batchRegion, type RecordMeaning, readRecords } from '../../fixtures/formats/journal-fixture.js'
import type { FileHandle } from '../../src/env/file-system.js'
import { SimFileSystem } from '../../src/env/sim-file-system.js'
import { HoldfastError } from '../../src/errors.js'
import { journalName } from '../../src/store/file-names.js'
import { FILE_HEADER_BYTES } from '../../src/store/format.js'
import { type JournalExpectation, type JournalScan, replayJournals } from '../../src/store/journal-reader.js'
import { encodeJournalHeader, type JournalFile, JournalWriter } from '../../src/store/journal-writer.js'

export const JOB_ID = Buffer.from('5ca1ab1e0123456789abcdef00c0ffee', 'hex')
export const OTHER_JOB_ID = Buffer.alloc(16, 7)
export const DIRECTORY = '/journal'
export const SALT = 0xdecafbad
export const TIME = Date.UTC(2025, 0, 1)

export const pathOf = (number: number): string => `${DIRECTORY}/${journalName(number)}`
export const record = (n: number): RecordMeaning => ({ type: 'set', key: `key ${n}`, value: 'a5'.repeat(n % 40) })

/** Begins journal `number` on the disk, as the first open does. */
export function beginJournal(
  files: SimFileSystem,
  options: {
    number?: number
    salt?: number
    first?: number
    synced?: number
    wrap?: (handle: FileHandle) => FileHandle
  } = {},
): JournalWriter {
  const { number = 1, salt = SALT, first = 1, synced = 0, wrap = (handle: FileHandle) => handle } = options
  files.makeDirectory(DIRECTORY)
  const handle = wrap(files.open(pathOf(number), 'create'))
  handle.write(encodeJournalHeader(JOB_ID, { number, salt }, first, synced), 0)
  const current: JournalFile = { number, handle, salt, position: FILE_HEADER_BYTES }
  return new JournalWriter(files, DIRECTORY, JOB_ID, current, first - 1, synced)
}

/** Goes on with a journal that was read. */
export function resumeJournal(files: SimFileSystem, scan: JournalScan): JournalWriter {
  const handle = files.open(pathOf(scan.number), 'edit')
  const current: JournalFile = { number: scan.number, handle, salt: scan.salt, position: scan.position }
  return new JournalWriter(files, DIRECTORY, JOB_ID, current, scan.sequence, scan.synced)
}

export function append(writer: JournalWriter, ...records: RecordMeaning[]): void {
  writer.append(batchRegion(records), records.length, TIME, 1)
}

/** Rotates to the next journal with one batch in it. */
export async function rotate(writer: JournalWriter, salt: number, ...records: RecordMeaning[]): Promise<void> {
  const next = await writer.prepareNext(salt)
  writer.rotate(next, batchRegion(records), records.length, TIME, 1)
}

export interface Replayed extends JournalScan {
  readonly records: RecordMeaning[]
}

export function replay(files: SimFileSystem, expected: Partial<JournalExpectation> = {}): Replayed {
  const records: RecordMeaning[] = []
  const present = files
    .readDirectory(DIRECTORY)
    .map((name) => Number(name.slice(0, 8)))
    .sort((a, b) => a - b)
  const first = present[0]
  const whole = { jobId: JOB_ID, first, last: first, sequence: 0, present, ...expected }
  const scan = replayJournals(files, DIRECTORY, whole, (_header, buffer, start, end) => {
    records.push(...readRecords(buffer, start, end))
  })
  return { ...scan, records }
}

/** What `run` throws, which must be a HoldfastError. */
export function refusal(run: () => unknown): HoldfastError {
  try {
    run()
  } catch (error) {
    if (error instanceof HoldfastError) return error as HoldfastError
    throw error
  }
  throw new Error('nothing was thrown')
}

/** The same disk with other bytes in one file; `undefined` removes it. */
export function altered(
  files: SimFileSystem,
  path: string,
  change: (bytes: Buffer) => Buffer | undefined,
): SimFileSystem {
  const copy = new SimFileSystem()
  for (const one of files.allFiles()) {
    const bytes = one === path ? change(files.contents(one)) : files.contents(one)
    if (bytes !== undefined) copy.setContents(one, bytes)
  }
  return copy
}

export const flipped = (bytes: Buffer, bit: number): Buffer => {
  const copy = Buffer.from(bytes)
  copy[bit >>> 3] ^= 1 << (bit & 7)
  return copy
}
