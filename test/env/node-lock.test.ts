/**
 * The real lock, with real processes: owners that are killed, stopped, copied and raced. No test waits for time to pass;
 * what depends on age gets a file with another time of change.
 */
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  promises,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import { hostname, tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest'
import type { DirectoryLock } from '../../src/env/lock.js'
import { nodeLocks } from '../../src/env/node-lock.js'
import { LOCK_STALE_MS, LOCK_VERIFY_MS } from '../../src/limits.js'
import { type Answer, compileLock, LockChild } from './lock-processes.js'

// Children start slowly on a busy machine; nothing here passes or fails by its speed.
vi.setConfig({ testTimeout: 30_000 })

const LINUX = process.platform === 'linux'

let build: ReturnType<typeof compileLock>
let root: string
let job: string
const children: LockChild[] = []
const held: DirectoryLock[] = []

const start = async (): Promise<LockChild> => {
  const child = await LockChild.start(build.module)
  children.push(child)
  return child
}

const acquire = async (directory = job, onLost: (reason: string) => void = unexpected): Promise<DirectoryLock> => {
  const lock = await nodeLocks.acquire(directory, onLost)
  held.push(lock)
  return lock
}

const unexpected = (reason: string): void => {
  throw new Error(`lost: ${reason}`)
}

const ownerPath = (directory = job): string => join(directory, 'owner.json')
const lockPath = (directory = job): string => join(directory, 'holdfast.lock')
const readOwner = (directory = job): Record<string, unknown> => JSON.parse(readFileSync(ownerPath(directory), 'utf8'))

/** Leaves a lock as `owner` would have, last refreshed `ageMs` ago. */
function leaveLock(directory: string, owner: Record<string, unknown> | string | undefined, ageMs = 0): void {
  mkdirSync(lockPath(directory), { recursive: true })
  if (owner !== undefined)
    writeFileSync(ownerPath(directory), typeof owner === 'string' ? owner : JSON.stringify(owner))
  const changed = new Date(Date.now() - ageMs)
  utimesSync(lockPath(directory), changed, changed)
}

/** An owner.json of this very process, as a pattern to change. */
async function ownIdentity(): Promise<Record<string, unknown>> {
  const lock = await acquire()
  const identity = readOwner()
  await lock.release()
  return { ...identity, token: 'f'.repeat(32) }
}

async function deadIdentity(): Promise<Record<string, unknown>> {
  const child = await start()
  expect(await child.ask(`acquire ${job}`)).toMatchObject({ result: 'held' })
  const identity = readOwner()
  await child.kill()
  rmSync(ownerPath())
  rmSync(lockPath(), { recursive: true })
  return identity
}

/** Makes the next `assertOwned` look at the disk, as it does after LOCK_VERIFY_MS. */
function letTimePass(): void {
  const now = performance.now()
  vi.spyOn(performance, 'now').mockReturnValue(now + LOCK_VERIFY_MS + 1)
}

const lockedBy = (pid: number) =>
  expect.objectContaining({ code: 'HOLDFAST_LOCKED', owner: { pid, host: hostname() }, path: job })
const lost = expect.objectContaining({ code: 'HOLDFAST_LOCK_LOST' })

beforeAll(() => {
  build = compileLock()
}, 60_000)

afterAll(() => build.remove())

beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'holdfast-lock-'))
  job = join(root, 'job')
  mkdirSync(job)
})

afterEach(async () => {
  vi.restoreAllMocks()
  for (const child of children.splice(0)) await child.kill()
  for (const lock of held.splice(0)) await lock.release()
  rmSync(root, { recursive: true, force: true })
})

describe('one process', () => {
  test('takes the lock, names itself, and leaves nothing when it gives it back', async () => {
    const lock = await acquire()
    lock.assertOwned()
    expect(readdirSync(job).sort()).toEqual(['holdfast.lock', 'owner.json'])
    expect(readOwner()).toMatchObject({
      token: expect.stringMatching(/^[0-9a-f]{32}$/),
      pid: process.pid,
      host: hostname(),
      since: expect.stringMatching(/^\d{4}-\d\d-\d\dT[\d:.]+Z$/),
    })
    await lock.release()
    expect(readdirSync(job)).toEqual([])
    await lock.release()
    expect(() => lock.assertOwned()).toThrow(lost)
  })

  test.runIf(LINUX)('names its start, boot and namespace where the system tells them', async () => {
    await acquire()
    expect(readOwner()).toMatchObject({
      processStart: expect.stringMatching(/^\d+$/),
      bootId: expect.stringMatching(/^[0-9a-f-]{36}$/),
      pidNamespace: expect.stringMatching(/^pid:\[\d+\]$/),
    })
  })

  test('is refused a second time, and gets it after giving it back', async () => {
    const lock = await acquire()
    await expect(acquire()).rejects.toEqual(lockedBy(process.pid))
    lock.assertOwned()
    await lock.release()
    await acquire()
  })

  test('gets it once of many times asked at once', async () => {
    const results = await Promise.allSettled(Array.from({ length: 10 }, () => acquire()))
    expect(results.filter((result) => result.status === 'fulfilled')).toHaveLength(1)
    for (const result of results) {
      if (result.status === 'rejected') expect(result.reason).toEqual(lockedBy(process.pid))
    }
    expect(readdirSync(job).sort()).toEqual(['holdfast.lock', 'owner.json'])
  })

  test('meets its own lock through a symbolic link', async () => {
    symlinkSync(job, join(root, 'alias'))
    await acquire(join(root, 'alias'))
    expect(existsSync(lockPath())).toBe(true)
    await expect(acquire()).rejects.toEqual(lockedBy(process.pid))
  })

  test('locks two directories', async () => {
    mkdirSync(join(root, 'other'))
    await acquire()
    await acquire(join(root, 'other'))
  })

  test('is told that the directory is not there', async () => {
    await expect(acquire(join(root, 'none'))).rejects.toMatchObject({ code: 'HOLDFAST_IO', path: join(root, 'none') })
  })
})

describe('an owner in another process', () => {
  test('is named to everybody else, at once, also when it is stopped and its lock has grown stale', async () => {
    const child = await start()
    expect(await child.ask(`acquire ${job}`)).toMatchObject({ result: 'held' })
    await expect(acquire()).rejects.toEqual(lockedBy(child.pid))
    child.signal('SIGSTOP')
    const longAgo = new Date(Date.now() - 100 * LOCK_STALE_MS)
    utimesSync(lockPath(), longAgo, longAgo)
    await expect(acquire()).rejects.toEqual(lockedBy(child.pid))
    child.signal('SIGCONT')
    expect(await child.ask('assert')).toMatchObject({ result: 'owned' })
    expect(await child.ask('release')).toMatchObject({ result: 'released' })
    await acquire()
  })

  test('that is killed with -9 is followed at once', async () => {
    for (let round = 0; round < 3; round++) {
      const child = await start()
      expect(await child.ask(`acquire ${job}`)).toMatchObject({ result: 'held' })
      await child.kill()
      expect(readdirSync(job).sort()).toEqual(['holdfast.lock', 'owner.json'])
    }
    const lock = await acquire()
    expect(readOwner()).toMatchObject({ pid: process.pid })
    expect(readdirSync(job).sort()).toEqual(['holdfast.lock', 'owner.json'])
    await lock.release()
    expect(readdirSync(job)).toEqual([])
  })

  test('that comes to its end without giving it back is not kept alive by the lock, and followed at once', async () => {
    const child = await start()
    expect(await child.ask(`acquire ${job}`)).toMatchObject({ result: 'held' })
    await child.leave()
    await acquire()
  })

  test('that is displaced while it is stopped finds out, and takes nothing from the one that followed', async () => {
    const child = await start()
    expect(await child.ask(`acquire ${job}`)).toMatchObject({ result: 'held' })
    child.signal('SIGSTOP')
    // From another host, a stopped owner looks as a dead one does.
    writeFileSync(ownerPath(), JSON.stringify({ ...readOwner(), host: 'elsewhere' }))
    const longAgo = new Date(Date.now() - 2 * LOCK_STALE_MS)
    utimesSync(lockPath(), longAgo, longAgo)
    const lock = await acquire()
    const owner = readOwner()
    child.signal('SIGCONT')
    expect(await child.ask('release')).toMatchObject({ result: 'released' })
    await child.leave()
    expect(readOwner()).toEqual(owner)
    expect(existsSync(lockPath())).toBe(true)
    letTimePass()
    lock.assertOwned()
  })
})

describe('who counts as dead', () => {
  test.runIf(LINUX)('a pid in use again by a later process', async () => {
    leaveLock(job, { ...(await ownIdentity()), processStart: '1' })
    await acquire()
  })

  test.runIf(LINUX)('a process of another boot', async () => {
    leaveLock(job, { ...(await ownIdentity()), bootId: '00000000-0000-0000-0000-000000000000' })
    await acquire()
  })

  test.runIf(LINUX)('a killed process that nobody has waited for yet', async () => {
    // The shell starts a child, tells its pid, and becomes a program that never asks after it.
    const { spawn } = await import('node:child_process')
    const parent = spawn('sh', ['-c', 'sleep 1000 & echo $!; exec cat'], { stdio: ['pipe', 'pipe', 'inherit'] })
    try {
      const pid = Number(await new Promise<Buffer>((resolve) => parent.stdout.once('data', resolve)))
      const startOf = (): string[] => readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]!.split(' ')
      const identity = { ...(await ownIdentity()), pid, processStart: startOf()[19] }
      leaveLock(job, identity)
      await expect(acquire()).rejects.toEqual(lockedBy(pid))
      process.kill(pid, 'SIGKILL')
      while (startOf()[0] !== 'Z') await new Promise((resolve) => setImmediate(resolve))
      await acquire()
    } finally {
      parent.kill('SIGKILL')
    }
  })

  test('nobody whom we can see alive, however stale the lock and whatever the system does not tell', async () => {
    const identity = await ownIdentity()
    for (const unknown of [{}, { processStart: null }, { bootId: null }, { pidNamespace: null }]) {
      leaveLock(job, { ...identity, ...unknown }, 100 * LOCK_STALE_MS)
      await expect(acquire()).rejects.toEqual(lockedBy(process.pid))
    }
  })

  test('a process of another host or container only by the age of its lock', async () => {
    const dead = { ...(await deadIdentity()), processStart: '1' }
    const foreigners: Record<string, unknown>[] = [{ ...dead, host: 'elsewhere' }]
    if (LINUX) foreigners.push({ ...dead, pidNamespace: 'pid:[1]' })
    for (const foreign of foreigners) {
      leaveLock(job, foreign)
      const refused = expect.objectContaining({
        code: 'HOLDFAST_LOCKED',
        owner: { pid: foreign['pid'], host: foreign['host'] },
      })
      await expect(acquire()).rejects.toEqual(refused)
      expect(readOwner()).toEqual(foreign)
      leaveLock(job, foreign, LOCK_STALE_MS * 2)
      await (await acquire()).release()
    }
  })
})

describe('a lock without a readable owner', () => {
  test.each([undefined, '', '{"token":"../../x","pid":1,"host":"h"}', '{"token":', 'null'])(
    '(%j) counts by its age',
    async (owner) => {
      leaveLock(job, owner, LOCK_STALE_MS / 2)
      const refused = await acquire().catch((error: unknown) => error)
      expect(refused).toMatchObject({
        code: 'HOLDFAST_LOCKED',
        message: expect.stringContaining('has not named itself'),
      })
      expect(refused).not.toHaveProperty('owner')
      leaveLock(job, owner, LOCK_STALE_MS * 2)
      await (await acquire()).release()
      expect(readdirSync(job)).toEqual([])
    },
  )

  test('and young is somebody between two steps: it is waited for', async () => {
    leaveLock(job, undefined, -LOCK_STALE_MS)
    const waiting = acquire()
    // It gives the lock back, and the waiting one gets it.
    rmSync(lockPath(), { recursive: true })
    await waiting
  })

  test('and without a lock directory is no lock', async () => {
    writeFileSync(ownerPath(), 'rubbish')
    await acquire()
    expect(readOwner()).toMatchObject({ pid: process.pid })
  })
})

describe('a killed displacer', () => {
  const claimPath = (token: unknown): string => join(job, `holdfast.displace.${token}`)

  test('of a dead owner is displaced itself, however long the chain', async () => {
    const dead = await deadIdentity()
    const identity = (digit: string) => ({ ...dead, token: digit.repeat(32) })
    leaveLock(job, identity('1'))
    writeFileSync(claimPath('1'.repeat(32)), JSON.stringify(identity('2')))
    writeFileSync(claimPath('2'.repeat(32)), JSON.stringify(identity('3')))
    writeFileSync(claimPath('3'.repeat(32)), JSON.stringify(identity('4')))
    await acquire()
    expect(readdirSync(job).sort()).toEqual(['holdfast.lock', 'owner.json'])
  })

  test('that died between making the lock directory and naming itself is followed at once', async () => {
    leaveLock(job, undefined)
    writeFileSync(
      claimPath('none'),
      JSON.stringify(
        await (async () => {
          rmSync(lockPath(), { recursive: true })
          return deadIdentity()
        })(),
      ),
    )
    leaveLock(job, undefined)
    await acquire()
    expect(readdirSync(job).sort()).toEqual(['holdfast.lock', 'owner.json'])
  })

  test('leaves files that the next owner removes', async () => {
    const dead = await deadIdentity()
    writeFileSync(claimPath('9'.repeat(32)), JSON.stringify(dead))
    writeFileSync(join(job, `holdfast.owner.${'9'.repeat(32)}`), JSON.stringify(dead))
    writeFileSync(join(job, 'holdfast.owner.empty'), '')
    utimesSync(join(job, 'holdfast.owner.empty'), new Date(0), new Date(0))
    await acquire()
    expect(readdirSync(job).sort()).toEqual(['holdfast.lock', 'owner.json'])
  })

  test('is told from a living one, which is waited for', async () => {
    const own = await ownIdentity()
    const dead = await deadIdentity()
    leaveLock(job, dead)
    writeFileSync(claimPath(dead['token']), JSON.stringify(own))
    const waiting = acquire()
    rmSync(claimPath(dead['token']))
    await waiting
  })
})

describe('many processes at the same moment', () => {
  test('on the lock of a dead owner, or on none: exactly one wins, each time', async () => {
    const dead = await deadIdentity()
    const racers = await Promise.all(Array.from({ length: 8 }, start))
    for (let round = 0; round < 10; round++) {
      const directory = join(root, `round-${round}`)
      mkdirSync(directory)
      if (round % 5 !== 4) leaveLock(directory, dead, round % 2 === 0 ? 0 : LOCK_STALE_MS * 2)
      const answers = await Promise.all(racers.map((racer) => racer.ask(`acquire ${directory}`)))
      const winners = racers.filter((_, index) => answers[index]!.result === 'held')
      expect(winners).toHaveLength(1)
      const refused: Answer[] = answers.filter((answer) => answer.result !== 'held')
      for (const answer of refused) {
        expect(answer).toMatchObject({ result: 'HOLDFAST_LOCKED', owner: { pid: winners[0]!.pid, host: hostname() } })
      }
      expect(readdirSync(directory).sort()).toEqual(['holdfast.lock', 'owner.json'])
    }
  })
})

describe('losing the lock', () => {
  test('is noticed at the next look, told once, and final', async () => {
    const reasons: string[] = []
    const lock = await acquire(job, (reason) => reasons.push(reason))
    const own = readFileSync(ownerPath(), 'utf8')
    writeFileSync(ownerPath(), JSON.stringify({ ...readOwner(), token: 'f'.repeat(32), pid: 4711, host: 'elsewhere' }))
    lock.assertOwned()
    letTimePass()
    expect(() => lock.assertOwned()).toThrow(lost)
    expect(() => lock.assertOwned()).toThrow('process 4711 on elsewhere')
    writeFileSync(ownerPath(), own)
    expect(() => lock.assertOwned()).toThrow(lost)
    expect(reasons).toEqual(['owner.json names process 4711 on elsewhere'])
  })

  test('takes neither file from the next owner when it is given back', async () => {
    const lock = await acquire(job, () => {})
    const next = { ...readOwner(), token: 'f'.repeat(32) }
    writeFileSync(ownerPath(), JSON.stringify(next))
    await lock.release()
    expect(readOwner()).toEqual(next)
    expect(existsSync(lockPath())).toBe(true)
  })

  test.each([
    ['gone', () => rmSync(ownerPath())],
    ['unreadable', () => writeFileSync(ownerPath(), 'rubbish')],
  ])('follows from an owner.json that is %s', async (state, spoil) => {
    const reasons: string[] = []
    const lock = await acquire(job, (reason) => reasons.push(reason))
    spoil()
    letTimePass()
    expect(() => lock.assertOwned()).toThrow(lost)
    expect(reasons).toEqual([`owner.json is ${state}`])
  })

  test('does not follow from a disk that cannot be read: that throws, and passes', async () => {
    const lock = await acquire()
    const own = readFileSync(ownerPath(), 'utf8')
    rmSync(ownerPath())
    mkdirSync(ownerPath())
    letTimePass()
    expect(() => lock.assertOwned()).toThrow(expect.objectContaining({ code: 'HOLDFAST_IO' }))
    rmSync(ownerPath(), { recursive: true })
    writeFileSync(ownerPath(), own)
    lock.assertOwned()
  })
})

describe('the sign of life', () => {
  /** Lets proper-lockfile's next refresh begin; what it then does with the disk runs in real time. */
  const refresh = (): void => {
    vi.advanceTimersByTime(LOCK_STALE_MS / 2)
  }

  const until = async (condition: () => boolean): Promise<void> => {
    while (!condition()) await new Promise((resolve) => setImmediate(resolve))
  }

  const changedMs = (): number => statSync(lockPath()).mtimeMs

  const setChanged = (ms: number): void => utimesSync(lockPath(), new Date(ms), new Date(ms))

  beforeEach(() => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
  })

  afterEach(() => {
    vi.useRealTimers()
  })

  test('is refreshed while the lock is held, and no more when it was given back', async () => {
    const lock = await acquire()
    expect(vi.getTimerCount()).toBe(1)
    const before = changedMs()
    refresh()
    await until(() => changedMs() !== before && vi.getTimerCount() === 1)
    await lock.release()
    expect(vi.getTimerCount()).toBe(0)
  })

  test('given back in the middle of a refresh reports nothing', async () => {
    const lock = await acquire()
    refresh()
    await lock.release()
    // Long enough for the calls under way: they end before others that were begun later.
    for (let turn = 0; turn < 5; turn++) await promises.stat(root)
    expect(readdirSync(job)).toEqual([])
    await acquire()
  })

  test('that cannot be looked at when the lock is given back does no harm: giving back says what is wrong', async () => {
    const lock = await acquire()
    renameSync(job, join(root, 'moved'))
    writeFileSync(job, 'a file where the directory was')
    refresh()
    await expect(lock.release()).rejects.toMatchObject({ code: 'HOLDFAST_IO', path: job })
    for (let turn = 0; turn < 5; turn++) await promises.stat(root)
    expect(vi.getTimerCount()).toBe(0)
    held.length = 0
  })

  test('is made anew by its owner when somebody removed or touched it', async () => {
    const lock = await acquire()
    for (const disturb of [() => rmSync(lockPath(), { recursive: true }), () => setChanged(Date.now() - 60_000)]) {
      disturb()
      refresh()
      await until(() => existsSync(lockPath()) && changedMs() > Date.now() - 5000 && vi.getTimerCount() === 1)
      await until(() => readdirSync(job).length === 2)
      letTimePass()
      lock.assertOwned()
    }
    await lock.release()
    expect(readdirSync(job)).toEqual([])
  })

  test('found in the hands of another owner ends the lock, without being asked and without harm to the other', async () => {
    const reasons: string[] = []
    const lock = await acquire(job, (reason) => reasons.push(reason))
    const next = { ...readOwner(), token: 'f'.repeat(32), pid: 4711 }
    writeFileSync(ownerPath(), JSON.stringify(next))
    setChanged(Date.now() - 1000)
    const changed = changedMs()
    refresh()
    await until(() => reasons.length > 0)
    expect(() => lock.assertOwned()).toThrow(lost)
    await lock.release()
    expect(reasons).toEqual([`owner.json names process 4711 on ${hostname()}`])
    expect(readOwner()).toEqual(next)
    expect(changedMs()).toBe(changed)
  })

  test('is not made anew against somebody who is taking over', async () => {
    const reasons: string[] = []
    const lock = await acquire(job, (reason) => reasons.push(reason))
    const rival = { ...readOwner(), token: 'f'.repeat(32) }
    writeFileSync(join(job, `holdfast.displace.${readOwner()['token']}`), JSON.stringify(rival))
    rmSync(lockPath(), { recursive: true })
    refresh()
    await until(() => reasons.length > 0)
    expect(reasons).toEqual([`process ${process.pid} takes it over`])
    expect(existsSync(lockPath())).toBe(false)
    expect(() => lock.assertOwned()).toThrow(lost)
  })
})
