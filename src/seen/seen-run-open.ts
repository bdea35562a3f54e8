/**
 * Opens a run file: header, footer and fences are read and checked, so that what is damaged, cut short, of another job or of
 * a newer format is refused here and not met later. Filters only save time: those that are damaged are told and done without.
 *
 * Invariant: no length from the file chooses how much memory is taken before a checksum or a bound has vouched for it.
 */
import { crc32 } from '../bytes/crc32.js'
import type { FileHandle, FileSystem } from '../env/file-system.js'
import { errorCode, ioError } from '../errors.js'
import { corrupt, unsupportedFormat } from '../store/format.js'
import type { PageCache } from './seen-cache.js'
import { RunFilters, readDirectory, type TellDamage } from './seen-filters.js'
import {
  decodeRunEnd,
  decodeRunHeader,
  FOOTER_BYTES,
  parseRunName,
  RUN_HEADER_BYTES,
  type RunFooter,
  type RunHeader,
  type RunLayout,
  runLayout,
  type SeenRunInfo,
  TRAILER_BYTES,
} from './seen-format.js'
import { compareKeys, KEY_BYTES, KEY_WORDS } from './seen-key.js'
import { readExactly, swapWords } from './seen-run-pages.js'
import { type RunParts, SeenRunReader } from './seen-run-reader.js'

/** Opens a run the manifest names. No filter is in memory yet. */
export function openRun(
  files: FileSystem,
  path: string,
  info: SeenRunInfo,
  jobId: Uint8Array,
  cache: PageCache,
  tell: TellDamage,
): SeenRunReader {
  let handle: FileHandle
  try {
    handle = files.open(path, 'read')
  } catch (error) {
    if (errorCode(error) === 'ENOENT') throw corrupt(path, 'missing, although the manifest names it', undefined, error)
    throw ioError('opening', path, error)
  }
  try {
    return new SeenRunReader(handle, readParts(handle, path, info, jobId, tell), cache)
  } catch (error) {
    handle.close()
    throw error
  }
}

function readParts(handle: FileHandle, path: string, info: SeenRunInfo, jobId: Uint8Array, tell: TellDamage): RunParts {
  const fileBytes = sizeOf(handle)
  const header = readHeader(handle, path, fileBytes)
  if (Buffer.compare(header.jobId, jobId) !== 0) {
    const [found, wanted] = [header.jobId, jobId].map((id) => Buffer.from(id).toString('hex'))
    throw corrupt(path, `belongs to job ${found}, expected ${wanted}`, 16)
  }
  if (header.number !== parseRunName(info.file)) throw corrupt(path, `says it is run ${header.number}`, 32)
  if (header.level !== info.level) throw corrupt(path, `level is ${header.level}, the manifest says ${info.level}`, 40)
  if (fileBytes !== info.bytes) {
    throw corrupt(path, `${fileBytes} bytes, the manifest says ${info.bytes}`, Math.min(fileBytes, info.bytes))
  }
  const endBytes = Buffer.alloc(FOOTER_BYTES + TRAILER_BYTES)
  if (fileBytes < RUN_HEADER_BYTES + endBytes.length) throw corrupt(path, `cut short: ${fileBytes} bytes`, fileBytes)
  readExactly(handle, endBytes, fileBytes - endBytes.length)
  const end = decodeRunEnd(endBytes, fileBytes, header.salt)
  if (end.kind === 'bad') throw corrupt(path, end.reason, end.offset)
  const { footer } = end
  const layout = runLayout(footer)
  if (end.crc !== info.crc || footer.keys !== info.keys || footer.tombstones !== info.tombstones) {
    throw corrupt(path, 'not the run the manifest names: another footer', layout.footerAt)
  }
  const pages = layout.keyPages + layout.tombstonePages
  const fences = readFences(handle, path, layout.fencesAt, pages, footer.fencesCrc, header.salt)
  checkFencesAscend(fences, path, layout.fencesAt, 0, layout.keyPages)
  checkFencesAscend(fences, path, layout.fencesAt, layout.keyPages, pages)
  const filters = openFilters(handle, header.salt, footer, layout, tell)
  return { path, info, salt: header.salt, fences, filters }
}

function openFilters(
  handle: FileHandle,
  salt: number,
  footer: RunFooter,
  layout: RunLayout,
  tell: TellDamage,
): RunFilters {
  const read = readDirectory(handle, layout.filtersAt, layout.footerAt)
  if ('problem' in read) return damagedFilters(handle, salt, read.problem, read.offset, tell)
  const { directory } = read
  const entries = directory.shapes.reduce((sum, shape) => sum + shape.entries, 0)
  if (directory.shapes.length !== footer.filterCount || entries !== footer.keys + footer.tombstones) {
    const problem = `${directory.shapes.length} filters of ${entries} keys do not fit the footer`
    return damagedFilters(handle, salt, problem, layout.filtersAt, tell)
  }
  return new RunFilters(handle, salt, directory, false, tell)
}

function damagedFilters(
  handle: FileHandle,
  salt: number,
  problem: string,
  offset: number,
  tell: TellDamage,
): RunFilters {
  const filters = new RunFilters(handle, salt, { firsts: new Uint32Array(0), shapes: [], at: offset }, false, tell)
  filters.giveUp(problem, offset)
  return filters
}

function readHeader(handle: FileHandle, path: string, fileBytes: number): RunHeader {
  const bytes = Buffer.alloc(Math.min(fileBytes, RUN_HEADER_BYTES))
  readExactly(handle, bytes, 0)
  const read = decodeRunHeader(bytes)
  if (read.kind === 'newer') throw unsupportedFormat(path, read.format)
  if (read.kind === 'bad') throw corrupt(path, read.reason, 0)
  return read.header
}

function readFences(
  handle: FileHandle,
  path: string,
  at: number,
  pages: number,
  crc: number,
  salt: number,
): Uint32Array {
  const fences = new Uint32Array(pages * KEY_WORDS)
  const bytes = Buffer.from(fences.buffer)
  readExactly(handle, bytes, at)
  if (crc32(bytes, salt) !== crc) throw corrupt(path, 'fences: checksum mismatch', at)
  swapWords(bytes)
  return fences
}

function checkFencesAscend(fences: Uint32Array, path: string, at: number, from: number, to: number): void {
  for (let page = from + 1; page < to; page++) {
    if (compareKeys(fences, (page - 1) * KEY_WORDS, fences, page * KEY_WORDS) < 0) continue
    throw corrupt(path, `fence ${page} is not above the one before`, at + page * KEY_BYTES)
  }
}

function sizeOf(handle: FileHandle): number {
  try {
    return handle.size()
  } catch (error) {
    throw ioError('reading', handle.path, error)
  }
}
