/**
 * Bytes of an HTML page to text, as browsers guess: byte order mark, then the Content-Type header, then a `<meta>` in
 * the first kilobyte, then UTF-8, and windows-1252 for what is not UTF-8. Never throws: a wrong guess costs some
 * letters of a title, while links are ASCII in nearly every page.
 */
import { TextDecoder } from 'node:util'

const META_SCAN_BYTES = 1024

export function decodeText(body: Uint8Array, contentType: string | undefined): string {
  const declared = bomCharset(body) ?? headerCharset(contentType) ?? metaCharset(body)
  if (declared !== undefined) {
    const decoder = decoderFor(declared)
    if (decoder !== undefined)
      return decoder.encoding === 'windows-1252' ? decodeWindows1252(body) : decoder.decode(body)
  }
  try {
    // A body cut at the size limit may end inside a character: with `stream` that is not an error.
    return new TextDecoder('utf-8', { fatal: true }).decode(body, { stream: true })
  } catch {
    return decodeWindows1252(body)
  }
}

function bomCharset(body: Uint8Array): string | undefined {
  if (body[0] === 0xef && body[1] === 0xbb && body[2] === 0xbf) return 'utf-8'
  if (body[0] === 0xfe && body[1] === 0xff) return 'utf-16be'
  if (body[0] === 0xff && body[1] === 0xfe) return 'utf-16le'
  return undefined
}

function headerCharset(contentType: string | undefined): string | undefined {
  return /;\s*charset\s*=\s*"?([^\s";,]+)/i.exec(contentType ?? '')?.[1]
}

/** Finds both `<meta charset=x>` and `<meta http-equiv=content-type content="…; charset=x">`. */
function metaCharset(body: Uint8Array): string | undefined {
  const head = Buffer.from(body.buffer, body.byteOffset, Math.min(META_SCAN_BYTES, body.byteLength)).toString('latin1')
  const charset = /<meta\b[^>]*\bcharset\s*=\s*["']?\s*([^\s"'/>;]+)/i.exec(head)?.[1]
  // What we just read as single bytes cannot be UTF-16, whatever it says of itself.
  return charset !== undefined && /^utf-?16/i.test(charset) ? 'utf-8' : charset
}

function decoderFor(label: string): TextDecoder | undefined {
  try {
    return new TextDecoder(label)
  } catch {
    return undefined
  }
}

/** 0x80 to 0x9f, where it differs from Latin-1; the five bytes without a meaning stay what they are. */
const WINDOWS_1252_HIGH = '€\x81‚ƒ„…†‡ˆ‰Š‹Œ\x8dŽ\x8f\x90‘’“”•–—˜™š›œ\x9džŸ'

/** By hand: the TextDecoder of some versions of Node takes this label for plain Latin-1. */
function decodeWindows1252(body: Uint8Array): string {
  return Buffer.from(body.buffer, body.byteOffset, body.byteLength)
    .toString('latin1')
    .replace(/[\x80-\x9f]/g, (char) => WINDOWS_1252_HIGH[char.charCodeAt(0) - 0x80])
}
