/**
 * The texts of URLs that were found to be seen lately: most links of a page (its navigation) stood on the page before, and
 * need neither a canonical form nor a hash to be told again.
 *
 * Invariants: every text in it is the URL of a request (GET, no body) whose fingerprint is in the seen-set; so it is emptied
 * whenever a fingerprint leaves the set. Texts are copies: a link that is a slice of its page must not keep the page alive.
 */

/** Of each of the two generations: the older goes when the younger is full. */
const URLS_MAX = 8192
/** Longer ones are rare, and would make the memory this takes hard to foretell. About 4 MB at the most, 2 MB mostly. */
const CHARS_MAX = 256

export class RecentUrls {
  private younger = new Set<string>()
  private older = new Set<string>()
  private readonly scratch = Buffer.allocUnsafeSlow(CHARS_MAX)
  private removals = 0

  /** `removals` counts the fingerprints that ever left the seen-set. */
  has(url: string, removals: number): boolean {
    if (removals !== this.removals) this.clear(removals)
    if (this.younger.has(url)) return true
    if (!this.older.has(url)) return false
    // Asked for again, so it is worth another generation: the copy that is there already is moved.
    this.put(url)
    return true
  }

  add(url: string, removals: number): void {
    if (removals !== this.removals) this.clear(removals)
    this.put(url)
  }

  private put(url: string): void {
    const { length } = url
    if (length > CHARS_MAX) return
    // Anything but Latin-1 would not survive the copy.
    this.scratch.latin1Write(url, 0, length)
    const copy = this.scratch.latin1Slice(0, length)
    if (copy !== url) return
    if (this.younger.size >= URLS_MAX) {
      this.older = this.younger
      this.younger = new Set()
    }
    this.younger.add(copy)
  }

  private clear(removals: number): void {
    this.removals = removals
    this.younger = new Set()
    this.older = new Set()
  }
}
