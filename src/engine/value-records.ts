/** The user's key/values as records: encoded at once, applied when the batch is written, bounded all together. */
import { ByteWriter } from '../bytes/byte-writer.js'
import { HoldfastError } from '../errors.js'
import { STATE_BYTES_MAX } from '../limits.js'
import * as F from '../store/format.js'
import { writeValue } from './codec.js'
import type { StoreState } from './store-state.js'

export function writeValues(
  state: StoreState,
  writer: ByteWriter,
  values: Record<string, unknown>,
): { records: number; apply: () => void; undo: () => void } {
  const changes: [string, Buffer | undefined][] = []
  // What waits in this batch counts as well: two calls of one turn must not pass the bound together.
  const before = state.valueBytes + state.pendingValueBytes
  let bytes = before
  for (const [key, value] of Object.entries(values)) {
    const encoded = value === undefined ? undefined : encodeChecked(value, `state.${key}`)
    bytes += encoded === undefined ? 0 : key.length + encoded.length
    bytes -= state.values.has(key) ? key.length + (state.values.get(key) as Buffer).length : 0
    changes.push([key, encoded])
    writer.u8(encoded === undefined ? F.RECORD_UNSET : F.RECORD_SET)
    writer.string(key)
    if (encoded === undefined) continue
    writer.varint(encoded.length)
    writer.bytes(encoded)
  }
  if (bytes > STATE_BYTES_MAX) {
    throw new HoldfastError('HOLDFAST_TOO_LARGE', `the state would be ${bytes} bytes, the limit is ${STATE_BYTES_MAX}`)
  }
  const growth = Math.max(0, bytes - before)
  state.pendingValueBytes += growth
  const undo = (): void => {
    state.pendingValueBytes -= growth
  }
  return {
    records: changes.length,
    undo,
    apply: () => {
      undo()
      for (const [key, value] of changes) state.setValue(key, value)
    },
  }
}

function encodeChecked(value: unknown, path: string): Buffer {
  const writer = new ByteWriter(256)
  const found = writeValue(writer, value, path)
  if (found !== undefined) {
    const field = found.slice(0, found.lastIndexOf(': '))
    throw new HoldfastError('HOLDFAST_UNSERIALIZABLE', `${found} cannot be written to disk`, { field })
  }
  return Buffer.from(writer.buffer.subarray(0, writer.length))
}
