/**
 * What the runs of the seen-set still hold: every page that checks out, whatever became of header, fences, filters and
 * footer. Pages are sorted, so the runs and the journals' own words are merged as the seen-set would: the newest word on a
 * key counts.
 */
import { crc32 } from '../bytes/crc32.js'
import type { Env } from '../env/env.js'
import type { FileHandle } from '../env/file-system.js'
import {
  decodeRunEnd,
  decodeRunHeader,
  FOOTER_BYTES,
  KEYS_PER_PAGE,
  PAGE_BYTES,
  PAGE_KEYS,
  PAGE_TOMBSTONES,
  parseRunName,
  RUN_HEADER_BYTES,
  runLayout,
  type SeenRunInfo,
  TRAILER_BYTES,
} from '../seen/seen-format.js'
import { KEY, KEY_BYTES, KEY_WORDS, readWord, TOMBSTONE } from '../seen/seen-key.js'
import { Merger, type MergeSource, TableSource } from '../seen/seen-merge.js'
import { SeenSet } from '../seen/seen-set.js'
import { runAtOnce } from '../seen/seen-slices.js'
import { sortTable } from '../seen/seen-sort.js'
import type { SeenTable } from '../seen/seen-table.js'
import { join } from '../store/file-names.js'
import { unsupportedFormat } from '../store/format.js'
import { Findings, isDamage, openTolerant, readSpots } from './repair-findings.js'
import { seedOf } from './repair-salt.js'

/** Where things lie at the end of a page; docs/format-seen.md. */
const PAGE_INDEX_AT = 4080
const PAGE_COUNT_AT = 4084
const PAGE_KIND_AT = 4088
const PAGE_CRC_AT = 4092
const SALT_AT = 36
const END_BYTES = FOOTER_BYTES + TRAILER_BYTES

interface Run {
  readonly handle: FileHandle
  /** Numbers of the good pages. */
  readonly keyPages: number[]
  readonly tombstonePages: number[]
}

export class SeenSalvage {
  /** Keys are gone. */
  incomplete = false
  private readonly env: Env
  private readonly directory: string
  private readonly jobId: Buffer
  private readonly findings: Findings
  /** Newest first. */
  private readonly runs: Run[] = []

  constructor(env: Env, directory: string, jobId: Buffer, findings: Findings) {
    this.env = env
    this.directory = directory
    this.jobId = jobId
    this.findings = findings
  }

  get hasRuns(): boolean {
    return this.runs.length > 0
  }

  /** Finds the good pages of every run. `infos` is what the manifest says of them; without one, nothing. */
  survey(names: readonly string[], infos: readonly SeenRunInfo[]): void {
    const numbered = names.filter((name) => parseRunName(name) !== undefined)
    numbered.sort((a, b) => (parseRunName(b) as number) - (parseRunName(a) as number))
    for (const name of numbered) {
      const handle = openTolerant(this.env.files, join(this.directory, name), this.findings)
      if (handle === undefined) {
        this.incomplete = true
        continue
      }
      try {
        const info = infos.find((one) => one.file === name)
        this.surveyRun(handle, name, info)
      } catch (error) {
        handle.close()
        throw error
      }
    }
    if (this.incomplete) {
      this.findings.guess('Part of the seen-set is lost: what is not in it any more may be visited again.')
    }
  }

  private surveyRun(handle: FileHandle, name: string, info: SeenRunInfo | undefined): void {
    const { findings } = this
    const before = findings.problems.length
    const size = handle.size()
    const salt = this.saltOf(handle, size)
    if (salt === undefined) {
      this.incomplete = true
      handle.close()
      return
    }
    const run: Run = { handle, keyPages: [], tombstonePages: [] }
    this.runs.push(run)
    const bad: number[] = []
    const expected = expectedPages(handle, size, salt, info)
    const page = Buffer.alloc(PAGE_BYTES)
    const held = Math.floor(Math.max(0, size - RUN_HEADER_BYTES) / PAGE_BYTES)
    let last = -1
    for (let index = 0; index < Math.max(held, expected ?? 0); index++) {
      const kind = index < held ? this.kindOf(handle, page, index, salt) : undefined
      if (kind === undefined) {
        bad.push(index)
        continue
      }
      last = index
      if (kind === PAGE_KEYS) run.keyPages.push(index)
      else run.tombstonePages.push(index)
    }
    this.tellBad(
      handle.path,
      size,
      bad.filter((index) => index < (expected ?? last + 1)),
    )
    if (expected === undefined)
      findings.problem(handle.path, 'the end of this run is gone: how much it held is not known')
    this.incomplete ||= expected === undefined
    // Pages apart, everything else in a run can be made again; but what is wrong with it is told.
    if (findings.problems.length === before) this.checkRest(info ?? infoOf(handle, name, size, salt))
  }

  private checkRest(info: SeenRunInfo | undefined): void {
    if (info === undefined) return
    const { env, directory, jobId } = this
    try {
      SeenSet.checkRun({ env, directory, jobId }, info)
    } catch (error) {
      if (!isDamage(error)) throw error
      const { message, path, offset } = error as { message: string; path?: string; offset?: number }
      this.findings.problem(path ?? join(directory, info.file), message, offset)
    }
  }

  /** PAGE_KEYS or PAGE_TOMBSTONES, or undefined when the page is not good. */
  private kindOf(handle: FileHandle, page: Buffer, index: number, salt: number): number | undefined {
    readSpots(handle, page, RUN_HEADER_BYTES + index * PAGE_BYTES, this.findings)
    return looksLikePage(page, index) && crc32(page.subarray(0, PAGE_CRC_AT), salt) === page.readUInt32LE(PAGE_CRC_AT)
      ? page.readUInt32LE(PAGE_KIND_AT)
      : undefined
  }

  /** Runs of neighbouring bad pages, one problem each. */
  private tellBad(path: string, size: number, bad: readonly number[]): void {
    for (let i = 0; i < bad.length; ) {
      let end = i + 1
      while (end < bad.length && bad[end] === bad[end - 1] + 1) end++
      const at = Math.min(size, RUN_HEADER_BYTES + bad[i] * PAGE_BYTES)
      const to = Math.min(size, RUN_HEADER_BYTES + (bad[end - 1] + 1) * PAGE_BYTES)
      const count = end - i
      this.findings.gap(path, at, to - at, `${count} ${count === 1 ? 'page' : 'pages'} of keys cannot be read`)
      this.incomplete = true
      i = end
    }
  }

  private saltOf(handle: FileHandle, size: number): number | undefined {
    const { findings } = this
    const { path } = handle
    const bytes = Buffer.alloc(RUN_HEADER_BYTES)
    readSpots(handle, bytes, 0, findings)
    const read = decodeRunHeader(bytes.subarray(0, Math.min(size, RUN_HEADER_BYTES)))
    if (read.kind === 'newer') throw unsupportedFormat(path, read.format)
    if (read.kind === 'header') {
      const { header } = read
      if (this.jobId.equals(header.jobId)) return header.salt
      findings.problem(path, `belongs to another job (${Buffer.from(header.jobId).toString('hex')}): left out`, 16)
      return undefined
    }
    const salt = this.findSalt(handle, size, bytes.readUInt32LE(SALT_AT))
    if (salt === undefined) findings.gap(path, 0, size, `${read.reason}, and no page checks out`)
    else findings.problem(path, `${read.reason}; its pages were read all the same`, 0)
    return salt
  }

  /** The salt as it is written, or what a page implies; believed when a second thing in the file checks out with it. */
  private findSalt(handle: FileHandle, size: number, written: number): number | undefined {
    const page = Buffer.alloc(PAGE_BYTES)
    const end = readEnd(handle, size)
    const found = new Set<number>()
    for (let index = 0; RUN_HEADER_BYTES + (index + 1) * PAGE_BYTES <= size; index++) {
      readSpots(handle, page, RUN_HEADER_BYTES + index * PAGE_BYTES, new Findings())
      if (!looksLikePage(page, index)) continue
      const salt = seedOf(page, 0, PAGE_CRC_AT, page.readUInt32LE(PAGE_CRC_AT))
      if (salt === 0) continue
      if (salt === written || found.has(salt) || decodeRunEnd(end, size, salt).kind === 'end') return salt
      found.add(salt)
    }
    return undefined
  }

  /** Every key that is seen, ascending, as four words that are overwritten by the next. */
  *keys(journal: SeenTable): Generator<Uint32Array> {
    const sources: MergeSource[] = [new TableSource(runAtOnce(sortTable(journal)))]
    for (const { handle, keyPages, tombstonePages } of this.runs) {
      sources.push(new PageSource(handle, keyPages, KEY), new PageSource(handle, tombstonePages, TOMBSTONE))
    }
    for (const merger = new Merger(sources); merger.advance(); ) if (merger.state === KEY) yield merger.words
  }

  close(): void {
    for (const run of this.runs) run.handle.close()
  }
}

/** Without the checksum: what a good page says of itself. */
function looksLikePage(page: Buffer, index: number): boolean {
  const count = page.readUInt32LE(PAGE_COUNT_AT)
  const kind = page.readUInt32LE(PAGE_KIND_AT)
  if (page.readUInt32LE(PAGE_INDEX_AT) !== index || count === 0 || count > KEYS_PER_PAGE) return false
  return kind === PAGE_KEYS || kind === PAGE_TOMBSTONES
}

/** The last bytes of the file, footer and trailer if nothing is cut off. */
function readEnd(handle: FileHandle, size: number): Buffer {
  const bytes = Buffer.alloc(END_BYTES)
  if (size >= END_BYTES) readSpots(handle, bytes, size - END_BYTES, new Findings())
  return bytes
}

/** How many pages the run had; undefined when neither the footer nor the manifest tells. */
function expectedPages(
  handle: FileHandle,
  size: number,
  salt: number,
  info: SeenRunInfo | undefined,
): number | undefined {
  const end = decodeRunEnd(readEnd(handle, size), size, salt)
  if (end.kind === 'end') {
    const { keyPages, tombstonePages } = runLayout(end.footer)
    return keyPages + tombstonePages
  }
  if (info === undefined) return undefined
  return Math.ceil(info.keys / KEYS_PER_PAGE) + Math.ceil(info.tombstones / KEYS_PER_PAGE)
}

/** As a manifest would describe the run, from the run itself. */
function infoOf(handle: FileHandle, file: string, size: number, salt: number): SeenRunInfo | undefined {
  const header = Buffer.alloc(RUN_HEADER_BYTES)
  readSpots(handle, header, 0, new Findings())
  const read = decodeRunHeader(header)
  const end = decodeRunEnd(readEnd(handle, size), size, salt)
  if (read.kind !== 'header' || end.kind !== 'end') return undefined
  const { keys, tombstones } = end.footer
  return { file, keys, tombstones, bytes: size, level: read.header.level, crc: end.crc }
}

/** The keys of the good pages of one run. */
class PageSource implements MergeSource {
  readonly words = new Uint32Array(KEY_WORDS)
  readonly state: typeof KEY | typeof TOMBSTONE
  private readonly handle: FileHandle
  private readonly pages: readonly number[]
  private readonly page = Buffer.alloc(PAGE_BYTES)
  private nextPage = 0
  private given = 0
  private count = 0

  constructor(handle: FileHandle, pages: readonly number[], state: typeof KEY | typeof TOMBSTONE) {
    this.handle = handle
    this.pages = pages
    this.state = state
  }

  advance(): boolean {
    while (this.given >= this.count) {
      if (this.nextPage === this.pages.length) return false
      const at = RUN_HEADER_BYTES + this.pages[this.nextPage++] * PAGE_BYTES
      readSpots(this.handle, this.page, at, new Findings())
      // Clamped, as the device may give other bytes than the survey saw.
      this.count = Math.min(this.page.readUInt32LE(PAGE_COUNT_AT), KEYS_PER_PAGE)
      this.given = 0
    }
    for (let i = 0; i < KEY_WORDS; i++) this.words[i] = readWord(this.page, this.given * KEY_BYTES + i * 4)
    this.given++
    return true
  }
}
