/** Randomness as one injected object: ids and salts from the system, everything in a simulation from a seed. */
export interface Random {
  /** An integer in [0, 2^32). */
  uint32(): number
  bytes(length: number): Buffer
}

import { randomBytes } from 'node:crypto'

export const nodeRandom: Random = {
  uint32: () => randomBytes(4).readUInt32LE(0),
  bytes: (length) => randomBytes(length),
}

/** mulberry32 (Tommy Ettinger, public domain): small, seedable, good enough to steer simulations. */
export function seededRandom(seed: number): Random {
  let state = seed >>> 0
  const uint32 = (): number => {
    state = (state + 0x6d2b79f5) >>> 0
    let t = state
    t = Math.imul(t ^ (t >>> 15), t | 1)
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61)
    return (t ^ (t >>> 14)) >>> 0
  }
  return {
    uint32,
    bytes(length) {
      const out = Buffer.alloc(length)
      for (let i = 0; i < length; i++) out[i] = uint32() & 0xff
      return out
    },
  }
}
