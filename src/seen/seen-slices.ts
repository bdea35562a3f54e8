/**
 * Long work cut into slices. Sorting, merging and filter building are generators that yield every few hundred
 * microseconds; who runs them decides whether to go straight through (tools) or to let other work in (checkpoints).
 */
import type { Clock } from '../env/clock.js'

export type Steps<T> = Generator<void, T, void>

/** Keys handled between two yields of a generator. */
export const STEP_KEYS = 512
/** A slice ends after this many steps even if the clock stands still, as a simulated one does. */
const SLICE_STEPS_MAX = 32

/** Bytes of new memory taken into use between two yields. */
const TOUCH_BYTES = 256 * 1024

/**
 * Takes new memory into use piece by piece. The system hands out a page at its first touch; a loop that jumps about in a
 * new array pays for thousands of pages in its first step, which can be felt.
 */
export function* touch<T extends Uint8Array | Uint32Array>(array: T): Steps<T> {
  const length = TOUCH_BYTES / array.BYTES_PER_ELEMENT
  for (let at = 0; at < array.length; at += length) {
    array.fill(0, at, at + length)
    yield
  }
  return array
}

export function runAtOnce<T>(steps: Steps<T>): T {
  for (;;) {
    const step = steps.next()
    if (step.done) return step.value
  }
}

/**
 * Runs in slices of about `sliceMs`. `assertWanted` is asked whenever other work may have run; what it throws ends the
 * work through the generator's `finally`.
 */
export async function runInSlices<T>(
  steps: Steps<T>,
  clock: Clock,
  sliceMs: number,
  assertWanted: () => void,
): Promise<T> {
  try {
    let startMs = clock.monotonic()
    for (let count = 1; ; count++) {
      const step = steps.next()
      if (step.done) return step.value
      if (count < SLICE_STEPS_MAX && clock.monotonic() - startMs < sliceMs) continue
      await clock.yield()
      assertWanted()
      startMs = clock.monotonic()
      count = 0
    }
  } finally {
    steps.return(undefined as never)
  }
}
