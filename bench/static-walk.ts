/**
 * What a crawl of a directory of HTML must find, worked out with regular expressions and a list: no queue, no parser and
 * no line of code in common with the crawler.
 */
import { answerFor, readHtml } from './static-files.js'

/** Identities of all URLs reachable from `start` on the same host. */
export function walkFiles(root: string, start: string): Set<string> {
  const host = new URL(start).host
  const urls = [start]
  const found = new Set([identity(start)])
  for (let i = 0; i < urls.length; i++) {
    const url = urls[i]
    const answer = answerFor(root, new URL(url).pathname)
    const html = readHtml(answer)
    const links =
      answer.kind === 'redirect' ? [new URL(answer.location, url)] : html === undefined ? [] : linksOf(html, url)
    for (const link of links) {
      if (link.host !== host || !/^https?:$/.test(link.protocol)) continue
      link.hash = ''
      const id = identity(link.href)
      if (found.has(id)) continue
      found.add(id)
      urls.push(link.href)
    }
  }
  return found
}

/** Two URLs that differ only in the order of their query or in needless escapes are one page. */
export function identity(url: string): string {
  const { origin, pathname, search } = new URL(url)
  const path = pathname
    .split('/')
    .map((part) => recode(part))
    .join('/')
  const pairs = search
    .slice(1)
    .split('&')
    .filter((pair) => pair !== '')
  return `${origin}${path}?${pairs
    .map((pair) => recode(pair.replaceAll('+', ' ')))
    .sort()
    .join('&')}`
}

function recode(part: string): string {
  try {
    return encodeURIComponent(decodeURIComponent(part))
  } catch {
    return part
  }
}

function linksOf(html: string, url: string): URL[] {
  const text = html
    .replace(/<!--[\s\S]*?-->/g, '')
    .replace(/<(script|style|textarea|title|xmp|iframe|noembed|noframes)\b[\s\S]*?<\/\1\s*>/gi, '')
  let base = url
  let baseSeen = false
  const hrefs: string[] = []
  for (const [tag, name] of text.matchAll(/<(a|area|base|meta)\b(?:"[^"]*"|'[^']*'|[^'">])*>/gi)) {
    const kind = name.toLowerCase()
    if (kind === 'meta') {
      if (
        attribute(tag, 'name')?.toLowerCase() === 'robots' &&
        /nofollow|none/i.test(attribute(tag, 'content') ?? '')
      ) {
        return []
      }
      continue
    }
    const href = attribute(tag, 'href')
    if (href === undefined) continue
    if (kind !== 'base') hrefs.push(href)
    else if (!baseSeen) {
      baseSeen = true
      base = URL.canParse(href, url) ? new URL(href, url).href : url
    }
  }
  return hrefs.filter((href) => URL.canParse(href, base)).map((href) => new URL(href, base))
}

function attribute(tag: string, name: string): string | undefined {
  const match = new RegExp(`[\\s"'/]${name}\\s*=\\s*(?:"([^"]*)"|'([^']*)'|([^\\s"'>]+))`, 'i').exec(tag)
  const raw = match?.[1] ?? match?.[2] ?? match?.[3]
  return raw
    ?.replace(/&#x([0-9a-f]+);/gi, (_, hex: string) => String.fromCodePoint(Number.parseInt(hex, 16)))
    .replace(/&#(\d+);/g, (_, digits: string) => String.fromCodePoint(Number(digits)))
    .replace(/&lt;/g, '<')
    .replace(/&gt;/g, '>')
    .replace(/&quot;/g, '"')
    .replace(/&amp;/g, '&')
}
