/**
 * A file's salt is in its header, and without it no checksum in the file can be checked. But a CRC can be run backwards:
 * from a good frame and its checksum follows the one seed that gives it. What is found that way proves nothing by itself;
 * the caller must see a second thing check out with it before a byte of the file is believed.
 */

const TABLE = new Uint32Array(256).map((_, n) => {
  let c = n
  for (let k = 0; k < 8; k++) c = c & 1 ? (c >>> 1) ^ 0xedb88320 : c >>> 1
  return c
})

/** The table's entry whose highest byte is the index: those bytes are all different, so one step back is unique. */
const BACK = new Uint8Array(256)
for (let n = 0; n < 256; n++) BACK[TABLE[n] >>> 24] = n

/** The seed with which the bytes [start, end) have this checksum. */
export function seedOf(bytes: Uint8Array, start: number, end: number, checksum: number): number {
  let c = ~checksum >>> 0
  for (let i = end - 1; i >= start; i--) {
    const index = BACK[c >>> 24]
    c = (((c ^ TABLE[index]) << 8) | (index ^ bytes[i])) >>> 0
  }
  return ~c >>> 0
}
