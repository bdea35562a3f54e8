/**
 * The entries of a table in ascending order, made in steps. A radix sort over 16-bit digits: its time does not depend on
 * how the keys are spread, so neither counters nor keys with a common beginning make one step long.
 */
import { compareKeys, KEY_WORDS } from './seen-key.js'
import type { Steps } from './seen-slices.js'
import { type SeenTable, SHARD_COUNT } from './seen-table.js'

/** A copy of a table's entries: the table may change or grow while this is read. */
export interface SortedEntries {
  readonly count: number
  readonly words: Uint32Array
  readonly states: Uint8Array
  /** Positions in `words` and `states`, in ascending order of the keys. */
  readonly order: Uint32Array
}

const DIGIT_BITS = 16
const DIGITS = 1 << DIGIT_BITS
/** Below this, comparing is cheaper than the passes over all digit values. */
const RADIX_ENTRIES_MIN = 2048
const STEP = 8192

/** Entries that leave the table meanwhile may or may not be in the result; none may come in. */
export function* sortTable(table: SeenTable): Steps<SortedEntries> {
  const words = new Uint32Array(table.count * KEY_WORDS)
  const states = new Uint8Array(table.count)
  let count = 0
  for (let shard = 0; shard < SHARD_COUNT; shard++) {
    count = table.copyShard(shard, words, states, count)
    yield
  }
  const order = new Uint32Array(count)
  for (let i = 0; i < count; i++) order[i] = i
  if (count >= RADIX_ENTRIES_MIN) return { count, words, states, order: yield* radixSort(words, order) }
  order.sort((a, b) => compareKeys(words, a * KEY_WORDS, words, b * KEY_WORDS))
  return { count, words, states, order }
}

/** From the last digit to the first, each pass keeping the order that the one before made among equals. */
function* radixSort(words: Uint32Array, positions: Uint32Array): Steps<Uint32Array> {
  let from: Uint32Array = positions
  let to: Uint32Array = new Uint32Array(from.length)
  const starts = new Uint32Array(DIGITS)
  for (let digit = KEY_WORDS * 2 - 1; digit >= 0; digit--) {
    const word = digit >> 1
    const shift = digit & 1 ? 0 : DIGIT_BITS
    starts.fill(0)
    for (let i = 0; i < from.length; i++) {
      if (i % STEP === STEP - 1) yield
      starts[(words[i * KEY_WORDS + word] >>> shift) & 0xffff]++
    }
    // The same digit everywhere, as in keys that count up: nothing to move.
    if (starts[(words[word] >>> shift) & 0xffff] === from.length) continue
    let sum = 0
    for (let value = 0; value < DIGITS; value++) {
      const here = starts[value]
      starts[value] = sum
      sum += here
    }
    yield
    for (let i = 0; i < from.length; i++) {
      if (i % STEP === STEP - 1) yield
      const position = from[i]
      to[starts[(words[position * KEY_WORDS + word] >>> shift) & 0xffff]++] = position
    }
    ;[from, to] = [to, from]
  }
  return from
}
