/**
 * A binary heap of record numbers that knows where each of them stands, so that any can be moved or taken out in O(log n).
 * The order and the place where a record keeps its position are the owner's.
 */
export class IntHeap {
  private items = new Int32Array(16)
  size = 0
  private readonly less: (a: number, b: number) => boolean
  private readonly setPosition: (item: number, position: number) => void

  constructor(less: (a: number, b: number) => boolean, setPosition: (item: number, position: number) => void) {
    this.less = less
    this.setPosition = setPosition
  }

  /** -1 when it is empty. */
  peek(): number {
    return this.size === 0 ? -1 : this.items[0]
  }

  push(item: number): void {
    if (this.size === this.items.length) {
      const larger = new Int32Array(this.size * 2)
      larger.set(this.items)
      this.items = larger
    }
    this.up(item, this.size++)
  }

  /** The item at `position` may stand elsewhere now. */
  update(position: number): void {
    const item = this.items[position]
    if (position > 0 && this.less(item, this.items[(position - 1) >> 1])) this.up(item, position)
    else this.down(item, position)
  }

  remove(position: number): void {
    this.setPosition(this.items[position], -1)
    const last = this.items[--this.size]
    if (position === this.size) return
    this.items[position] = last
    this.update(position)
  }

  private up(item: number, from: number): void {
    const { items } = this
    let at = from
    while (at > 0) {
      const parent = (at - 1) >> 1
      if (!this.less(item, items[parent])) break
      items[at] = items[parent]
      this.setPosition(items[at], at)
      at = parent
    }
    items[at] = item
    this.setPosition(item, at)
  }

  private down(item: number, from: number): void {
    const { items, size } = this
    let at = from
    for (;;) {
      let child = at * 2 + 1
      if (child >= size) break
      if (child + 1 < size && this.less(items[child + 1], items[child])) child++
      if (!this.less(items[child], item)) break
      items[at] = items[child]
      this.setPosition(items[at], at)
      at = child
    }
    items[at] = item
    this.setPosition(item, at)
  }
}
