/**
 * Which links a crawl follows. Invariant: the seeds are always inside, so that a crawl never refuses what it was asked
 * for; everything else is decided by the URL alone, so that a resumed crawl decides as the first run did.
 */
import { isIP } from 'node:net'

/**
 * `host`: the host (and port) of a seed. `domain`: its registrable domain, approximated by the last two labels; no list
 * of public suffixes is used, so `example.co.uk` gives all of `co.uk`. `prefix`: below a seed's directory.
 */
export type ScopeKind = 'host' | 'domain' | 'prefix' | 'any'

export const SCOPE_KINDS: readonly ScopeKind[] = ['host', 'domain', 'prefix', 'any']

/** Seeds may lead elsewhere (http to https, example.org to www.example.org); a redirect loop must not grow the scope for ever. */
const SEEDS_MAX = 10_000

export class Scope {
  readonly kind: ScopeKind
  readonly #keys = new Set<string>()

  constructor(kind: ScopeKind, seeds: Iterable<string>) {
    this.kind = kind
    for (const seed of seeds) this.admit(seed)
  }

  /** Counts `url` as one more seed. */
  admit(url: string): void {
    if (this.kind === 'any' || this.#keys.size >= SEEDS_MAX) return
    this.#keys.add(keyOf(this.kind, new URL(url)))
  }

  includes(url: string): boolean {
    if (this.kind === 'any') return true
    const parsed = new URL(url)
    if (this.kind !== 'prefix') return this.#keys.has(keyOf(this.kind, parsed))
    // One look-up per directory of the path, not one comparison per seed: a crawl may have thousands of seeds.
    const { pathname } = parsed
    for (let end = pathname.indexOf('/'); end !== -1; end = pathname.indexOf('/', end + 1)) {
      if (this.#keys.has(parsed.origin + pathname.slice(0, end + 1))) return true
    }
    return false
  }
}

function keyOf(kind: Exclude<ScopeKind, 'any'>, url: URL): string {
  if (kind === 'host') return url.host
  if (kind === 'domain') return domainOf(url.hostname)
  return url.origin + url.pathname.slice(0, url.pathname.lastIndexOf('/') + 1)
}

/** The last two labels; an IP address or a single label stands for itself. */
export function domainOf(hostname: string): string {
  const bare = hostname.startsWith('[') ? hostname.slice(1, -1) : hostname
  if (isIP(bare) !== 0) return hostname
  const labels = hostname.replace(/\.$/, '').split('.')
  return labels.slice(-2).join('.')
}
