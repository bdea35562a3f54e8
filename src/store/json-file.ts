/**
 * Small files written whole: temporary file, fsync, rename, fsync of the directory, with a checksum as the last member.
 * A reader sees the old content or the new, never a mix; a flipped bit is noticed.
 */
import { crc32 } from '../bytes/crc32.js'
import type { FileSystem } from '../env/file-system.js'
import { errorCode, ioError } from '../errors.js'
import { FORMAT } from '../limits.js'
import { TEMPORARY_SUFFIX } from './file-names.js'
import { corrupt, HEADER_CRC_SEED, unsupportedFormat } from './format.js'

const TAIL = /,"crc32":"([0-9a-f]{8})"\}\n$/

export function encodeJson(value: object): Buffer {
  const body = JSON.stringify(value).slice(0, -1)
  const checksum = crc32(Buffer.from(body), HEADER_CRC_SEED).toString(16).padStart(8, '0')
  return Buffer.from(`${body},"crc32":"${checksum}"}\n`)
}

/** Parses and checks. `path` is for the message. A newer `format` is told apart from damage. */
export function decodeJson(bytes: Buffer, path: string): Record<string, unknown> {
  const text = bytes.toString('utf8')
  const tail = TAIL.exec(text)
  if (tail === null) throw corrupt(path, `no checksum at the end of ${bytes.length} bytes`)
  const body = text.slice(0, tail.index)
  const checksum = crc32(Buffer.from(body), HEADER_CRC_SEED).toString(16).padStart(8, '0')
  if (checksum !== tail[1]) throw corrupt(path, `checksum is ${checksum}, expected ${tail[1]}`)
  let value: unknown
  try {
    value = JSON.parse(`${body}}`)
  } catch (cause) {
    throw corrupt(path, 'not JSON', undefined, cause)
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw corrupt(path, 'not a JSON object')
  const fields = value as Record<string, unknown>
  if (typeof fields['format'] !== 'number') throw corrupt(path, 'no format number')
  if (fields['format'] > FORMAT) throw unsupportedFormat(path, fields['format'])
  return fields
}

/** undefined when the file is not there. */
export function readJsonFile(files: FileSystem, path: string): Record<string, unknown> | undefined {
  let bytes: Buffer
  try {
    bytes = files.readFile(path)
  } catch (error) {
    if (errorCode(error) === 'ENOENT') return undefined
    throw ioError('reading', path, error)
  }
  return decodeJson(bytes, path)
}

/**
 * Publishes `value` at `directory/name`. Durable when the promise resolves. `onRenamed` is called once the new content is
 * in place: a failure after that leaves it open which of the two a power loss would keep.
 */
export async function writeJsonFile(
  files: FileSystem,
  directory: string,
  name: string,
  value: object,
  onRenamed?: () => void,
): Promise<void> {
  const path = `${directory}/${name}`
  const temporary = path + TEMPORARY_SUFFIX
  try {
    await writeWhole(files, temporary, encodeJson(value))
    files.rename(temporary, path)
    onRenamed?.()
    await files.syncDirectory(directory)
  } catch (error) {
    throw ioError('writing', path, error)
  }
}

/** A new file with these bytes, synced. The name is not yet durable. */
export async function writeWhole(files: FileSystem, path: string, bytes: Uint8Array): Promise<void> {
  const handle = files.open(path, 'create')
  try {
    writeFully(handle, bytes, 0)
    await handle.sync()
  } finally {
    handle.close()
  }
}

/** A short write means that the disk is full: libuv reports the count and keeps the error to itself. */
export function writeFully(
  handle: { readonly path: string; write(bytes: Uint8Array, position: number): number },
  bytes: Uint8Array,
  position: number,
): void {
  const written = handle.write(bytes, position)
  if (written === bytes.length) return
  throw Object.assign(new Error(`ENOSPC: ${written} of ${bytes.length} bytes written`), { code: 'ENOSPC' })
}

/** What closing could still report was settled by the sync before it, or does not count any more. */
export function closeQuietly(handle: { close(): void }): void {
  try {
    handle.close()
  } catch {
    // The descriptor is gone either way.
  }
}
