/** A set of whole numbers that lie close together, a bit each: the ids of all jobs of a large frontier fit in memory. */

const PAGE_BITS = 1 << 16

export class IdSet {
  private readonly pages = new Map<number, Uint8Array>()

  has(id: number): boolean {
    const page = this.pages.get(Math.floor(id / PAGE_BITS))
    const bit = id % PAGE_BITS
    return page !== undefined && (page[bit >>> 3] & (1 << (bit & 7))) !== 0
  }

  /** False if it was in it already. */
  add(id: number): boolean {
    const number = Math.floor(id / PAGE_BITS)
    let page = this.pages.get(number)
    if (page === undefined) {
      page = new Uint8Array(PAGE_BITS / 8)
      this.pages.set(number, page)
    }
    const bit = id % PAGE_BITS
    const mask = 1 << (bit & 7)
    if (page[bit >>> 3] & mask) return false
    page[bit >>> 3] |= mask
    return true
  }
}
