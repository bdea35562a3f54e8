/**
 * Walks the frames of a damaged journal or segment. Invariant: a frame counts only if its checksum, seeded with the file's
 * salt, is right; between two such frames everything is a gap, whatever a damaged length claims.
 */
import { decodeFileHeader, FILE_HEADER_BYTES, FRAME_HEADER_BYTES } from '../store/format.js'
import { readFrame } from '../store/frame.js'
import { seedOf } from './repair-salt.js'

export type Piece =
  | { readonly kind: 'frame'; readonly type: number; readonly at: number; readonly start: number; readonly end: number }
  /** Bytes that belong to no frame. */
  | { readonly kind: 'gap'; readonly at: number; readonly end: number; readonly reason: string }
  /** Zeros to the end. */
  | { readonly kind: 'unwritten'; readonly at: number; readonly end: number }

/** Everything from `from` to the end of `bytes`, in order. */
export function* readPieces(bytes: Buffer, from: number, salt: number, types: readonly number[]): Generator<Piece> {
  let at = from
  while (at < bytes.length) {
    const frame = readFrame(bytes, at, salt)
    if (frame.kind === 'end') {
      yield { kind: 'unwritten', at, end: bytes.length }
      return
    }
    if (frame.kind === 'frame' && types.includes(frame.type)) {
      yield { kind: 'frame', type: frame.type, at, start: frame.start, end: frame.end }
      at = frame.end
      continue
    }
    const reason = frame.kind === 'bad' ? frame.reason : `frame of type ${frame.type}, which does not belong here`
    const end = findFrame(bytes, at + 1, salt, types) ?? bytes.length
    yield { kind: 'gap', at, end, reason }
    at = end
  }
}

/** Offset of the first frame at or behind `from` that checks out. Looks at every byte. */
function findFrame(bytes: Buffer, from: number, salt: number, types: readonly number[]): number | undefined {
  for (let at = from; at + FRAME_HEADER_BYTES <= bytes.length; at++) {
    if (mayBeFrame(bytes, at, types) && readFrame(bytes, at, salt).kind === 'frame') return at
  }
  return undefined
}

/** Cheap, before a checksum is taken: a type that belongs here, and a length that fits. */
function mayBeFrame(bytes: Buffer, at: number, types: readonly number[]): boolean {
  if (at + FRAME_HEADER_BYTES > bytes.length || !types.includes(bytes[at + 8])) return false
  return at + FRAME_HEADER_BYTES + bytes.readUInt32LE(at) <= bytes.length
}

const SALT_AT = 36

/**
 * The salt of a file whose header is damaged, or undefined. First the bytes where it should be, then what each possible
 * frame implies, if the frame behind it, the header or `confirm` checks out with it too.
 */
export function findSalt(
  bytes: Buffer,
  magic: string,
  types: readonly number[],
  confirm: (salt: number) => boolean = () => false,
): number | undefined {
  if (bytes.length < FILE_HEADER_BYTES) return undefined
  const written = bytes.readUInt32LE(SALT_AT)
  if (written !== 0 && findFrame(bytes, FILE_HEADER_BYTES, written, types) !== undefined) return written
  for (let at = FILE_HEADER_BYTES; at + FRAME_HEADER_BYTES <= bytes.length; at++) {
    if (!mayBeFrame(bytes, at, types)) continue
    const end = at + FRAME_HEADER_BYTES + bytes.readUInt32LE(at)
    const isFirst = at === FILE_HEADER_BYTES
    if (!isFirst && !mayBeFrame(bytes, end, types)) continue
    const salt = saltOfFrame(bytes, at, end)
    if (salt === 0) continue
    const next = mayBeFrame(bytes, end, types) ? readFrame(bytes, end, salt).kind : 'end'
    if (next === 'frame' || (isFirst && headerFits(bytes, magic, salt)) || confirm(salt)) return salt
  }
  return undefined
}

/** Backwards through what the checksum covers: payload and type, then the length. */
function saltOfFrame(bytes: Buffer, at: number, end: number): number {
  const beforeContent = seedOf(bytes, at + 8, end, bytes.readUInt32LE(at + 4))
  return seedOf(bytes, at, at + 4, beforeContent)
}

function headerFits(bytes: Buffer, magic: string, salt: number): boolean {
  const header = Buffer.from(bytes.subarray(0, FILE_HEADER_BYTES))
  header.writeUInt32LE(salt, SALT_AT)
  return decodeFileHeader(header, magic).kind === 'header'
}
