/**
 * Which keys of a batch have to be looked for in the runs, in the order of their first words: keys that lie in one page come
 * one after the other, so that a page is read once for all of them. Memory is kept from batch to batch.
 */
import { assert } from '../assert.js'

/** A first word and a position together fit the 53 bits of a double exactly. */
const POSITION_BITS = 21
const POSITIONS = 2 ** POSITION_BITS
/** Fewer are left as they came: there is no page to share. */
const SORT_MIN = 8

export class KeyBatch {
  /** First word times POSITIONS, plus position: sorting these numbers sorts by word. */
  private items = new Float64Array(128)
  private positions = new Uint32Array(128)
  private length = 0

  begin(count: number): void {
    assert(count <= POSITIONS, 'positions fit beside the words')
    this.length = 0
    if (this.items.length >= count) return
    this.items = new Float64Array(count)
    this.positions = new Uint32Array(count)
  }

  push(position: number, firstWord: number): void {
    this.items[this.length++] = firstWord * POSITIONS + position
  }

  /** Their positions. Of use until the next `begin`. */
  sorted(): Uint32Array {
    const { items, positions, length } = this
    if (length >= SORT_MIN) items.subarray(0, length).sort()
    for (let i = 0; i < length; i++) positions[i] = items[i] % POSITIONS
    return positions.subarray(0, length)
  }
}
