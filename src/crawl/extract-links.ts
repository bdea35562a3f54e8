/**
 * Title and links of an HTML page. Fed in pieces, so that a large page can be parsed in slices with pauses between.
 *
 * Invariant: memory and time are bounded by LINKS_MAX, LINK_CHARS_MAX and LINKS_CHARS_MAX whatever the page holds. A
 * hostile page can make each of a million short links long through its `<base>`.
 */
import { Parser } from 'htmlparser2'

/** Links kept of one page. More is a link farm or a trap. */
export const LINKS_MAX = 50_000
/** Longer URLs are dropped: servers refuse them, and nobody means them. */
export const LINK_CHARS_MAX = 8 * 1024
/** All links of one page together: they travel in one atomic commit, which has a limit. */
export const LINKS_CHARS_MAX = 8 * 1024 * 1024
const TITLE_CHARS_MAX = 1000

export interface PageContents {
  /** Text of the first title, white space folded; null when there is none or it is empty. */
  readonly title: string | null
  /** Absolute http(s) URLs without fragments, each once, in order. Empty when the page says nofollow. */
  readonly links: string[]
}

export class LinkExtractor {
  readonly #url: string
  /** Raw `href`s, resolved only at the end: a `<base>` also counts for links before it. */
  readonly #hrefs: string[] = []
  readonly #seen = new Set<string>()
  readonly #parser: Parser
  #base: string | undefined
  #nofollow: boolean
  #title = ''
  #titleState: 'before' | 'inside' | 'after' = 'before'
  /** Drawings have titles of their own. */
  #svgDepth = 0

  constructor(url: string, options: { readonly nofollow?: boolean } = {}) {
    this.#url = url
    this.#nofollow = options.nofollow ?? false
    this.#parser = new Parser({
      onopentag: (name, attributes) => this.#open(name, attributes),
      ontext: (text) => {
        if (this.#titleState === 'inside' && this.#title.length < TITLE_CHARS_MAX) this.#title += text
      },
      onclosetag: (name) => {
        if (name === 'svg') this.#svgDepth = Math.max(0, this.#svgDepth - 1)
        if (name === 'title' && this.#titleState === 'inside') this.#titleState = 'after'
      },
    })
  }

  write(html: string): void {
    this.#parser.write(html)
  }

  end(): PageContents {
    this.#parser.end()
    const title = this.#title.replace(/\s+/g, ' ').trim().slice(0, TITLE_CHARS_MAX)
    return { title: title === '' ? null : title, links: this.#nofollow ? [] : this.#resolve() }
  }

  #open(name: string, attributes: Record<string, string>): void {
    if (name === 'svg') this.#svgDepth++
    else if (name === 'title') {
      if (this.#titleState === 'before' && this.#svgDepth === 0) this.#titleState = 'inside'
    } else if (name === 'a' || name === 'area') {
      // `rel=nofollow` is followed: it speaks about endorsement, not about permission.
      const { href } = attributes
      if (href === undefined || href.length > LINK_CHARS_MAX || this.#seen.has(href)) return
      if (this.#hrefs.length >= LINKS_MAX) return
      this.#seen.add(href)
      this.#hrefs.push(href)
    } else if (name === 'base') {
      // The first that has an href counts, also when it is no URL.
      if (this.#base === undefined && attributes['href'] !== undefined) this.#base = attributes['href']
    } else if (name === 'meta' && attributes['name']?.trim().toLowerCase() === 'robots') {
      if (saysNofollow(attributes['content'])) this.#nofollow = true
    }
  }

  #resolve(): string[] {
    const base = this.#baseUrl()
    const links = new Set<string>()
    let chars = 0
    for (const href of this.#hrefs) {
      const link = resolveLink(href, base)
      if (link === undefined || links.has(link)) continue
      chars += link.length
      if (chars > LINKS_CHARS_MAX) break
      links.add(link)
    }
    return [...links]
  }

  #baseUrl(): string {
    if (this.#base === undefined || this.#base.length > LINK_CHARS_MAX) return this.#url
    return resolveLink(this.#base, this.#url) ?? this.#url
  }
}

/** Absolute URL without its fragment; undefined for what cannot be fetched: other schemes, nonsense, overlong. */
export function resolveLink(href: string, base: string): string | undefined {
  if (!URL.canParse(href, base)) return undefined
  const url = new URL(href, base)
  if (url.protocol !== 'http:' && url.protocol !== 'https:') return undefined
  url.hash = ''
  return url.href.length > LINK_CHARS_MAX ? undefined : url.href
}

/** Of a robots `<meta>` or an `X-Robots-Tag`: directives with a robot's name in front are not for us. */
export function saysNofollow(directives: string | undefined): boolean {
  if (directives === undefined) return false
  return directives
    .toLowerCase()
    .split(',')
    .some((directive) => {
      const word = directive.trim()
      return word === 'nofollow' || word === 'none'
    })
}

/** A whole page at once. */
export function extractLinks(html: string, url: string): PageContents {
  const extractor = new LinkExtractor(url)
  extractor.write(html)
  return extractor.end()
}
