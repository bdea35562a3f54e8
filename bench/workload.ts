/**
 * The requests every benchmark works on: realistic URLs over 500 hosts, a few of which own most of the pages (Zipf), five
 * priorities, and small meta, about 200 bytes once encoded. Invariant: request `i` of a seed is the same request in every
 * process and every run, and its index can be read back from its URL, which is how the benchmarks check what they took.
 */

export const HOST_COUNT = 500
export const PRIORITY_COUNT = 5
export const LINKS_PER_PAGE = 50
/** Of the links of one page, those that lead to a request the frontier knows already. */
export const KNOWN_LINK_SHARE = 0.85
/** Pages that every site links to: half of all known links go to these few, as navigation bars make it in real crawls. */
const HOT_PAGE_COUNT = 2000
/** Weight of the host of rank r is 1 / r^ZIPF_EXPONENT. */
const ZIPF_EXPONENT = 1

export interface BenchRequest {
  readonly url: string
  readonly priority: number
  /** Depth and referer, as the crawler keeps them. */
  readonly meta: { readonly d: number; readonly r: string }
}

export interface BenchPage {
  readonly links: readonly BenchRequest[]
  /** Those of the links that were in no page before. */
  readonly fresh: readonly BenchRequest[]
}

const DOMAINS = ['example.org', 'example.net', 'test.example', 'news.example', 'shop.example', 'wiki.example']
const SECTIONS = ['articles', 'products', 'docs/reference', 'blog/archive', 'category/tools', 'forum/thread']
const WORDS =
  'stone harbour winter garden silver bridge engine northern market signal copper lantern valley paper'.split(' ')

/** Numbers in [0, 1) that depend on the seed and the index alone, so that any request can be made without its neighbours. */
function numbersOf(seed: number, index: number): () => number {
  let state = (Math.imul(seed, 0x85ebca6b) ^ Math.imul(index + 1, 0x9e3779b1)) >>> 0
  return () => {
    state = (state + 0x6d2b79f5) >>> 0
    let mixed = Math.imul(state ^ (state >>> 15), state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
}

export class Workload {
  readonly seed: number
  private readonly hosts: string[] = []
  /** Of the ranks up to and with this one, the share of all requests. */
  private readonly cumulative = new Float64Array(HOST_COUNT)

  constructor(seed: number) {
    this.seed = seed
    let sum = 0
    for (let rank = 0; rank < HOST_COUNT; rank++) {
      const word = WORDS[rank % WORDS.length]
      this.hosts.push(`www.${word}${rank}.${DOMAINS[rank % DOMAINS.length]}`)
      sum += 1 / (rank + 1) ** ZIPF_EXPONENT
      this.cumulative[rank] = sum
    }
    for (let rank = 0; rank < HOST_COUNT; rank++) this.cumulative[rank] /= sum
  }

  /** The first rank whose cumulative share exceeds `at`. */
  private hostAt(at: number): string {
    let low = 0
    let high = HOST_COUNT - 1
    while (low < high) {
      const middle = (low + high) >>> 1
      if (this.cumulative[middle] > at) high = middle
      else low = middle + 1
    }
    return this.hosts[low]
  }

  request(index: number): BenchRequest {
    const next = numbersOf(this.seed, index)
    const host = this.hostAt(next())
    const word = (): string => WORDS[Math.floor(next() * WORDS.length)]
    const section = SECTIONS[Math.floor(next() * SECTIONS.length)]
    const kind = next()
    // One in ten has a query that is sorted already, one in twenty one that canonicalising has to sort.
    const query = kind < 0.1 ? `?page=${index % 40}&sort=date` : kind < 0.15 ? `?sort=price&page=${index % 40}` : ''
    return {
      url: flat(`https://${host}/${section}/${word()}-${word()}-${index.toString(36)}.html${query}`),
      priority: Math.floor(next() * PRIORITY_COUNT) - 2,
      meta: { d: index % 12, r: flat(`https://${host}/${section}/${word()}-${word()}.html`) },
    }
  }

  /** `count` requests from index `first` on. Made before the clock starts: making them is nobody's cost. */
  requests(first: number, count: number): BenchRequest[] {
    return Array.from({ length: count }, (_, offset) => this.request(first + offset))
  }

  /**
   * What `count` crawled pages link to, when the requests 0 to `knownCount` - 1 are known before. A page may link twice to
   * the same known request, never twice to a fresh one; fresh ones of earlier pages are known to later pages.
   */
  pages(count: number, knownCount: number): BenchPage[] {
    const next = numbersOf(this.seed ^ 0x5bd1e995, knownCount)
    const pages: BenchPage[] = []
    let known = knownCount
    let owed = 0
    for (let page = 0; page < count; page++) {
      // Carrying the fraction over makes the share exact over the run: 7 and 8 fresh links in turn, not 7.5.
      owed += LINKS_PER_PAGE * (1 - KNOWN_LINK_SHARE)
      const freshCount = Math.floor(owed + 1e-9)
      owed -= freshCount
      const fresh = this.requests(known, freshCount)
      const links: BenchRequest[] = [...fresh]
      while (links.length < LINKS_PER_PAGE) {
        const hot = next() < 0.5
        const index = Math.floor(next() * (hot ? Math.min(HOT_PAGE_COUNT, known) : known))
        links.splice(Math.floor(next() * (links.length + 1)), 0, this.request(index))
      }
      known += freshCount
      pages.push({ links, fresh })
    }
    return pages
  }
}

/**
 * The same text in one piece. A template literal leaves a rope that the first reader pays to join: Holdfast would pay for
 * it and the floor, which gets the same strings after it, would not. Links that come out of a parser are in one piece too.
 */
function flat(ascii: string): string {
  return Buffer.from(ascii, 'latin1').toString('latin1')
}

/** The index a request was made from. Throws when the URL is not one of ours: something handed out what nobody added. */
export function indexOfUrl(url: string): number {
  const found = /-([0-9a-z]+)\.html/.exec(url)
  const index = found === null ? Number.NaN : Number.parseInt(found[1], 36)
  if (!Number.isSafeInteger(index)) throw new Error(`${url} is not a URL of the workload`)
  return index
}

/** The host, which is the slot. Not by `new URL`: the floor would pay for a parse that the store does not need either. */
export function slotOfUrl(url: string): string {
  const start = 'https://'.length
  return url.slice(start, url.indexOf('/', start))
}
