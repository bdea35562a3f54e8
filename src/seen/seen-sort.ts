/**
 * The entries of a table in ascending order, made in steps. Spread keys are thrown into 65536 heaps by their first digit of
 * 16 bits and each small heap is sorted in place. Where one heap is large (counters, keys with a common beginning), a radix
 * sort over all digits takes over: its time does not depend on how the keys are spread, so no step gets long.
 */
import { compareKeys, KEY_WORDS } from './seen-key.js'
import { type Steps, touch } from './seen-slices.js'
import { type SeenTable, SHARD_COUNT } from './seen-table.js'

/** A copy of a table's entries, in any order: the table may change or grow while this is read. */
export interface TableEntries {
  readonly count: number
  readonly words: Uint32Array<ArrayBuffer>
  readonly states: Uint8Array<ArrayBuffer>
}

/** What the copy and its order take for each entry. */
export const ENTRY_BYTES = KEY_WORDS * 4 + 1 + 2 * 4

export interface SortedEntries extends TableEntries {
  /** Positions in `words` and `states`, in ascending order of the keys. */
  readonly order: Uint32Array
}

/** Memory for the order, for who sorts many tables: as garbage it would be collected late. In use until the next sorting. */
export class SortScratch {
  private arrays = [new Uint32Array(0), new Uint32Array(0)]

  /** Two arrays of this length, with anything in them. */
  take(length: number): [Uint32Array, Uint32Array] {
    if (this.arrays[0].length < length) this.arrays = [new Uint32Array(length), new Uint32Array(length)]
    return [this.arrays[0].subarray(0, length), this.arrays[1].subarray(0, length)]
  }
}

const DIGIT_BITS = 16
const DIGITS = 1 << DIGIT_BITS
/** Below this, comparing is cheaper than the passes over all digit values. */
const RADIX_ENTRIES_MIN = 2048
/** A heap of more is not sorted by insertion. */
const HEAP_ENTRIES_MAX = 256
const STEP = 8192

/** Entries that leave the table meanwhile may or may not be in the result; none may come in. */
export function* copyTable(table: SeenTable): Steps<TableEntries> {
  const words = new Uint32Array(table.count * KEY_WORDS)
  const states = new Uint8Array(table.count)
  let count = 0
  for (let shard = 0; shard < SHARD_COUNT; shard++) {
    count = table.copyShard(shard, words, states, count)
    yield
  }
  return { count, words, states }
}

export function* sortTable(table: SeenTable): Steps<SortedEntries> {
  return yield* sortEntries(yield* copyTable(table))
}

export function* sortEntries(
  { count, words, states }: TableEntries,
  scratch = new SortScratch(),
): Steps<SortedEntries> {
  const [order, other] = scratch.take(count)
  for (let i = 0; i < count; i++) {
    if (i % STEP === STEP - 1) yield
    order[i] = i
  }
  if (count >= RADIX_ENTRIES_MIN) return { count, words, states, order: yield* sortLarge(words, order, other) }
  order.sort((a, b) => compareKeys(words, a * KEY_WORDS, words, b * KEY_WORDS))
  return { count, words, states, order }
}

function* sortLarge(words: Uint32Array, positions: Uint32Array, other: Uint32Array): Steps<Uint32Array> {
  const counts = yield* countDigits(words, positions, 0)
  let largest = 0
  for (let value = 0; value < DIGITS; value++) if (counts[value] > largest) largest = counts[value]
  if (largest > HEAP_ENTRIES_MAX) return yield* radixSort(words, positions, other)
  const order = yield* touch(other)
  yield* scatter(words, positions, order, counts, 0)
  // `scatter` left in each count where the heap ends.
  let start = 0
  let sorted = 0
  for (let value = 0; value < DIGITS; value++) {
    insertionSort(words, order, start, counts[value])
    start = counts[value]
    if (start - sorted < STEP / 8) continue
    sorted = start
    yield
  }
  return order
}

function insertionSort(words: Uint32Array, order: Uint32Array, start: number, end: number): void {
  for (let i = start + 1; i < end; i++) {
    const position = order[i]
    let j = i
    while (j > start && compareKeys(words, order[j - 1] * KEY_WORDS, words, position * KEY_WORDS) > 0) {
      order[j] = order[j - 1]
      j--
    }
    order[j] = position
  }
}

/** From the last digit to the first, each pass keeping the order that the one before made among equals. */
function* radixSort(words: Uint32Array, positions: Uint32Array, other: Uint32Array): Steps<Uint32Array> {
  let from = positions
  let to = yield* touch(other)
  for (let digit = KEY_WORDS * 2 - 1; digit >= 0; digit--) {
    const counts = yield* countDigits(words, from, digit)
    // The same digit everywhere, as in keys that count up: nothing to move.
    if (counts[digitOf(words, 0, digit)] === from.length) continue
    yield* scatter(words, from, to, counts, digit)
    ;[from, to] = [to, from]
  }
  return from
}

/** Digit 0 is the first, of most weight. */
function digitOf(words: Uint32Array, position: number, digit: number): number {
  return (words[position * KEY_WORDS + (digit >> 1)] >>> (digit & 1 ? 0 : DIGIT_BITS)) & (DIGITS - 1)
}

function* countDigits(words: Uint32Array, positions: Uint32Array, digit: number): Steps<Uint32Array> {
  const counts = new Uint32Array(DIGITS)
  for (let i = 0; i < positions.length; i++) {
    if (i % STEP === STEP - 1) yield
    counts[digitOf(words, i, digit)]++
  }
  return counts
}

/** Moves positions into the order of one digit. Turns each count into the end of its share of `to`. */
function* scatter(
  words: Uint32Array,
  from: Uint32Array,
  to: Uint32Array,
  counts: Uint32Array,
  digit: number,
): Steps<void> {
  let sum = 0
  for (let value = 0; value < DIGITS; value++) {
    const here = counts[value]
    counts[value] = sum
    sum += here
  }
  yield
  for (let i = 0; i < from.length; i++) {
    if (i % STEP === STEP - 1) yield
    to[counts[digitOf(words, from[i], digit)]++] = from[i]
  }
}
