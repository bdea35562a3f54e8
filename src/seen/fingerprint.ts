/**
 * The identity of a request: SHA-1 of a JSON text made of its method, canonical URL, body and (when asked) headers, bit
 * for bit as Scrapy computes it, so that a seen-set can be exchanged with Scrapy and scrapy-redis.
 *
 * A crawl asks for it once per link, 80 times a page. So a URL that is canonical already, as most are, is recognised by
 * one scan and never parsed. The invariant: the scan says yes only when `canonicalUrl(url) === url`. It may say no to a
 * URL that is canonical all the same; that costs time and nothing else.
 */
import { hash } from 'node:crypto'
import { assert } from '../assert.js'
import { canonicalUrl, hostName, requireScheme } from './canonical-url.js'

/** Bytes of a whole fingerprint, and of the part that the seen-set keeps. */
export const FINGERPRINT_BYTES = 20
export const SEEN_KEY_BYTES = 16

export interface FingerprintRequest {
  url: string
  /** Default 'GET'. Upper-cased. */
  method?: string
  body?: Uint8Array | undefined
  headers?: Record<string, string>
}

export interface FingerprintOptions {
  /** Requests that differ only after `#` are different. Default false. */
  keepFragments?: boolean
  /** Names of headers that are part of the identity. Default: none. Case does not matter. */
  includeHeaders?: readonly string[]
  /** The URL counts as written, neither canonicalised nor stripped of its fragment. Default false. */
  verbatimUrl?: boolean
}

/** The 20 bytes. Throws TypeError for a URL that no request can have. */
export function fingerprint(request: FingerprintRequest, options: FingerprintOptions = {}): Buffer {
  const { url, method = 'GET', body, headers = {} } = request
  const { keepFragments = false, includeHeaders = [], verbatimUrl = false } = options
  if (verbatimUrl) requireScheme(url)
  const identity = verbatimUrl ? url : canonicalUrl(url, { keepFragments })
  return Buffer.from(
    hash('sha1', identityText(identity, method, body, includedHeaders(headers, includeHeaders)), 'hex'),
    'hex',
  )
}

/** Writes the first 16 bytes of the default fingerprint at `offset`. The same as `fingerprint`, made for speed. */
export function fingerprintInto(
  out: Uint8Array,
  offset: number,
  url: string,
  method: string,
  body: Uint8Array | undefined,
): void {
  assert(offset >= 0 && offset + SEEN_KEY_BYTES <= out.length)
  const canonical = quickCanonicalUrl(url)
  // Nothing in a URL that passes the scan needs escaping in JSON.
  const text =
    canonical !== undefined && method === 'GET' && body === undefined
      ? `{"body": "", "headers": {}, "method": "GET", "url": "${canonical}"}`
      : identityText(canonical ?? canonicalUrl(url), method, body, '{}')
  // 'binary' is one char per byte: with 'hex' the fastest, and about five times faster than asking for a Buffer.
  const digest = hash('sha1', text, 'binary')
  for (let index = 0; index < SEEN_KEY_BYTES; index++) out[offset + index] = digest.charCodeAt(index)
}

/**
 * The host of the URL, lower case and in ASCII, without port; '' for about: and data:. An ordinary URL is only scanned as
 * far as its host goes; any other is parsed, and throws TypeError when no request can have it.
 */
export function hostOf(url: string): string {
  const end = plainHostEnd(url)
  return end < 0 ? hostName(url) : url.slice(hostStart(url), end)
}

/** Where the host ends that begins at `hostStart`, if it stands there as `hostOf` gives it; -1: it must be parsed. */
export function plainHostEnd(url: string): number {
  const start = hostStart(url)
  const end = start < 0 ? -1 : hostEnd(url, start)
  if (end <= start) return -1
  if (end === url.length) return end
  const stop = url.charCodeAt(end)
  if (stop === SLASH || stop === QUESTION || stop === HASH) return end
  if (stop !== COLON) return -1
  const pathStart = portEnd(url, end)
  return pathStart > 0 && (pathStart === url.length || url.charCodeAt(pathStart) === SLASH) ? end : -1
}

/** What `isCanonicalUrl` finds for a URL without port and query, in one match. */
const PLAIN_URL = /^https?:\/\/[a-z0-9._-]+\/[A-Za-z0-9._~/:@!$&'()*+,=-]*$/

/** The canonical form of an ordinary URL: itself, or with its query sorted. undefined: it must be parsed. */
function quickCanonicalUrl(url: string): string | undefined {
  if (PLAIN_URL.test(url) || isCanonicalUrl(url)) return url
  const question = url.indexOf('?')
  if (question < 0 || !PLAIN_URL.test(url.slice(0, question))) return undefined
  const pairs = url.slice(question + 1).split('&')
  const sorted: [name: string, value: string][] = []
  for (const pair of pairs) {
    const equals = pair.indexOf('=')
    if (equals < 0 || !PLAIN_PAIR.test(pair)) return undefined
    sorted.push([pair.slice(0, equals), pair.slice(equals + 1)])
  }
  sorted.sort(([nameA, valueA], [nameB, valueB]) => compareText(nameA, nameB) || compareText(valueA, valueB))
  return `${url.slice(0, question)}?${sorted.map(([name, value]) => `${name}=${value}`).join('&')}`
}

/** A name and a value of unreserved characters: they are their own escaped and unescaped form. */
const PLAIN_PAIR = /^[A-Za-z0-9._~-]*=[A-Za-z0-9._~-]*$/

function compareText(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0
}

/**
 * Whether the URL is known to be its own canonical form: http or https in lower case, a plain lower-case host, a path of
 * characters that need no quoting, and a query that is sorted already, in which every pair has its `=`.
 */
export function isCanonicalUrl(url: string): boolean {
  const start = hostStart(url)
  if (start < 0) return false
  let at = hostEnd(url, start)
  if (at === start) return false
  if (url.charCodeAt(at) === COLON) at = portEnd(url, at)
  if (at < 0 || url.charCodeAt(at) !== SLASH) return false
  while (at < url.length && isOf(PATH, url.charCodeAt(at))) at++
  if (at === url.length) return true
  return url.charCodeAt(at) === QUESTION && isCanonicalQuery(url, at + 1)
}

const HASH = 0x23
const AMPERSAND = 0x26
const SLASH = 0x2f
const COLON = 0x3a
const EQUALS = 0x3d
const QUESTION = 0x3f

// Classes of characters, one bit each, in a table that one look-up per character answers.
const HOST = 1
const PATH = 2
const FORM = 4
const CLASS_OF = new Uint8Array(128)
for (const char of 'abcdefghijklmnopqrstuvwxyz0123456789') CLASS_OF[char.charCodeAt(0)] = HOST | PATH | FORM
for (const char of 'ABCDEFGHIJKLMNOPQRSTUVWXYZ') CLASS_OF[char.charCodeAt(0)] = PATH | FORM
for (const char of '-._') CLASS_OF[char.charCodeAt(0)] = HOST | PATH | FORM
CLASS_OF['~'.charCodeAt(0)] = PATH | FORM
// Not `;`, which begins parameters, nor `%`, which begins an escape.
for (const char of "/:@!$&'()*+,=") CLASS_OF[char.charCodeAt(0)] = PATH

function isOf(kind: number, charCode: number): boolean {
  return charCode < 128 && (CLASS_OF[charCode]! & kind) !== 0
}

/** Offset behind `http://` or `https://`; -1 for anything else. */
export function hostStart(url: string): number {
  if (url.startsWith('http://')) return 7
  return url.startsWith('https://') ? 8 : -1
}

/** Offset of the first character that is not of a plain host name. */
function hostEnd(url: string, start: number): number {
  let at = start
  while (at < url.length && isOf(HOST, url.charCodeAt(at))) at++
  return at
}

/** Offset behind the port whose colon is at `colon`; -1 unless the port is written in its only canonical way. */
function portEnd(url: string, colon: number): number {
  let at = colon + 1
  let port = 0
  for (; at < url.length && at <= colon + 5; at++) {
    const digit = url.charCodeAt(at) - 0x30
    if (digit < 0 || digit > 9 || (digit === 0 && at === colon + 1)) break
    port = port * 10 + digit
  }
  return port > 0 && port <= 65_535 ? at : -1
}

/** Names and values of unreserved characters only: then they are their own escaped and unescaped form. */
function isCanonicalQuery(url: string, queryStart: number): boolean {
  let earlierName = -1
  let earlierEquals = -1
  let earlierEnd = -1
  for (let name = queryStart; ; ) {
    let equals = name
    while (equals < url.length && isOf(FORM, url.charCodeAt(equals))) equals++
    if (equals === url.length || url.charCodeAt(equals) !== EQUALS) return false
    let end = equals + 1
    while (end < url.length && isOf(FORM, url.charCodeAt(end))) end++
    if (end !== url.length && url.charCodeAt(end) !== AMPERSAND) return false

    if (earlierName >= 0) {
      const order =
        compareSlices(url, earlierName, earlierEquals, name, equals) ||
        compareSlices(url, earlierEquals + 1, earlierEnd, equals + 1, end)
      if (order > 0) return false
    }
    if (end === url.length) return true
    earlierName = name
    earlierEquals = equals
    earlierEnd = end
    name = end + 1
  }
}

function compareSlices(text: string, startA: number, endA: number, startB: number, endB: number): number {
  const length = Math.min(endA - startA, endB - startB)
  for (let index = 0; index < length; index++) {
    const difference = text.charCodeAt(startA + index) - text.charCodeAt(startB + index)
    if (difference !== 0) return difference
  }
  return endA - startA - (endB - startB)
}

/** The JSON that is hashed: keys sorted, Python's spacing, nothing but printable ASCII. */
function identityText(url: string, method: string, body: Uint8Array | undefined, headersJson: string): string {
  const bodyHex = body === undefined ? '' : hexOf(body)
  const upperMethod = asciiJson(method.toUpperCase())
  return `{"body": "${bodyHex}", "headers": ${headersJson}, "method": ${upperMethod}, "url": ${asciiJson(url)}}`
}

/** Names and values in hex, names in lower case and sorted. A header that the request does not have is left out. */
function includedHeaders(headers: Record<string, string>, include: readonly string[]): string {
  // Two spellings of one name are one header with two values, as in Scrapy.
  const valuesOf = new Map<string, string[]>()
  for (const [name, value] of Object.entries(headers)) {
    const values = valuesOf.get(name.toLowerCase())
    if (values === undefined) valuesOf.set(name.toLowerCase(), [value])
    else values.push(value)
  }
  const shown = new Map<string, string>()
  for (const name of include) {
    const values = valuesOf.get(name.toLowerCase())
    if (values === undefined) continue
    shown.set(hexOf(name.toLowerCase()), values.map((value) => `"${hexOf(value)}"`).join(', '))
  }
  // Hex digits sort alike as chars and as bytes.
  const sorted = [...shown].sort(([a], [b]) => (a < b ? -1 : 1))
  return `{${sorted.map(([name, values]) => `"${name}": [${values}]`).join(', ')}}`
}

function hexOf(data: Uint8Array | string): string {
  return typeof data === 'string'
    ? Buffer.from(data, 'utf8').toString('hex')
    : Buffer.from(data.buffer, data.byteOffset, data.byteLength).toString('hex')
}

function asciiJson(text: string): string {
  return JSON.stringify(text).replace(
    /[\x7f-\uffff]/g,
    (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`,
  )
}
