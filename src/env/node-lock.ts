/**
 * The lock on a real directory. `owner.json` says who owns it; proper-lockfile's directory `holdfast.lock` beside it is
 * the sign of life for other hosts, which cannot look at our processes and go by its time of change alone.
 *
 * Invariant: every owner has a token of its own, and an owner is followed by exactly one other. Who wants to follow
 * token T first makes `holdfast.displace.T` (one winner, by O_EXCL or link), then looks again that T still stands in
 * `owner.json`, and only then takes the lock directory away, makes it anew and puts its own token there. Whoever acts on
 * old knowledge finds another token at the second look and steps back, so the check and the removal cannot be torn
 * apart. A claim left by a dead process is an owner like any other: it is displaced by the same steps, under its token.
 *
 *     no owner, or T dead -> claim T -> T still there? -> rmdir, mkdir holdfast.lock -> owner.json = ours -> unclaim T
 *
 * proper-lockfile may never take over a stale lock itself: its check and its removal are two steps, so two processes
 * can both win, and a stopped process would lose its lock while it still holds file handles.
 */
import { randomBytes } from 'node:crypto'
import * as fs from 'node:fs'
import { hostname } from 'node:os'
import { join } from 'node:path'
import * as lockfile from 'proper-lockfile'
import { errorCode, HoldfastError, ioError } from '../errors.js'
import { LOCK_STALE_MS, LOCK_VERIFY_MS } from '../limits.js'
import { nodeClock } from './clock.js'
import type { DirectoryLock, LockService } from './lock.js'

/** How long to wait for somebody who is in the middle of taking or giving back the lock. */
const WAIT_MS_MAX = 2500
const POLL_MS = 20
/** A lock directory without a readable owner is somebody between two steps while it is younger than this. */
const BETWEEN_STEPS_MS = 2000
/** Stands for the token where there is no owner. Not hexadecimal, so no token equals it. */
const NO_OWNER = 'none'

/** Enough to tell a process from every other one, later ones with the same pid included. */
interface Identity {
  readonly token: string
  readonly pid: number
  /** Start in clock ticks since boot, where the system tells (Linux). */
  readonly processStart: string | null
  readonly bootId: string | null
  /** Pids of another namespace (container) mean nothing here. */
  readonly pidNamespace: string | null
  readonly host: string
  /** For people. */
  readonly since: string
}

export const nodeLocks: LockService = {
  async acquire(directory, onLost) {
    try {
      // Symlinked aliases of one directory must meet at one lock.
      const places = new Places(await fs.promises.realpath(directory))
      return await acquire(directory, places, onLost)
    } catch (error) {
      throw errorCode(error) === undefined ? error : ioError('locking', directory, error)
    }
  },
}

class Places {
  readonly directory: string
  readonly owner: string
  readonly lock: string

  constructor(directory: string) {
    this.directory = directory
    this.owner = join(directory, 'owner.json')
    this.lock = join(directory, 'holdfast.lock')
  }

  claim(token: string): string {
    return join(this.directory, `${CLAIM_PREFIX}${token}`)
  }

  temporary(token: string): string {
    return join(this.directory, `${TEMPORARY_PREFIX}${token}`)
  }
}

const CLAIM_PREFIX = 'holdfast.displace.'
const TEMPORARY_PREFIX = 'holdfast.owner.'

// --- taking the lock ---------------------------------------------------------------------------------------------

/** Who is in the way: `final` when waiting will not help. `owner` is unknown when nothing readable names one. */
interface Blocker {
  readonly final: boolean
  readonly owner?: Identity | undefined
}

async function acquire(directory: string, places: Places, onLost: (reason: string) => void): Promise<DirectoryLock> {
  const self = identify()
  const deadlineMs = nodeClock.monotonic() + WAIT_MS_MAX
  for (;;) {
    const outcome = await tryAcquire(places, self, onLost)
    if (outcome instanceof HeldLock) {
      sweep(places, self.token)
      return outcome
    }
    if (outcome.final || nodeClock.monotonic() >= deadlineMs) throw locked(directory, outcome.owner)
    await pause(POLL_MS)
  }
}

async function tryAcquire(
  places: Places,
  self: Identity,
  onLost: (reason: string) => void,
): Promise<HeldLock | Blocker> {
  const found = readRecord(places.owner)
  // Killed after making the lock directory and before naming itself: the directory is the dead claimant's.
  const abandoned = isDead(readRecord(places.claim(found.token)).identity)
  const blocker = abandoned && found.identity === undefined ? undefined : blockerOf(found, places)
  if (blocker !== undefined) return blocker

  const rival = claim(places, found.token, self)
  if (rival !== undefined) return rival
  try {
    if (readRecord(places.owner).token !== found.token) return { final: false }
    removeLockDirectory(places)
    const lock = new HeldLock(places, self, onLost)
    try {
      await lock.beat()
      // A claim is judged by its age where our process cannot be seen, so a long sleep may have cost it.
      if (readRecord(places.claim(found.token)).token === self.token) {
        writeOwner(places, self)
        return lock
      }
    } catch (error) {
      await lock.abandon()
      // Another maker of the lock directory: an owner who is giving it back, or a program that is not ours.
      if (errorCode(error) !== 'ELOCKED') throw error
    }
    await lock.abandon()
    return { final: false }
  } finally {
    unclaim(places, found.token, self)
  }
}

/** Who forbids to follow the owner on record, if anybody does. */
function blockerOf(found: OwnerRecord, places: Places): Blocker | undefined {
  const owner = found.identity
  const fate = owner === undefined ? 'unseen' : judge(owner)
  if (fate === 'dead') return undefined
  // Refused however old the lock directory is: a stopped process is still an owner, and goes on when it is continued.
  if (fate === 'alive') return { final: true, owner }
  const ageMs = ageOf(places.lock)
  if (ageMs === undefined || ageMs > LOCK_STALE_MS) return undefined
  return { final: owner !== undefined || ageMs > BETWEEN_STEPS_MS, owner }
}

/**
 * Makes us the only one who may remove `token` from where it stands (`owner.json`, or another claim). Returns who has
 * that right already.
 */
function claim(places: Places, token: string, self: Identity): Blocker | undefined {
  const path = places.claim(token)
  for (;;) {
    if (createWhole(places, path, self)) return undefined
    const holder = readRecord(path)
    if (holder.token === NO_OWNER) continue
    const fate = holder.identity === undefined ? 'unseen' : judge(holder.identity)
    const ageMs = ageOf(path)
    if (ageMs === undefined) continue
    if (fate === 'alive' || (fate !== 'dead' && ageMs <= LOCK_STALE_MS)) return { final: false, owner: holder.identity }
    // The same steps one level down: under a claim on the dead claimant's token its claim cannot change any more.
    const rival = claim(places, holder.token, self)
    if (rival !== undefined) return rival
    try {
      if (readRecord(path).token === holder.token) fs.rmSync(path, { force: true })
    } finally {
      unclaim(places, holder.token, self)
    }
  }
}

/** Gives a claim back, unless it was taken from us meanwhile. One that cannot be removed dies with this process. */
function unclaim(places: Places, token: string, self: Identity): void {
  const path = places.claim(token)
  try {
    if (readRecord(path).token === self.token) fs.rmSync(path, { force: true })
  } catch {
    // See above: whether we hold the lock is settled by now, and not by this file.
  }
}

/**
 * Removes what killed processes left of their claims. Safe only while we own the lock: a claim that somebody makes just
 * now on an old token, and that is removed here with it, fails at its second look at `owner.json` anyway.
 */
function sweep(places: Places, ownToken: string): void {
  try {
    for (const name of fs.readdirSync(places.directory)) {
      if (!name.startsWith(CLAIM_PREFIX) && !name.startsWith(TEMPORARY_PREFIX)) continue
      const path = join(places.directory, name)
      const { identity } = readRecord(path)
      const left = identity === undefined ? (ageOf(path) ?? 0) > LOCK_STALE_MS : judge(identity) === 'dead'
      if (left && path !== places.claim(ownToken)) fs.rmSync(path, { force: true })
    }
  } catch {
    // Only tidying: what stays is looked at again by the next owner.
  }
}

function locked(directory: string, owner: Identity | undefined): HoldfastError {
  const who = owner === undefined ? 'a process that has not named itself' : `process ${owner.pid} on ${owner.host}`
  const since = owner === undefined ? '' : ` since ${owner.since}`
  return new HoldfastError('HOLDFAST_LOCKED', `${directory} is in use by ${who}${since}`, {
    path: directory,
    ...(owner === undefined ? {} : { owner: { pid: owner.pid, host: owner.host } }),
  })
}

// --- holding it --------------------------------------------------------------------------------------------------

class HeldLock implements DirectoryLock {
  readonly #places: Places
  readonly #self: Identity
  readonly #onLost: (reason: string) => void
  /** Why it is ours no more. */
  #ended: string | undefined
  #verifiedAtMs = nodeClock.monotonic()
  #stopBeating: (() => Promise<void>) | undefined
  #renewal: Promise<void> | undefined
  #released: Promise<void> | undefined

  constructor(places: Places, self: Identity, onLost: (reason: string) => void) {
    this.#places = places
    this.#self = self
    this.#onLost = onLost
  }

  assertOwned(): void {
    if (this.#ended === undefined) {
      const nowMs = nodeClock.monotonic()
      if (nowMs - this.#verifiedAtMs < LOCK_VERIFY_MS) return
      this.#verify()
      this.#verifiedAtMs = nowMs
    }
    if (this.#ended === undefined) return
    throw new HoldfastError(
      'HOLDFAST_LOCK_LOST',
      `the lock on ${this.#places.directory} is not ours any more: ${this.#ended}`,
      { path: this.#places.directory },
    )
  }

  release(): Promise<void> {
    this.#released ??= this.#release()
    return this.#released
  }

  async #release(): Promise<void> {
    const held = this.#ended === undefined
    this.#ended ??= 'it was released'
    await this.#renewal
    const claimed = held && this.#claimSuccession()
    try {
      if (held && readRecord(this.#places.owner).token === this.#self.token)
        fs.rmSync(this.#places.owner, { force: true })
    } catch (error) {
      throw ioError('unlocking', this.#places.directory, error)
    } finally {
      await this.#stop()
      if (claimed) unclaim(this.#places, NO_OWNER, this.#self)
    }
  }

  /**
   * So that being killed between the removal of `owner.json` and that of the lock directory leaves a dead claimant,
   * who is followed at once, and not a lock of nobody, which is waited for. Given back without it on a full disk.
   */
  #claimSuccession(): boolean {
    try {
      return claim(this.#places, NO_OWNER, this.#self) === undefined
    } catch {
      return false
    }
  }

  /** Makes the lock directory (ELOCKED when it is there) and keeps its time of change fresh. */
  async beat(): Promise<void> {
    const adaptor = new LockfileDisk(this.#places, this.#self.token)
    const release = await lockfile.lock(this.#places.directory, {
      lockfilePath: this.#places.lock,
      realpath: false,
      stale: LOCK_STALE_MS,
      fs: adaptor,
      onCompromised: (error: Error) => {
        this.#stopBeating = undefined
        this.#renewal = this.#renew(error)
      },
    })
    this.#stopBeating = () => {
      adaptor.silent = true
      return release()
    }
  }

  /** For a lock that was not taken after all: removes the lock directory if it was made. */
  async abandon(): Promise<void> {
    this.#ended ??= 'it was never taken'
    await this.#stop()
  }

  async #stop(): Promise<void> {
    const stop = this.#stopBeating
    this.#stopBeating = undefined
    try {
      await stop?.()
    } catch {
      // Nothing is lost by a directory that could not be removed: without an owner it counts for its age alone.
    }
  }

  /** Ends the lock when `owner.json` names somebody else. A disk that cannot be read proves nothing: that throws. */
  #verify(): boolean {
    let found: OwnerRecord
    try {
      found = readRecord(this.#places.owner)
    } catch (error) {
      throw ioError('checking the lock', this.#places.owner, error)
    }
    if (found.token === this.#self.token) return true
    const { identity } = found
    this.#lose(
      identity === undefined
        ? `owner.json is ${found.token === NO_OWNER ? 'gone' : 'unreadable'}`
        : `owner.json names process ${identity.pid} on ${identity.host}`,
    )
    return false
  }

  #lose(reason: string): void {
    if (this.#ended !== undefined) return
    this.#ended = reason
    void this.#stop()
    this.#onLost(reason)
  }

  /**
   * proper-lockfile found the directory gone or changed, or could not touch it in time (a sleeping laptop, a busy
   * loop), and stopped. As long as `owner.json` is ours nobody followed us; a claim on our own token makes sure that
   * nobody does while the directory is made anew.
   */
  async #renew(cause: Error): Promise<void> {
    try {
      if (this.#ended !== undefined || !this.#verify()) return
      const rival = claim(this.#places, this.#self.token, this.#self)
      if (rival !== undefined) {
        return this.#lose(
          rival.owner === undefined ? 'it is being taken over' : `process ${rival.owner.pid} takes it over`,
        )
      }
      try {
        if (!this.#verify()) return
        removeLockDirectory(this.#places)
        await this.beat()
      } finally {
        unclaim(this.#places, this.#self.token, this.#self)
      }
      // Lost or released meanwhile: whoever ended it could not stop a beat that had not begun.
      if (this.#ended !== undefined) await this.#stop()
    } catch (error) {
      this.#lose(`${cause.message}, and it could not be renewed: ${error instanceof Error ? error.message : error}`)
    }
  }
}

type Callback<T extends unknown[] = []> = (error: NodeJS.ErrnoException | null, ...result: T) => void

/**
 * The calls that proper-lockfile makes, with three rules added: a lock directory that exists is never judged by it, a
 * directory that another owner made is never removed by it (also not when the process exits), and after the lock was
 * given back an update that was under way reports nothing.
 */
class LockfileDisk {
  silent = false
  readonly #places: Places
  readonly #token: string

  constructor(places: Places, token: string) {
    this.#places = places
    this.#token = token
  }

  mkdir(path: string, callback: Callback): void {
    fs.mkdir(path, (error) => {
      if (error?.code === 'EEXIST') error.code = 'ELOCKED'
      callback(error)
    })
  }

  stat(path: string, callback: Callback<[fs.Stats]>): void {
    fs.stat(path, (error, stats) => {
      if (!this.silent) callback(error, stats)
    })
  }

  utimes(path: string, accessed: Date, modified: Date, callback: Callback): void {
    fs.utimes(path, accessed, modified, (error) => {
      if (!this.silent) callback(error)
    })
  }

  rmdir(path: string, callback: Callback): void {
    if (this.#isOthers()) callback(null)
    else fs.rmdir(path, callback)
  }

  rmdirSync(path: string): void {
    if (!this.#isOthers()) fs.rmdirSync(path)
  }

  #isOthers(): boolean {
    const { token } = readRecord(this.#places.owner)
    return token !== this.#token && token !== NO_OWNER
  }
}

// --- files -------------------------------------------------------------------------------------------------------

interface OwnerRecord {
  /** What stands there: a token, `NO_OWNER`, or a name for these unreadable bytes. */
  readonly token: string
  readonly identity?: Identity
}

function readRecord(path: string): OwnerRecord {
  let bytes: Buffer
  try {
    bytes = fs.readFileSync(path)
  } catch (error) {
    if (errorCode(error) === 'ENOENT') return { token: NO_OWNER }
    throw error
  }
  try {
    const identity = JSON.parse(bytes.toString('utf8')) as Identity
    // The token becomes part of a file name, so it is held to the form that we give it.
    if (
      /^[0-9a-f]{32}$/.test(identity.token) &&
      Number.isInteger(identity.pid) &&
      identity.pid > 0 &&
      typeof identity.host === 'string'
    ) {
      return { token: identity.token, identity }
    }
  } catch {
    // Not JSON: unreadable, as below.
  }
  return { token: `unreadable-${Math.floor(fs.statSync(path, { throwIfNoEntry: false })?.mtimeMs ?? 0)}` }
}

function writeOwner(places: Places, self: Identity): void {
  const temporary = writeTemporary(places, self)
  fs.renameSync(temporary, places.owner)
}

/** Creates `path` with the whole identity in it, or returns false because it is there. */
function createWhole(places: Places, path: string, self: Identity): boolean {
  const temporary = writeTemporary(places, self)
  try {
    // A link appears with its content; a created file is empty first, and its maker may die there.
    fs.linkSync(temporary, path)
    return true
  } catch (error) {
    if (errorCode(error) === 'EEXIST') return false
    return createThenWrite(path, self)
  } finally {
    fs.rmSync(temporary, { force: true })
  }
}

/** For file systems without hard links. A maker who dies between the two calls leaves a claim judged by its age. */
function createThenWrite(path: string, self: Identity): boolean {
  try {
    fs.writeFileSync(path, encode(self), { flag: 'wx' })
    return true
  } catch (error) {
    if (errorCode(error) === 'EEXIST') return false
    throw error
  }
}

function writeTemporary(places: Places, self: Identity): string {
  const path = places.temporary(self.token)
  const descriptor = fs.openSync(path, 'w')
  try {
    fs.writeFileSync(descriptor, encode(self))
    fs.fsyncSync(descriptor)
  } finally {
    fs.closeSync(descriptor)
  }
  return path
}

const encode = (self: Identity): string => `${JSON.stringify(self, null, 2)}\n`

function removeLockDirectory(places: Places): void {
  try {
    fs.rmdirSync(places.lock)
  } catch (error) {
    if (errorCode(error) !== 'ENOENT') throw error
  }
}

/** ms since the last change, or undefined when there is nothing. Negative when the clocks differ: then it is fresh. */
function ageOf(path: string): number | undefined {
  const stats = fs.statSync(path, { throwIfNoEntry: false })
  return stats === undefined ? undefined : nodeClock.now() - stats.mtimeMs
}

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms))

// --- processes ---------------------------------------------------------------------------------------------------

function identify(): Identity {
  return {
    token: randomBytes(16).toString('hex'),
    pid: process.pid,
    processStart: statOf(process.pid)?.start ?? null,
    bootId: bootId(),
    pidNamespace: pidNamespace(),
    host: hostname(),
    since: new Date(nodeClock.now()).toISOString(),
  }
}

const isDead = (identity: Identity | undefined): boolean => identity !== undefined && judge(identity) === 'dead'

/** `foreign`: its process cannot be seen from here. */
function judge(identity: Identity): 'alive' | 'dead' | 'foreign' {
  if (identity.host !== hostname()) return 'foreign'
  if (differs(identity.pidNamespace, pidNamespace())) return 'foreign'
  if (differs(identity.bootId, bootId())) return 'dead'
  try {
    process.kill(identity.pid, 0)
  } catch (error) {
    // EPERM: it is there, and belongs to somebody else.
    if (errorCode(error) === 'ESRCH') return 'dead'
  }
  const stat = statOf(identity.pid)
  if (stat === undefined) return 'alive'
  // A killed process that its parent has not waited for still has its pid and start, but holds nothing any more.
  if (stat.state === 'Z' || stat.state === 'X') return 'dead'
  return differs(identity.processStart, stat.start) ? 'dead' : 'alive'
}

/** Something that a system does not tell is no difference. */
const differs = (a: string | null, b: string | null): boolean => a !== null && b !== null && a !== b

const bootId = (): string | null => readText('/proc/sys/kernel/random/boot_id')

function pidNamespace(): string | null {
  try {
    return fs.readlinkSync('/proc/self/ns/pid')
  } catch {
    return null
  }
}

function statOf(pid: number): { readonly state: string; readonly start: string } | undefined {
  const text = readText(`/proc/${pid}/stat`)
  // The second field is the program's name in brackets, which may itself hold blanks and brackets.
  const fields = text?.slice(text.lastIndexOf(')') + 2).split(' ')
  const [state, start] = [fields?.[0], fields?.[19]]
  return state === undefined || start === undefined ? undefined : { state, start }
}

function readText(path: string): string | null {
  try {
    return fs.readFileSync(path, 'utf8').trim()
  } catch {
    return null
  }
}
