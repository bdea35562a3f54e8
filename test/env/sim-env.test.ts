/** The simulated world as a whole: chance from the seed, locks that belong to one disk. */
import { describe, expect, test } from 'vitest'
import { SimClock } from '../../src/env/sim-clock.js'
import { loseSimLock, simEnv } from '../../src/env/sim-env.js'
import { SimFileSystem } from '../../src/env/sim-file-system.js'

const never = (reason: string): void => {
  throw new Error(`lost: ${reason}`)
}

function worldWithJob() {
  const env = simEnv({ seed: 1 })
  env.files.makeDirectory('/job')
  env.files.syncDirectoryNow('/')
  return env
}

describe('simEnv', () => {
  test('takes disk and clock that it is given, and draws from its seed', () => {
    const files = new SimFileSystem()
    const clock = new SimClock()
    const draws = (seed: number): number[] => {
      const env = simEnv({ seed, files, clock })
      expect(env.files).toBe(files)
      expect(env.clock).toBe(clock)
      return [env.random.uint32(), env.random.uint32()]
    }
    expect(draws(7)).toEqual(draws(7))
    expect(draws(7)).not.toEqual(draws(8))
  })
})

describe('its locks', () => {
  test('refuse a second owner of the directory on the same disk, also from another env and by another spelling', async () => {
    const env = worldWithJob()
    const lock = await env.locks.acquire('/job', never)
    lock.assertOwned()
    const other = simEnv({ seed: 2, files: env.files })
    for (const path of ['/job', 'job/', '/job/../job']) {
      await expect(other.locks.acquire(path, never)).rejects.toMatchObject({ code: 'HOLDFAST_LOCKED', path: '/job' })
    }
    env.files.makeDirectory('/job2')
    await (await other.locks.acquire('/job2', never)).release()
    await lock.release()
    await lock.release()
    await (await other.locks.acquire('/job', never)).release()
  })

  test('want the directory to be there', async () => {
    await expect(simEnv({ seed: 1 }).locks.acquire('/job', never)).rejects.toMatchObject({ code: 'HOLDFAST_IO' })
  })

  test('are gone on the disk after a crash, and stay on the one before', async () => {
    const env = worldWithJob()
    const lock = await env.locks.acquire('/job', never)
    const after = simEnv({ seed: 1, files: env.files.crash({ seed: 1, unsynced: 'lost' }) })
    const next = await after.locks.acquire('/job', never)
    await lock.release()
    next.assertOwned()
    await expect(after.locks.acquire('/job', never)).rejects.toMatchObject({ code: 'HOLDFAST_LOCKED' })
  })

  test('once lost stay lost, tell it once, and leave the next owner alone', async () => {
    const env = worldWithJob()
    const reasons: string[] = []
    const lock = await env.locks.acquire('/job', (reason) => reasons.push(reason))
    loseSimLock(env.files, '/job', 'test')
    loseSimLock(env.files, '/job')
    expect(reasons).toEqual(['test'])
    const next = await env.locks.acquire('/job', never)
    const lost = expect.objectContaining({ code: 'HOLDFAST_LOCK_LOST' })
    expect(() => lock.assertOwned()).toThrow(lost)
    await lock.release()
    expect(() => lock.assertOwned()).toThrow(lost)
    next.assertOwned()
  })
})
