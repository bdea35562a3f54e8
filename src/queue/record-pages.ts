/**
 * Records of a few 32-bit words each, by number, in pages that never move: a million of them cost their words and nothing
 * else, and growing never copies what is there. A freed record's number is given out again.
 *
 * Who keeps records here reads and writes the words itself, `pages[n >>> PAGE_BITS][(n & PAGE_MASK) * words + field]`:
 * this is the innermost data of the queue.
 */
import { assert } from '../assert.js'

export const PAGE_BITS = 10
export const PAGE_MASK = (1 << PAGE_BITS) - 1
const NONE = -1

export class RecordPages {
  readonly pages: Int32Array[] = []
  /** The same memory for fields that are 64-bit numbers; their place must be even. */
  readonly floats: Float64Array[] = []
  readonly words: number
  /** Records in use. */
  count = 0
  /** One above the highest number ever given out. */
  end = 0
  private firstFree = NONE

  constructor(words: number) {
    assert(words % 2 === 0, 'records keep 64-bit fields aligned')
    this.words = words
  }

  /** The words of a reused record hold what they held; those of a new one are 0. */
  allocate(): number {
    this.count++
    const reused = this.firstFree
    if (reused !== NONE) {
      this.firstFree = this.pages[reused >>> PAGE_BITS][(reused & PAGE_MASK) * this.words]
      return reused
    }
    if (this.end >>> PAGE_BITS === this.pages.length) {
      const page = new Int32Array(this.words << PAGE_BITS)
      this.pages.push(page)
      this.floats.push(new Float64Array(page.buffer))
    }
    return this.end++
  }

  free(record: number): void {
    this.count--
    this.pages[record >>> PAGE_BITS][(record & PAGE_MASK) * this.words] = this.firstFree
    this.firstFree = record
  }
}
