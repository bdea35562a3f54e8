/** The rig must be able to fail: stores whose disk lies, or whose promises are broken on purpose, must be found out. */
import { expect, test } from 'vitest'
import type { Env } from '../../src/env/env.js'
import { simEnv } from '../../src/env/sim-env.js'
import { SimFileSystem } from '../../src/env/sim-file-system.js'
import { openFrontier } from '../../src/frontier/frontier.js'
import { TINY } from '../support/checked.js'
import { DIRECTORY, openSim } from '../support/crash-run.js'
import { Oracle } from '../support/oracle.js'
import { pages, SCENARIOS } from '../support/scenario.js'

/** A disk whose file syncs say "done" and do nothing. */
function withoutSync(env: ReturnType<typeof simEnv>): Env {
  const { files } = env
  const lying = new Proxy(files, {
    get(target, name) {
      const value = Reflect.get(target, name, target)
      if (name !== 'open') return typeof value === 'function' ? value.bind(target) : value
      return (...args: Parameters<SimFileSystem['open']>) => {
        const handle = target.open(...args)
        return {
          path: handle.path,
          write: (bytes: Uint8Array, position: number) => handle.write(bytes, position),
          read: (into: Uint8Array, position: number) => handle.read(into, position),
          size: () => handle.size(),
          truncate: (length: number) => handle.truncate(length),
          sync: async () => {},
          syncNow: () => {},
          close: () => handle.close(),
        }
      }
    },
  })
  return { ...env, files: lying }
}

test('a disk that does not sync is found out after a power loss', async () => {
  const files = new SimFileSystem()
  const env = simEnv({ seed: 1, files })
  const oracle = new Oracle()
  const options = { env: withoutSync(env), durability: 'power', tuning: TINY } as const
  const frontier = await openFrontier(DIRECTORY, options)
  await SCENARIOS['crawl'](frontier, oracle, env.clock)
  const disk = files.crash({ seed: 1, unsynced: 'lost' })
  const later = simEnv({ seed: 2, files: disk })
  const check = async (): Promise<void> => {
    const again = await openSim(later, 'power')
    await oracle.check(again, later.clock)
  }
  await expect(check()).rejects.toThrow()
})

test('a promise that was not kept is found out', async () => {
  const env = simEnv({ seed: 1 })
  const oracle = new Oracle()
  const frontier = await openSim(env, 'process')
  await oracle.add(frontier, pages(1, 0, 3))
  oracle.fates.set('http://h1.test/page/99', 'live')
  await expect(oracle.check(frontier, env.clock)).rejects.toThrow()
})

test('an acked request that comes back is found out', async () => {
  const env = simEnv({ seed: 1 })
  const oracle = new Oracle()
  const frontier = await openSim(env, 'process')
  await oracle.add(frontier, pages(1, 0, 3))
  oracle.fates.set(pages(1, 1, 2)[0], 'gone')
  await expect(oracle.check(frontier, env.clock)).rejects.toThrow()
})
