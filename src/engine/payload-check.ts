/**
 * Finds what CBOR cannot bring back: functions, symbols, promises, streams, class instances and the like. The codec
 * would throw on the first two and silently flatten the rest, so payloads are looked through before they are encoded.
 */
import { PAYLOAD_DEPTH_MAX } from '../limits.js'

/** The path of the first offending field and what it is, e.g. `meta.onDone: function`; undefined when all is well. */
export function unserializableField(value: unknown, path: string): string | undefined {
  return find(value, path, [])
}

/** `above` holds the objects this value is inside of. */
function find(value: unknown, path: string, above: object[]): string | undefined {
  switch (typeof value) {
    case 'function':
      return `${path}: function`
    case 'symbol':
      return `${path}: symbol`
    case 'object': {
      if (value === null || isPlainValue(value)) return undefined
      // Cycles survive the codec; they must not keep this walk going for ever.
      if (above.includes(value)) return undefined
      if (above.length > PAYLOAD_DEPTH_MAX) return `${path}: nested deeper than ${PAYLOAD_DEPTH_MAX}`
      above.push(value)
      const found = findInside(value, path, above)
      above.pop()
      return found
    }
    default:
      return undefined
  }
}

function findInside(value: object, path: string, above: object[]): string | undefined {
  if (Array.isArray(value)) {
    for (let i = 0; i < value.length; i++) {
      const found = mayOffend(value[i]) ? find(value[i], `${path}[${i}]`, above) : undefined
      if (found !== undefined) return found
    }
    return undefined
  }
  if (value instanceof Map) {
    for (const [key, item] of value) {
      const found = find(key, `${path}.<key>`, above) ?? find(item, `${path}.${String(key)}`, above)
      if (found !== undefined) return found
    }
    return undefined
  }
  if (value instanceof Set) {
    for (const item of value) {
      const found = find(item, `${path}.<item>`, above)
      if (found !== undefined) return found
    }
    return undefined
  }
  const prototype = Object.getPrototypeOf(value)
  if (prototype !== Object.prototype && prototype !== null) {
    return `${path}: ${(value as { constructor?: { name?: string } }).constructor?.name || 'class instance'}`
  }
  for (const key of Object.keys(value)) {
    const item = (value as Record<string, unknown>)[key]
    const found = mayOffend(item) ? find(item, `${path}.${key}`, above) : undefined
    if (found !== undefined) return found
  }
  return Object.getOwnPropertySymbols(value).length > 0 ? `${path}: symbol key` : undefined
}

/** Most fields are text and numbers: no path is made for those. */
function mayOffend(value: unknown): boolean {
  const type = typeof value
  return type === 'object' || type === 'function' || type === 'symbol'
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
