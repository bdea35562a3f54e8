/**
 * Where the peers' own modules are: in bench/peers/node_modules, never in the root's. Invariant: nothing of it is imported
 * by name anywhere, so that the project type-checks and runs on a clone that has not installed the peers.
 */
import { hash } from 'node:crypto'
import { existsSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'

/** bench/peers of the repository, both from the sources and from what was compiled into build/. */
export const peersDirectory = (() => {
  for (let at = dirname(fileURLToPath(import.meta.url)); ; at = dirname(at)) {
    const candidate = join(at, 'bench', 'peers')
    if (existsSync(join(candidate, 'package.json'))) return candidate
    if (at === dirname(at)) throw new Error('bench/peers/package.json is not above this file')
  }
})()

const require = createRequire(join(peersDirectory, 'package.json'))

/** The CommonJS face of a module of bench/peers, in a shape the caller states. */
export async function peerModule<T>(name: string): Promise<T> {
  const loaded = await import(pathToFileURL(require.resolve(name)).href)
  return loaded as T
}

/** What duplicates are found by in the peers: half as long as Scrapy's fingerprint, of the text as it is. */
export function print(url: string): Buffer {
  return hash('sha1', url, 'buffer').subarray(0, 16)
}
