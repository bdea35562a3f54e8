import { readFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { canonicalUrl, hostName, safeUrl } from '../../src/seen/canonical-url.js'

interface CorpusLine {
  url: string
  keepFragments?: boolean
  error?: string
  safe: string
  canonical: string
  host: string
}

const fixture = (name: string) =>
  readFileSync(new URL(`../../fixtures/fingerprints/${name}`, import.meta.url), 'utf8')
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line))
const corpus: CorpusLine[] = fixture('corpus.jsonl')
const ipv6Hosts: { url: string; host: string; ours: string }[] = fixture('ipv6-hosts.jsonl')
const refused = corpus.filter((line) => line.error !== undefined)
const accepted = corpus.filter((line) => line.error === undefined)

describe('the corpus of what Scrapy answered', () => {
  test('is as large as it should be', () => {
    expect(accepted.length).toBeGreaterThan(5_000)
    expect(refused.length).toBeGreaterThan(500)
  })

  test('the URL of the request is the same', () => {
    expect(accepted.map(({ url }) => ({ url, safe: safeUrl(url) }))).toEqual(
      accepted.map(({ url, safe }) => ({ url, safe })),
    )
  })

  test('the canonical URL is the same', () => {
    const ours = accepted.map(({ url, keepFragments = false }) => ({
      url,
      canonical: canonicalUrl(url, { keepFragments }),
    }))
    expect(ours).toEqual(accepted.map(({ url, canonical }) => ({ url, canonical })))
  })

  test('the host is the same, but for the IPv6 addresses of the list', () => {
    const listed = new Map(ipv6Hosts.map(({ url, ours }) => [url, ours]))
    const theirs = accepted.map(({ url, host }) => ({ url, host: listed.get(url) ?? host }))
    expect(accepted.map(({ url }) => ({ url, host: hostName(url) }))).toEqual(theirs)
  })

  test('every host on the list is an address that Scrapy 2.8 cuts at its first colon', () => {
    expect(ipv6Hosts.length).toBeGreaterThan(100)
    for (const { host, ours } of ipv6Hosts) expect(host).toBe(ours.slice(0, ours.indexOf(':')))
  })

  test('what Scrapy refuses is a TypeError', () => {
    expect(
      refused.map(({ url, keepFragments = false }) => ({
        url,
        thrown: thrownBy(() => canonicalUrl(url, { keepFragments })),
      })),
    ).toEqual(refused.map(({ url }) => ({ url, thrown: 'TypeError' })))
  })
})

describe('what makes two URLs one page', () => {
  test.each([
    ['the order of query pairs', 'http://a.com/do?c=3&b=5&b=2&a=50', 'http://a.com/do?a=50&b=2&b=5&c=3'],
    ['sorted by name before value', 'http://a.com/?a-b=1&a=2', 'http://a.com/?a=2&a-b=1'],
    ['an absent value and an empty one', 'http://a.com/?b&a=', 'http://a.com/?a=&b='],
    ['the ways to write a space', 'http://a.com/?a=x%20y&b=x y', 'http://a.com/?a=x+y&b=x+y'],
    ['the case of an escape', 'http://a.com/%e9?a=%e9', 'http://a.com/%E9?a=%E9'],
    ['a needless escape', 'http://a.com/%61%7e', 'http://a.com/a~'],
    ['the case of scheme and host', 'HTTP://WWW.Example.COM:80/A', 'http://www.example.com:80/A'],
    ['a path left out', 'http://a.com', 'http://a.com/'],
    ['the fragment', 'http://a.com/a#b', 'http://a.com/a'],
    ['an international host', 'http://bücher.example/', 'http://xn--bcher-kva.example/'],
    ['the old script convention', 'http://a.com/p?z=1#!k=v', 'http://a.com/p?_escaped_fragment_=k%3Dv&z=1'],
    ['white space around and inside', ' http://a.com/\tb\n', 'http://a.com/b'],
  ])('%s', (_, url, canonical) => {
    expect(canonicalUrl(url)).toBe(canonical)
  })

  test.each([
    ['an escaped slash is not a slash', 'http://a.com/a%2fb', 'http://a.com/a%2Fb'],
    ['an escaped question mark begins no query', 'http://a.com/a%3fb', 'http://a.com/a%3Fb'],
    ['an escaped plus is not a space', 'http://a.com/?a=%2B', 'http://a.com/?a=%2B'],
    ['dot segments', 'http://a.com/a/../b/./c', 'http://a.com/a/../b/./c'],
    ['a default port', 'http://a.com:80/', 'http://a.com:80/'],
    ['an escape that is none', 'http://a.com/%zz%', 'http://a.com/%zz%'],
  ])('stays: %s', (_, url, canonical) => {
    expect(canonicalUrl(url)).toBe(canonical)
  })

  test('the fragment counts when asked', () => {
    expect(canonicalUrl('http://a.com/a#b c', { keepFragments: true })).toBe('http://a.com/a#b%20c')
  })
})

describe('international hosts follow IDNA 2003', () => {
  test.each([
    ['sharp s becomes two letters', 'faß.de', 'fass.de'],
    ['full-width letters and dots', 'ａｂｃ。ＣＯＭ', 'abc.com'],
    ['combining marks are composed', 'bu\u0308cher.example', 'xn--bcher-kva.example'],
    ['a soft hyphen is dropped', 'a\u00adb.com', 'ab.com'],
    ['an ideograph that later Unicode corrected', '\u{2F868}.com', 'xn--j74i.com'],
    ['a letter that later Unicode added stays as it is', '\u{10D50}.com', 'xn--gg0d.com'],
    ['a label that mixes directions stays as it is', 'אa.com', 'אa.com'],
    ['a private character stays as it is', '\ue000.com', '\ue000.com'],
    ['a label too long for DNS stays as it is', `${'é'.repeat(64)}.com`, `${'é'.repeat(64)}.com`],
    ['an empty label stays as it is', 'é..com', 'é..com'],
  ])('%s', (_, host, ascii) => {
    expect(hostName(`http://${host}/`)).toBe(ascii)
  })
})

describe('what no request can have', () => {
  test.each([
    ['no scheme', 'www.example.com/a'],
    ['a scheme without slashes', 'mailto:a@b.c'],
    ['an empty string', ''],
    ['a port out of range', 'http://a.com:65536/'],
    ['a port of letters', 'http://a.com:x/'],
    ['an unpaired bracket', 'http://[::1/'],
    ['brackets around a name', 'http://[a.com]/'],
    ['a host that normalises to a slash', 'http://a℀b.com/'],
    ['a lone surrogate in the path', 'http://a.com/\ud800'],
    ['a lone surrogate in the host', 'http://\udfff.com/'],
    ['a lone surrogate in the fragment', 'http://a.com/#\ud800'],
  ])('%s', (_, url) => {
    expect(() => canonicalUrl(url)).toThrow(TypeError)
    expect(() => hostName(url)).toThrow(TypeError)
  })

  test('the message says what was found, and where, in bounded length', () => {
    expect(() => canonicalUrl('http://a.com:99999/')).toThrow('port "99999"')
    expect(() => canonicalUrl(`${'x'.repeat(100_000)}`)).toThrow(/^.{0,400}$/)
  })

  test('very long parts are handled, not refused', () => {
    // Work that grew with the square of the length would not come to an end here.
    const many = 200_000
    expect(canonicalUrl(`http://${'é'.repeat(many)}.com/`)).toHaveLength(many + 12)
    expect(canonicalUrl(`http://a.com${' '.repeat(many)}x/`)).toHaveLength(many + 14)
    expect(canonicalUrl(`http://a.com/?${'&'.repeat(many)}`)).toBe('http://a.com/')
    expect(canonicalUrl(`http://a.com/${'%'.repeat(many)}`)).toHaveLength(many + 13)
  })
})

function thrownBy(call: () => unknown): string {
  try {
    call()
  } catch (error) {
    return (error as Error).name
  }
  return 'nothing'
}
