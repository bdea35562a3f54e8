/** Our own invariants, checked always: a broken one is a bug here, never the caller's or the disk's fault. */
export function assert(condition: unknown, message = 'broken invariant'): asserts condition {
  if (!condition) throw new Error(`holdfast: ${message}`)
}
