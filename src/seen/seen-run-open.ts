/**
 * Opens a run file: everything but the pages is read and checked, so that what is damaged, cut short, of another job or of
 * a newer format is refused here and not met later.
 *
 * Invariant: no length from the file chooses how much memory is taken before a checksum or a bound has vouched for it.
 */
import { crc32 } from '../bytes/crc32.js'
import type { FileHandle, FileSystem } from '../env/file-system.js'
import { errorCode, ioError } from '../errors.js'
import { corrupt, unsupportedFormat } from '../store/format.js'
import type { PageCache } from './seen-cache.js'
import {
  decodeFilterHeader,
  decodeRunEnd,
  decodeRunHeader,
  FILTER_CRC_BYTES,
  FILTER_HEADER_BYTES,
  FOOTER_BYTES,
  parseRunName,
  RUN_HEADER_BYTES,
  type RunFilter,
  type RunHeader,
  runLayout,
  type SeenRunInfo,
  TRAILER_BYTES,
} from './seen-format.js'
import { compareKeys, KEY_BYTES, KEY_WORDS, readWord } from './seen-key.js'
import { type RunParts, readExactly, SeenRunReader } from './seen-run-reader.js'

/** Opens a run the manifest names, reading all of it but the pages. */
export function openRun(
  files: FileSystem,
  path: string,
  info: SeenRunInfo,
  jobId: Uint8Array,
  cache: PageCache,
): SeenRunReader {
  let handle: FileHandle
  try {
    handle = files.open(path, 'read')
  } catch (error) {
    if (errorCode(error) === 'ENOENT') throw corrupt(path, 'missing, although the manifest names it', undefined, error)
    throw ioError('opening', path, error)
  }
  try {
    return new SeenRunReader(readParts(handle, path, info, jobId), cache)
  } catch (error) {
    handle.close()
    throw error
  }
}

function readParts(handle: FileHandle, path: string, info: SeenRunInfo, jobId: Uint8Array): RunParts {
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
  const filters = readFilters(handle, path, layout.filtersAt, layout.footerAt, header.salt)
  const entries = filters.reduce((sum, filter) => sum + filter.entries, 0)
  if (filters.length !== footer.filterCount || entries !== footer.keys + footer.tombstones) {
    throw corrupt(path, `${filters.length} filters of ${entries} keys do not fit the footer`, layout.filtersAt)
  }
  return { path, handle, info, salt: header.salt, fences, filters }
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
  const bytes = Buffer.alloc(pages * KEY_BYTES)
  readExactly(handle, bytes, at)
  if (crc32(bytes, salt) !== crc) throw corrupt(path, 'fences: checksum mismatch', at)
  const fences = new Uint32Array(pages * KEY_WORDS)
  for (let i = 0; i < fences.length; i++) fences[i] = readWord(bytes, i * 4)
  return fences
}

function checkFencesAscend(fences: Uint32Array, path: string, at: number, from: number, to: number): void {
  for (let page = from + 1; page < to; page++) {
    if (compareKeys(fences, (page - 1) * KEY_WORDS, fences, page * KEY_WORDS) < 0) continue
    throw corrupt(path, `fence ${page} is not above the one before`, at + page * KEY_BYTES)
  }
}

function readFilters(handle: FileHandle, path: string, from: number, to: number, salt: number): RunFilter[] {
  const filters: RunFilter[] = []
  const header = Buffer.alloc(FILTER_HEADER_BYTES)
  const crc = Buffer.alloc(FILTER_CRC_BYTES)
  for (let at = from; at < to; ) {
    if (to - at < FILTER_HEADER_BYTES + FILTER_CRC_BYTES) throw corrupt(path, 'filter header cut short', at)
    readExactly(handle, header, at)
    const shape = decodeFilterHeader(header)
    if (typeof shape === 'string') throw corrupt(path, shape, at)
    const end = at + FILTER_HEADER_BYTES + shape.length + FILTER_CRC_BYTES
    // Before memory is taken: a damaged length must not choose how much.
    if (end > to) throw corrupt(path, `filter claims ${shape.length} bytes, ${to - at} are left`, at)
    // Own memory of the exact size: these bytes stay.
    const fingerprints = new Uint8Array(shape.length)
    readExactly(handle, fingerprints, at + FILTER_HEADER_BYTES)
    readExactly(handle, crc, end - FILTER_CRC_BYTES)
    if (crc32(fingerprints, crc32(header, salt)) !== crc.readUInt32LE(0))
      throw corrupt(path, 'filter: checksum mismatch', at)
    const first = Uint32Array.from({ length: KEY_WORDS }, (_, i) => readWord(header, i * 4))
    if (filters.length > 0 && compareKeys(filters[filters.length - 1].first, 0, first, 0) >= 0) {
      throw corrupt(path, 'filters out of order', at)
    }
    const { entries, seed, segmentLength, segmentCount } = shape
    const fuse = shape.length === 0 ? undefined : { entries, seed, segmentLength, segmentCount, fingerprints }
    filters.push({ first, entries, fuse })
    at = end
  }
  return filters
}

function sizeOf(handle: FileHandle): number {
  try {
    return handle.size()
  } catch (error) {
    throw ioError('reading', handle.path, error)
  }
}
