/**
 * CRC-32 (the one of zlib and PNG), seeded. Every file has a salt that seeds its checksums, so that bytes of an older or
 * foreign file are never taken for good ones, and a run of zeros never checks out.
 */
import { crc32 as zlibCrc32 } from 'node:zlib'

export function crc32(bytes: Uint8Array, seed: number): number {
  return zlibCrc32(bytes, seed) >>> 0
}

const TABLE = new Uint32Array(256).map((_, n) => {
  let c = n
  for (let k = 0; k < 8; k++) c = c & 1 ? (c >>> 1) ^ 0xedb88320 : c >>> 1
  return c
})

/** The checksum of one little-endian u32: four table steps instead of a call into zlib. Equal to `crc32` of its bytes. */
export function crc32OfUint32(value: number, seed: number): number {
  let c = ~seed >>> 0
  for (let shift = 0; shift < 32; shift += 8) c = TABLE[(c ^ (value >>> shift)) & 0xff] ^ (c >>> 8)
  return ~c >>> 0
}
