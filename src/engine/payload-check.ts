/**
 * Finds what CBOR cannot bring back: functions, symbols, promises, streams, class instances and the like. The codec
 * would throw on the first two and silently flatten the rest, so payloads are looked through before they are encoded.
 */
import { PAYLOAD_DEPTH_MAX } from '../limits.js'

/** The path of the first offending field and what it is, e.g. `meta.onDone: function`; undefined when all is well. */
export function unserializableField(value: unknown, path: string): string | undefined {
  return find(value, path, 0, undefined)
}

function find(value: unknown, path: string, depth: number, above: Set<object> | undefined): string | undefined {
  switch (typeof value) {
    case 'function':
      return `${path}: function`
    case 'symbol':
      return `${path}: symbol`
    case 'object':
      return value === null ? undefined : findInObject(value, path, depth, above)
    default:
      return undefined
  }
}

function findInObject(value: object, path: string, depth: number, above: Set<object> | undefined): string | undefined {
  if (depth > PAYLOAD_DEPTH_MAX) return `${path}: nested deeper than ${PAYLOAD_DEPTH_MAX}`
  if (isPlainValue(value)) return undefined
  // Cycles survive the codec; they must not keep this walk going for ever.
  if (above?.has(value)) return undefined
  const inside = new Set(above).add(value)
  if (Array.isArray(value)) {
    for (let i = 0; i < value.length; i++) {
      const found = find(value[i], `${path}[${i}]`, depth + 1, inside)
      if (found !== undefined) return found
    }
    return undefined
  }
  if (value instanceof Map) {
    for (const [key, item] of value) {
      const found =
        find(key, `${path}.<key>`, depth + 1, inside) ?? find(item, `${path}.${String(key)}`, depth + 1, inside)
      if (found !== undefined) return found
    }
    return undefined
  }
  if (value instanceof Set) {
    for (const item of value) {
      const found = find(item, `${path}.<item>`, depth + 1, inside)
      if (found !== undefined) return found
    }
    return undefined
  }
  const prototype = Object.getPrototypeOf(value)
  if (prototype !== Object.prototype && prototype !== null) {
    return `${path}: ${(value as { constructor?: { name?: string } }).constructor?.name || 'class instance'}`
  }
  for (const key of Object.keys(value)) {
    const found = find((value as Record<string, unknown>)[key], `${path}.${key}`, depth + 1, inside)
    if (found !== undefined) return found
  }
  return Object.getOwnPropertySymbols(value).length > 0 ? `${path}: symbol key` : undefined
}

/** What the codec brings back as it was. */
function isPlainValue(value: object): boolean {
  return (
    value instanceof Date ||
    value instanceof RegExp ||
    value instanceof Uint8Array ||
    (ArrayBuffer.isView(value) && !(value instanceof DataView))
  )
}
