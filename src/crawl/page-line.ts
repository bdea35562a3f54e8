/** One finished page as one line of the output: the shape, and how it becomes text. Every line has the same keys. */
/** The `error` of a page that robots.txt forbids: a rule that was kept, not a failure. */
export const ROBOTS_ERROR = 'robots'

export interface PageLine {
  readonly url: string
  /** null when no answer came, and when robots.txt forbade asking. */
  readonly status: number | null
  /** Links away from a seed; seeds are 0. A redirect does not count as a step. */
  readonly depth: number
  /** The page whose link (or redirect) led here; null for a seed. */
  readonly referer: string | null
  /** ISO time at which the page was settled. */
  readonly fetchedAt: string
  readonly contentType: string | null
  /** Of the body, decompressed; at most `--max-bytes`. */
  readonly bytes: number
  readonly title: string | null
  /** Absolute, without fragments, each once, in the order of the page; for a redirect its target. */
  readonly links: readonly string[]
  /** Of the body, hex. */
  readonly sha256: string | null
  /** Why the page is not what it should be: 'robots', 'too large', 'HTTP 500', 'ECONNREFUSED' … */
  readonly error?: string
}

export function encodePageLine(line: PageLine): Buffer {
  return Buffer.from(`${JSON.stringify(line)}\n`)
}
