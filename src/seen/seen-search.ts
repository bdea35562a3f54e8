/** Finding a key among ascending ones: fences, the keys of a page, the first keys of filters. */
import { compareKeys, KEY_WORDS, type Probe } from './seen-key.js'

/** Few are searched from the middle: a guess has nothing to win there. */
const GUESS_MIN = 32

/**
 * Of ascending keys (four words each) at places `from` to `to`, the last one that is not above the probe; `from` - 1 when
 * there is none. The first words say about where it must be when keys are spread evenly, as fingerprints are; from there the
 * steps double until the probe is between two of them, so that keys of any other kind cost no more than halving would.
 */
export function lastNotAbove(keys: Uint32Array, from: number, to: number, probe: Probe): number {
  const word = probe[0]
  let low = from
  let high = to
  if (high - low > GUESS_MIN) {
    const first = keys[low * KEY_WORDS]
    const last = keys[(high - 1) * KEY_WORDS]
    if (word > first && word < last) {
      const guess = low + Math.floor(((word - first) / (last - first)) * (high - 1 - low))
      let step = 4
      if (compareKeys(keys, guess * KEY_WORDS, probe, 0) <= 0) {
        low = guess + 1
        while (low + step < high && compareKeys(keys, (low + step) * KEY_WORDS, probe, 0) <= 0) {
          low += step + 1
          step *= 2
        }
        high = Math.min(high, low + step)
      } else {
        high = guess
        while (high - step > from && compareKeys(keys, (high - step) * KEY_WORDS, probe, 0) > 0) {
          high -= step
          step *= 2
        }
        low = Math.max(from, high - step)
      }
    }
  }
  while (low < high) {
    const middle = (low + high) >>> 1
    const found = keys[middle * KEY_WORDS]
    if (found < word || (found === word && compareKeys(keys, middle * KEY_WORDS, probe, 0) <= 0)) low = middle + 1
    else high = middle
  }
  return low - 1
}
