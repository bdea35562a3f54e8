/**
 * Binary heap whose elements know their position, so that any of them can move or leave in O(log n). An element is in at
 * most one such heap per position field.
 */
import { assert } from '../assert.js'

export class IndexedHeap<T> {
  private readonly items: T[] = []
  private readonly before: (a: T, b: T) => boolean
  private readonly getIndex: (item: T) => number
  private readonly setIndex: (item: T, index: number) => void

  /** `setIndex(item, -1)` marks an element that is in no heap. */
  constructor(
    before: (a: T, b: T) => boolean,
    getIndex: (item: T) => number,
    setIndex: (item: T, index: number) => void,
  ) {
    this.before = before
    this.getIndex = getIndex
    this.setIndex = setIndex
  }

  get size(): number {
    return this.items.length
  }

  peek(): T | undefined {
    return this.items[0]
  }

  has(item: T): boolean {
    return this.getIndex(item) >= 0
  }

  push(item: T): void {
    assert(this.getIndex(item) < 0, 'not in the heap yet')
    this.items.push(item)
    this.up(item, this.items.length - 1)
  }

  pop(): T | undefined {
    const top = this.items[0]
    if (top !== undefined) this.remove(top)
    return top
  }

  remove(item: T): void {
    const index = this.getIndex(item)
    assert(this.items[index] === item, 'in the heap')
    this.setIndex(item, -1)
    const last = this.items.pop() as T
    if (last === item) return
    this.place(last, index)
  }

  /** The element's key changed: puts it where it belongs. */
  update(item: T): void {
    const index = this.getIndex(item)
    assert(this.items[index] === item, 'in the heap')
    this.place(item, index)
  }

  private place(item: T, index: number): void {
    if (index > 0 && this.before(item, this.items[(index - 1) >>> 1])) this.up(item, index)
    else this.down(item, index)
  }

  private up(item: T, from: number): void {
    let index = from
    while (index > 0) {
      const parent = (index - 1) >>> 1
      const other = this.items[parent]
      if (!this.before(item, other)) break
      this.items[index] = other
      this.setIndex(other, index)
      index = parent
    }
    this.items[index] = item
    this.setIndex(item, index)
  }

  private down(item: T, from: number): void {
    const { items } = this
    const half = items.length >>> 1
    let index = from
    while (index < half) {
      let child = 2 * index + 1
      if (child + 1 < items.length && this.before(items[child + 1], items[child])) child++
      const other = items[child]
      if (!this.before(other, item)) break
      items[index] = other
      this.setIndex(other, index)
      index = child
    }
    items[index] = item
    this.setIndex(item, index)
  }

  values(): readonly T[] {
    return this.items
  }
}
