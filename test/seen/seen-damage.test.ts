/** Files cut at each byte, with each bit flipped, swapped, foreign, zeroed or of a newer format: every one is reported. */
import { beforeEach, describe, expect, test } from 'vitest'
import { crc32 } from '../../src/bytes/crc32.js'
import type { Env } from '../../src/env/env.js'
import type { SimFileSystem } from '../../src/env/sim-file-system.js'
import { HoldfastError, type HoldfastErrorCode } from '../../src/errors.js'
import { FORMAT } from '../../src/limits.js'
import {
  decodeRunHeader,
  FILTER_HEADER_BYTES,
  FOOTER_BYTES,
  PAGE_BYTES,
  PAGE_KEYS,
  PAGE_TOMBSTONES,
  pageDamage,
  RUN_HEADER_BYTES,
  TRAILER_BYTES,
} from '../../src/seen/seen-format.js'
import { pageOffset } from '../../src/seen/seen-run-pages.js'
import { SeenSet } from '../../src/seen/seen-set.js'
import { HEADER_CRC_SEED } from '../../src/store/format.js'
import {
  type Committed,
  caught,
  checkpoint,
  counterKey,
  DIRECTORY,
  expectHoldfastError,
  JOB_ID,
  openSet,
  spreadKey,
  TINY,
  world,
} from './seen-support.js'

/** 20 keys and 3 tombstones: an older run keeps the tombstones alive. */
let files: SimFileSystem
let committed: Committed
let path: string
let bytes: Buffer

beforeEach(async () => {
  const env = world(51)
  const set = openSet(env)
  for (let n = 100; n < 160; n++) set.add(spreadKey(n), 0)
  await checkpoint(set)
  for (let n = 0; n < 20; n++) set.add(spreadKey(n), 0)
  for (let n = 100; n < 103; n++) set.forget(spreadKey(n), 0)
  committed = await checkpoint(set)
  set.check()
  set.close()
  files = env.files
  path = `${DIRECTORY}/${committed.runs[0].file}`
  bytes = files.contents(path)
  expect(committed.runs[0]).toMatchObject({ keys: 20, tombstones: 3, level: 2 })
  expect(committed.runs).toHaveLength(2)
  expect(bytes.length).toBeGreaterThan(3 * PAGE_BYTES)
})

/** Opens, checks, and looks keys up. Undefined: no fault was found. */
function findFault(list: Committed = committed): unknown {
  const env = world(52, files)
  let set: SeenSet | undefined
  const fault = caught(() => {
    set = openSet(env, list)
    set.check()
  })
  set?.close()
  expect(files.openHandles()).toBe(0)
  return fault
}

function expectFault(changed: Uint8Array, what: string, code: HoldfastErrorCode = 'HOLDFAST_CORRUPT'): HoldfastError {
  files.setContents(path, changed)
  const fault = findFault()
  files.setContents(path, bytes)
  if (!(fault instanceof HoldfastError)) throw new Error(`${what}: not reported, but ${String(fault)}`)
  if (fault.code !== code || fault.path !== path) throw new Error(`${what}: ${fault.code} ${fault.message}`)
  return fault
}

function openWarned(env: Env, list: Committed, warnings: string[]): SeenSet {
  const warn = (code: string, message: string): void => void warnings.push(`${code} ${message}`)
  return SeenSet.open({ env, directory: DIRECTORY, jobId: JOB_ID, ...list, tuning: TINY, warn })
}

/** Flips each bit in turn; returns those, as byte.bit, for which `unnoticed` said so. */
function flipEach(sample: Buffer, unnoticed: () => boolean): string[] {
  const found: string[] = []
  for (let at = 0; at < sample.length; at++) {
    for (let bit = 0; bit < 8; bit++) {
      sample[at] ^= 1 << bit
      if (unnoticed()) found.push(`${at}.${bit}`)
      sample[at] ^= 1 << bit
    }
  }
  return found
}

describe('a damaged run', () => {
  test('undamaged, nothing is found', () => {
    expect(findFault()).toBeUndefined()
  })

  test('cut at any byte: refused at open', () => {
    for (let length = 0; length < bytes.length; length++) {
      files.setContents(path, bytes.subarray(0, length))
      const error = caught(() => openSet(world(53, files), committed))
      if (!(error instanceof HoldfastError) || error.code !== 'HOLDFAST_CORRUPT' || error.path !== path) {
        throw new Error(`cut at ${length}: ${String(error)}`)
      }
    }
    files.setContents(path, bytes)
    expect(files.openHandles()).toBe(0)
  }, 30_000)

  test('any bit of the header flipped: never taken for a header, and never for a newer format', () => {
    const header = Buffer.from(bytes.subarray(0, RUN_HEADER_BYTES))
    expect(decodeRunHeader(header).kind).toBe('header')
    const wrong = flipEach(header, () => decodeRunHeader(header).kind !== 'bad')
    expect(wrong).toEqual([])
  })

  test('any bit of a page flipped: never taken for a good page', () => {
    const salt = bytes.readUInt32LE(36)
    for (const [index, count, kind] of [
      [0, 20, PAGE_KEYS],
      [1, 3, PAGE_TOMBSTONES],
    ]) {
      const page = Buffer.from(bytes.subarray(pageOffset(index), pageOffset(index + 1)))
      expect(pageDamage(page, 0, index, count, kind, salt)).toBeUndefined()
      const wrong = flipEach(page, () => pageDamage(page, 0, index, count, kind, salt) === undefined)
      expect(wrong).toEqual([])
    }
  })

  test('bits flipped in the file: each behind the pages, samples of the rest; refused at open or found in the right page', () => {
    const env = world(54, files)
    const pagesEnd = pageOffset(2)
    const problems: string[] = []
    for (let offset = 0; offset < bytes.length; offset++) {
      if (offset < pagesEnd && offset % 16 !== 5) continue
      for (let bit = 0; bit < 8; bit++) {
        if (offset < pagesEnd && bit !== (offset >> 4) % 8) continue
        files.corrupt(path, offset, 1 << bit)
        const error = caught(() =>
          SeenSet.checkRun({ env, directory: DIRECTORY, jobId: JOB_ID }, committed.runs[0]),
        ) as HoldfastError
        files.corrupt(path, offset, 1 << bit)
        const inPage = offset >= RUN_HEADER_BYTES && offset < pagesEnd
        const page = offset < pageOffset(1) ? pageOffset(0) : pageOffset(1)
        const fine = error?.code === 'HOLDFAST_CORRUPT' && error.path === path && (!inPage || error.offset === page)
        if (!fine) problems.push(`bit ${bit} of byte ${offset}: ${error}`)
      }
    }
    expect(problems).toEqual([])
    expect([files.openHandles(), files.contents(path).equals(bytes)]).toEqual([0, true])
  }, 30_000)

  test('any bit flipped in fences and footer is refused at open; in a filter it is warned of, and every answer is right', () => {
    const problems: string[] = []
    const filtersAt = pageOffset(2) + 2 * 16
    const footerAt = bytes.length - FOOTER_BYTES - TRAILER_BYTES
    for (let offset = pageOffset(2); offset < bytes.length; offset++) {
      for (let bit = 0; bit < 8; bit++) {
        files.corrupt(path, offset, 1 << bit)
        const inFilter = offset >= filtersAt && offset < footerAt
        const warnings: string[] = []
        let set: SeenSet | undefined
        const error = caught(() => {
          set = openWarned(world(59, files), committed, warnings)
          for (let n = 0; n < 20; n++) expect(set.has(spreadKey(n), 0)).toBe(true)
          for (let n = 200; n < 205; n++) expect(set.has(spreadKey(n), 0)).toBe(false)
          expect(set.has(spreadKey(101), 0)).toBe(false)
        }) as HoldfastError
        set?.close()
        files.corrupt(path, offset, 1 << bit)
        const refused = error?.code === 'HOLDFAST_CORRUPT' && error.path === path
        const warned = error === undefined && warnings.length === 1 && warnings[0].includes(path)
        if (!(inFilter ? warned : refused)) problems.push(`bit ${bit} of byte ${offset}: ${error} ${warnings}`)
      }
    }
    expect(problems).toEqual([])
    expect(files.openHandles()).toBe(0)
  }, 30_000)

  test('a run whose filters are damaged gets new ones with the next checkpoint', async () => {
    const at = pageOffset(2) + 2 * 16 + FILTER_HEADER_BYTES + 3
    files.corrupt(path, at, 1)
    const warnings: string[] = []
    const set = openWarned(world(61, files), committed, warnings)
    expect(warnings).toHaveLength(1)
    set.add(spreadKey(300), 0)
    const healed = await checkpoint(set)
    expect(healed.runs.map((run) => run.file)).not.toContain(committed.runs[0].file)
    set.check()
    set.close()
    const again = openWarned(world(62, files), healed, warnings)
    expect([warnings.length, again.size]).toEqual([1, committed.size + 1])
    again.check()
    again.close()
  })

  test('a bit flipped in a page is met by a look-up too, each time, and harms no other run', () => {
    const set = openSet(world(55, files), committed)
    files.corrupt(path, RUN_HEADER_BYTES + 5, 4)
    for (let i = 0; i < 2; i++) {
      const error = expectHoldfastError(
        caught(() => set.has(spreadKey(7), 0)),
        'HOLDFAST_CORRUPT',
      )
      expect([error.path, error.offset]).toEqual([path, RUN_HEADER_BYTES])
      expect(error.message).toContain('page 0: checksum mismatch')
    }
    // Of the older run's keys, those few that the newer one's filter takes for its own are stopped by the bad page.
    let fine = 0
    for (let n = 103; n < 160; n++) if (caught(() => set.has(spreadKey(n), 0)) === undefined) fine++
    expect(fine).toBeGreaterThan(50)
    files.corrupt(path, RUN_HEADER_BYTES + 5, 4)
    expect(set.has(spreadKey(7), 0)).toBe(true)
    set.close()
  })

  test('zeros, all of it or a page of it, are not an empty run', () => {
    expectFault(Buffer.alloc(bytes.length), 'all zeros')
    for (let from = 0; from < bytes.length; from += 512) {
      const zeroed = Buffer.from(bytes)
      zeroed.fill(0, from, Math.min(from + 512, bytes.length))
      if (!zeroed.equals(bytes)) expectFault(zeroed, `zeros from ${from}`)
    }
  })

  test('bytes behind the end are noticed', () => {
    expectFault(Buffer.concat([bytes, Buffer.alloc(1)]), 'one byte more')
    expectFault(Buffer.concat([bytes, bytes.subarray(-24)]), 'a second trailer')
  })

  test('two pages changed places', () => {
    const swapped = Buffer.from(bytes)
    bytes.copy(swapped, RUN_HEADER_BYTES, RUN_HEADER_BYTES + PAGE_BYTES, RUN_HEADER_BYTES + 2 * PAGE_BYTES)
    bytes.copy(swapped, RUN_HEADER_BYTES + PAGE_BYTES, RUN_HEADER_BYTES, RUN_HEADER_BYTES + PAGE_BYTES)
    expect(expectFault(swapped, 'pages swapped').message).toContain('page 0: says index 1')
  })

  test('missing', () => {
    files.unlink(path)
    const error = expectHoldfastError(findFault(), 'HOLDFAST_CORRUPT')
    expect([error.path, error.message]).toEqual([path, expect.stringContaining('missing')])
    files.setContents(path, bytes)
  })

  test('another run under its name, of the same job', () => {
    const other = files.contents(`${DIRECTORY}/${committed.runs[1].file}`)
    expect(expectFault(other, 'other run').message).toContain('says it is run')
  })

  test('the same run written at another time: same content, another salt', async () => {
    const env = world(56)
    const set = openSet(env)
    for (let n = 100; n < 160; n++) set.add(spreadKey(n), 0)
    await checkpoint(set)
    for (let n = 0; n < 20; n++) set.add(spreadKey(n), 0)
    for (let n = 100; n < 103; n++) set.forget(spreadKey(n), 0)
    const twin = await checkpoint(set)
    expect(twin.runs[0]).toEqual({ ...committed.runs[0], crc: twin.runs[0].crc, bytes: twin.runs[0].bytes })
    const changed = env.files.contents(path)
    expect(expectFault(changed, 'twin').message).toMatch(/another footer|the manifest says/)
  })

  test('a run of another job', () => {
    const error = caught(() =>
      SeenSet.open({ env: world(57, files), directory: DIRECTORY, jobId: new Uint8Array(16), ...committed }),
    )
    expect(expectHoldfastError(error, 'HOLDFAST_CORRUPT').message).toContain('belongs to job 0102')
  })

  test('a newer format is not damage, a damaged format number is', () => {
    const newer = Buffer.from(bytes)
    newer.writeUInt32LE(FORMAT + 1, 8)
    expectFault(newer, 'format number changed, checksum not')
    newer.writeUInt32LE(crc32(newer.subarray(0, RUN_HEADER_BYTES - 4), HEADER_CRC_SEED), RUN_HEADER_BYTES - 4)
    const error = expectFault(newer, 'a newer format', 'HOLDFAST_UNSUPPORTED_FORMAT')
    expect(error.message).toContain(`format ${FORMAT + 1}`)
    // A newer format may have a shorter header, and be a shorter file.
    const short = Buffer.from(newer.subarray(0, 512))
    short.writeUInt32LE(128, 12)
    short.writeUInt32LE(crc32(short.subarray(0, 124), HEADER_CRC_SEED), 124)
    expectFault(short, 'a newer, shorter one', 'HOLDFAST_UNSUPPORTED_FORMAT')
  })

  test('a manifest that describes its runs wrongly', () => {
    const [run, older] = committed.runs
    for (const wrong of [
      { ...run, keys: 21 },
      { ...run, tombstones: 2 },
      { ...run, bytes: run.bytes + 1 },
      { ...run, level: 1 },
      { ...run, crc: run.crc ^ 1 },
      { ...run, file: '../r00002' },
      { ...run, keys: -1 },
      { ...run, file: older.file },
    ]) {
      expectHoldfastError(findFault({ ...committed, runs: [wrong, older] }), 'HOLDFAST_CORRUPT')
    }
  })

  test('a run left out of the list is noticed by its keys', () => {
    expectHoldfastError(findFault({ ...committed, runs: [committed.runs[1]] }), 'HOLDFAST_CORRUPT')
  })

  test('keys out of order under good checksums are found by check', async () => {
    // Written by a broken writer, not damaged: only the full check can know.
    const env = world(58)
    const set = openSet(env, undefined, { ...TINY, filterKeysMax: 1000 })
    for (let n = 0; n < 20; n++) set.add(counterKey(n), 0)
    const list = await checkpoint(set)
    set.close()
    const file = `${DIRECTORY}/${list.runs[0].file}`
    const changed = Buffer.from(env.files.contents(file))
    const salt = changed.readUInt32LE(36)
    counterKey(9).copy(changed, RUN_HEADER_BYTES + 4 * 16)
    const crcAt = RUN_HEADER_BYTES + PAGE_BYTES - 4
    changed.writeUInt32LE(crc32(changed.subarray(RUN_HEADER_BYTES, crcAt), salt), crcAt)
    env.files.setContents(file, changed)
    const again = openSet(env, list)
    const error = expectHoldfastError(
      caught(() => again.check()),
      'HOLDFAST_CORRUPT',
    )
    expect([error.path, error.offset, error.message]).toEqual([
      file,
      RUN_HEADER_BYTES,
      expect.stringContaining('order'),
    ])
  })

  test('a filter that is not of the keys that fall to it, under good checksums, is found by check', async () => {
    const env = world(60)
    const set = openSet(env)
    for (let n = 0; n < 14; n++) set.add(counterKey(n), 0)
    const list = await checkpoint(set)
    set.close()
    const file = `${DIRECTORY}/${list.runs[0].file}`
    const changed = Buffer.from(env.files.contents(file))
    const salt = changed.readUInt32LE(36)
    // Two filters of 7 keys each, behind one page and one fence; afterwards they say 6 and 8.
    for (let at = pageOffset(1) + 16, entries = 6; entries <= 8; entries += 2) {
      expect(changed.readUInt32LE(at + 16)).toBe(7)
      changed.writeUInt32LE(entries, at + 16)
      const crcAt = at + FILTER_HEADER_BYTES + changed.readUInt32LE(at + 32)
      changed.writeUInt32LE(crc32(changed.subarray(at, crcAt), salt), crcAt)
      at = crcAt + 4
    }
    env.files.setContents(file, changed)
    const again = openSet(env, list)
    const error = expectHoldfastError(
      caught(() => again.check()),
      'HOLDFAST_CORRUPT',
    )
    expect([error.path, error.message]).toEqual([file, expect.stringContaining('filter 0 is of 6 keys, 7 fall to it')])
  })
})
