/**
 * The canonical form of a URL: two URLs are the same page if and only if their canonical forms are equal. It is, byte
 * for byte, what Scrapy 2.8 with w3lib 2.1.1 on Python 3.11 makes of `Request(url)` when it computes a fingerprint, so
 * that a seen-set can be exchanged with it. That is the only reason for the steps here, some of which look odd (an
 * escaped percent sign is unescaped, IPv6 hosts lose their brackets): do not repair them, they are other people's data.
 *
 *   string --safeUrl--> what Scrapy would fetch --canonicalUrl--> what identifies the page
 *
 * Text that has become bytes is held as a string of one char per byte ("byte string"): comparing two such strings with
 * `<` then orders them as bytes, and a regular expression can quote them.
 */
import { isIPv6 } from 'node:net'
import { hostToAscii, isAscii, lowerCase, partition } from './idna-host.js'

export interface CanonicalUrlOptions {
  /** Keep `#fragment`: for pages that a browser renders by it. Default false. */
  keepFragments?: boolean
}

interface UrlParts {
  readonly scheme: string
  /** `user:password@host:port` as written. */
  readonly netloc: string
  readonly path: string
  readonly query: string
  readonly fragment: string
}

/** Schemes whose URLs always show `//`, even with an empty host. */
const SCHEMES_WITH_NETLOC = new Set(
  'ftp http gopher nntp telnet imap wais file mms https shttp snews prospero rtsp rtspu rsync svn svn+ssh sftp nfs git git+ssh ws wss'.split(
    ' ',
  ),
)
/** Schemes whose last path segment may carry `;params`; so may a URL without a scheme. */
const SCHEMES_WITH_PARAMS = new Set([
  '',
  ...'ftp hdl prospero http imap https shttp rtsp rtspu sip sips mms sftp tel'.split(' '),
])
/** Schemes that the WHATWG standard calls special: an apostrophe in their query is quoted. */
const SPECIAL_SCHEMES = new Set('ftp file http https ws wss'.split(' '))

// Each matches the bytes to quote in one part of a URL. `%` passes all but the last two: it may begin an escape.
const UNSAFE_PATH = /[^\w\-.~:/?@!$&'()*+,;=%]/g
const UNSAFE_SPECIAL_QUERY = /[^\w\-.~:/?@!$&()*+,;=%]/g
const UNSAFE_CANONICAL_PATH = /[^\w\-.~:/?@!$&'()*+,;=%[\]|]/g
const UNSAFE_CANONICAL = /[^\w\-.~:/?@!$&'()*+,;=%[\]|#]/g
const UNSAFE_USERINFO = /[^\w\-.~!$&'()*+,]/g
const UNSAFE_FORM = /[^\w\-.~]/g

/** Throws TypeError for what Scrapy refuses, and for lone surrogates, which no byte sequence can stand for. */
export function canonicalUrl(url: string, options: CanonicalUrlOptions = {}): string {
  const { scheme, netloc, path: pathAndParams, query, fragment } = splitUrl(strip(safeUrl(url)), url)
  const [path, params] = splitParams(scheme, pathAndParams)
  // An escaped slash or question mark must stay escaped: unescaping it would change which page is meant.
  const quotedPath = quote(utf8(path), UNSAFE_CANONICAL_PATH).replace(
    /%(2f|3f)/gi,
    (_, hex) => `%25${hex.toUpperCase()}`,
  )
  const canonicalPath = quote(unescapeBytes(quotedPath), UNSAFE_CANONICAL_PATH) || '/'
  const canonicalParams = quote(utf8(params), UNSAFE_CANONICAL)
  return joinUrl({
    scheme,
    netloc: trimEndColons(lowerCase(hostToAscii(netloc))),
    path: canonicalParams === '' ? canonicalPath : `${canonicalPath};${canonicalParams}`,
    query: canonicalQuery(quote(utf8(query), UNSAFE_CANONICAL)),
    fragment: options.keepFragments === true ? quote(utf8(fragment), UNSAFE_CANONICAL) : '',
  })
}

/**
 * The host of the request that Scrapy would make of this URL: lower case, IDNA, no port; '' when there is none. IPv6
 * addresses come whole, without brackets, as with w3lib 2.4.1; with the older one they are cut at their first colon.
 */
export function hostName(url: string): string {
  const safe = safeUrl(url)
  const written = hostAndPort(splitUrl(strip(url), url).netloc)[0]
  return lowerHost(written.includes(':') ? written : hostAndPort(splitUrl(safe, url).netloc)[0])
}

/** The URL of the request that Scrapy would make: quoted where needed, host in ASCII, `#!` turned into a query. */
export function safeUrl(url: string): string {
  if (/\p{Surrogate}/u.test(url)) throw notAUrl(url, 'a lone surrogate')
  const { scheme, netloc, path, query, fragment } = splitUrl(strip(url), url)
  const safe = escapeAjax(
    joinUrl({
      scheme,
      netloc: safeNetloc(netloc, url),
      path: quote(utf8(path), UNSAFE_PATH),
      query: quote(utf8(query), SPECIAL_SCHEMES.has(scheme) ? UNSAFE_SPECIAL_QUERY : UNSAFE_PATH),
      fragment: quote(utf8(fragment), UNSAFE_PATH),
    }),
    url,
  )
  requireScheme(safe, url)
  return safe
}

/** Throws unless the URL is one a request may have: absolute, or about: or data:. */
export function requireScheme(url: string, written = url): void {
  if (!url.includes('://') && !url.startsWith('about:') && !url.startsWith('data:')) throw notAUrl(written, 'no scheme')
}

function safeNetloc(netloc: string, url: string): string {
  const at = netloc.lastIndexOf('@')
  const [host, port] = hostAndPort(netloc)
  let safe = hostToAscii(lowerHost(host))
  if (port !== '') {
    if (!/^[0-9]+$/.test(port) || Number(port) > 65_535) throw notAUrl(url, `port ${JSON.stringify(port.slice(0, 20))}`)
    safe += `:${Number(port)}`
  }
  if (at < 0) return safe

  const userinfo = netloc.slice(0, at)
  const colon = userinfo.indexOf(':')
  const requote = (text: string) => quote(utf8(unescapeText(text)), UNSAFE_USERINFO)
  return colon < 0
    ? `${requote(userinfo)}@${safe}`
    : `${requote(userinfo.slice(0, colon))}:${requote(userinfo.slice(colon + 1))}@${safe}`
}

/** Host and port as written between `@` and the path. Brackets are not part of the host. */
function hostAndPort(netloc: string): [host: string, port: string] {
  const hostinfo = netloc.slice(netloc.lastIndexOf('@') + 1)
  const bracket = hostinfo.indexOf('[')
  if (bracket < 0) return partition(hostinfo, ':')
  const [host, after] = partition(hostinfo.slice(bracket + 1), ']')
  return [host, partition(after, ':')[1]]
}

function lowerHost(host: string): string {
  // The zone of a scoped IPv6 address keeps its case.
  const percent = host.indexOf('%')
  return percent < 0 ? lowerCase(host) : lowerCase(host.slice(0, percent)) + host.slice(percent)
}

/** The old convention for pages made by scripts: `page#!state` is fetched as `page?_escaped_fragment_=state`. */
function escapeAjax(safe: string, url: string): string {
  const hash = safe.indexOf('#')
  if (hash < 0 || safe[hash + 1] !== '!') return safe
  const state = safe.slice(hash + 2)
  // Taking the URL apart and together drops an empty `;params`, and may turn a path that begins with `//` into a host.
  const whole = splitUrl(safe, url)
  const [path, params] = splitParams(whole.scheme, whole.path)
  const bare = joinUrl({ ...whole, path: params === '' ? path : `${path};${params}`, fragment: '' })
  const parts = splitUrl(bare, url)
  const pairs: [string, string][] = []
  let replaced = false
  for (const pair of parts.query.split('&')) {
    if (pair === '') continue
    const [name, value] = partition(pair, '=').map((text) => unescapeText(text.replaceAll('+', ' '))) as [
      string,
      string,
    ]
    if (name !== '_escaped_fragment_') pairs.push([name, value])
    else if (!replaced) {
      pairs.push([name, state])
      replaced = true
    }
  }
  if (!replaced) pairs.push(['_escaped_fragment_', state])
  const query = pairs.map(([name, value]) => `${quoteForm(utf8(name))}=${quoteForm(utf8(value))}`).join('&')
  return joinUrl({ ...parts, query })
}

/** Pairs sorted by name, then value, as bytes; every value shown, even an empty one; a space as `+`. */
function canonicalQuery(query: string): string {
  if (query === '') return ''
  const pairs: [string, string][] = []
  for (const pair of query.split(/[&;]/)) {
    if (pair === '') continue
    const [name, value] = partition(pair.replaceAll('+', ' '), '=')
    pairs.push([unescapeBytes(name), unescapeBytes(value)])
  }
  pairs.sort(([nameA, valueA], [nameB, valueB]) => compare(nameA, nameB) || compare(valueA, valueB))
  return pairs.map(([name, value]) => `${quoteForm(name)}=${quoteForm(value)}`).join('&')
}

/** Splits as Python's urlsplit does, which neither resolves dot segments nor treats a backslash as a slash. */
function splitUrl(text: string, url: string): UrlParts {
  let scheme = ''
  let netloc = ''
  let rest = text
  const schemeMatch = /^([a-z][a-z0-9+.-]*):/i.exec(rest)
  if (schemeMatch !== null) {
    scheme = schemeMatch[1]!.toLowerCase()
    rest = rest.slice(schemeMatch[0].length)
  }
  if (rest.startsWith('//')) {
    const end = rest.slice(2).search(/[/?#]/)
    netloc = end < 0 ? rest.slice(2) : rest.slice(2, end + 2)
    rest = end < 0 ? '' : rest.slice(end + 2)
    checkNetloc(netloc, url)
  }
  const [beforeFragment, fragment] = partition(rest, '#')
  const [path, query] = partition(beforeFragment, '?')
  return { scheme, netloc, path, query, fragment }
}

function checkNetloc(netloc: string, url: string): void {
  const opens = netloc.includes('[')
  if (opens !== netloc.includes(']')) throw notAUrl(url, 'an unpaired bracket in the host')
  if (opens) checkBrackets(netloc, url)
  if (isAscii(netloc)) return
  // Some letters, such as U+2100, turn into `/` or `@` under IDNA: then the host would not be what it seems to be.
  const seen = netloc.replace(/[@:#?]/g, '')
  const meant = seen.normalize('NFKC')
  if (meant !== seen && /[/?#@:]/.test(meant)) throw notAUrl(url, 'a host that normalises to a delimiter')
}

function checkBrackets(netloc: string, url: string): void {
  const hostinfo = netloc.slice(netloc.lastIndexOf('@') + 1)
  const bracket = hostinfo.indexOf('[')
  let host = partition(hostinfo, ':')[0]
  if (bracket >= 0) {
    const [inside, after] = partition(hostinfo.slice(bracket + 1), ']')
    if (bracket > 0 || (after !== '' && !after.startsWith(':'))) throw notAUrl(url, 'text beside a bracketed host')
    host = inside
  }
  if (host.startsWith('v')) {
    if (!/^v[a-f0-9]+\.[^\n]+$/i.test(host)) throw notAUrl(url, 'a malformed address in brackets')
    return
  }
  const [address, zone] = partition(host, '%')
  const zoneIsFine = host.includes('%') ? zone !== '' && !zone.includes('%') : true
  if (!isIPv6(address) || !zoneIsFine) throw notAUrl(url, 'no IPv6 address in brackets')
}

function splitParams(scheme: string, path: string): [path: string, params: string] {
  if (!SCHEMES_WITH_PARAMS.has(scheme)) return [path, '']
  const semicolon = path.indexOf(';', Math.max(path.lastIndexOf('/'), 0))
  return semicolon < 0 ? [path, ''] : [path.slice(0, semicolon), path.slice(semicolon + 1)]
}

function joinUrl({ scheme, netloc, path, query, fragment }: UrlParts): string {
  let url = path
  if (netloc !== '' || (SCHEMES_WITH_NETLOC.has(scheme) && !url.startsWith('//'))) {
    if (url !== '' && !url.startsWith('/')) url = `/${url}`
    url = `//${netloc}${url}`
  }
  if (scheme !== '') url = `${scheme}:${url}`
  if (query !== '') url += `?${query}`
  if (fragment !== '') url += `#${fragment}`
  return url
}

/** Drops control characters and spaces at both ends, and tabs and line ends everywhere, as browsers do. */
function strip(text: string): string {
  let start = 0
  let end = text.length
  while (start < end && text.charCodeAt(start) <= 0x20) start++
  while (end > start && text.charCodeAt(end - 1) <= 0x20) end--
  return text.slice(start, end).replace(/[\t\n\r]/g, '')
}

function trimEndColons(text: string): string {
  let end = text.length
  while (text.endsWith(':', end)) end--
  return text.slice(0, end)
}

function quote(bytes: string, unsafe: RegExp): string {
  return bytes.replace(unsafe, (byte) => `%${byte.charCodeAt(0).toString(16).toUpperCase().padStart(2, '0')}`)
}

function quoteForm(bytes: string): string {
  return quote(bytes, UNSAFE_FORM).replaceAll('%20', '+')
}

/** A `%` that begins no valid escape stays. */
function unescapeBytes(bytes: string): string {
  if (!bytes.includes('%')) return bytes
  return bytes.replace(/%([0-9a-f]{2})/gi, (_, hex) => String.fromCharCode(Number.parseInt(hex, 16)))
}

/** Runs of ASCII are decoded each by itself: an escape never completes a character that is written out beside it. */
function unescapeText(text: string): string {
  if (!text.includes('%')) return text
  return text.replace(/[\x00-\x7f]+/g, (run) => Buffer.from(unescapeBytes(run), 'latin1').toString('utf8'))
}

function utf8(text: string): string {
  return isAscii(text) ? text : Buffer.from(text, 'utf8').toString('latin1')
}

function compare(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0
}

function notAUrl(url: string, found: string): TypeError {
  const shown = url.length > 200 ? `${url.slice(0, 200)}…` : url
  return new TypeError(
    `Not the URL of a request: found ${found}, expected scheme://host/path, in ${JSON.stringify(shown)}`,
  )
}
