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
 *
 * Here the lock is taken. Who counts as dead is in `lock-owner.ts`, the claims in `lock-claim.ts`, the files in
 * `lock-files.ts`, the lock directory in `lock-beat.ts`, and what an owner does from then on in `held-lock.ts`.
 */
import * as fs from 'node:fs'
import { errorCode, HoldfastError, ioError } from '../errors.js'
import { LOCK_STALE_MS } from '../limits.js'
import { nodeClock } from './clock.js'
import { HeldLock } from './held-lock.js'
import type { DirectoryLock, LockService } from './lock.js'
import { type Blocker, claim, sweep, unclaim } from './lock-claim.js'
import { ageOf, type OwnerRecord, Places, readRecord, removeLockDirectory, writeOwner } from './lock-files.js'
import { type Identity, identify, isDead, judge } from './lock-owner.js'

/** How long to wait for somebody who is in the middle of taking or giving back the lock. */
const WAIT_MS_MAX = 2500
const POLL_MS = 20
/** A lock directory without a readable owner is somebody between two steps while it is younger than this. */
const BETWEEN_STEPS_MS = 2000

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

function locked(directory: string, owner: Identity | undefined): HoldfastError {
  const who = owner === undefined ? 'a process that has not named itself' : `process ${owner.pid} on ${owner.host}`
  const since = owner === undefined ? '' : ` since ${owner.since}`
  return new HoldfastError('HOLDFAST_LOCKED', `${directory} is in use by ${who}${since}`, {
    path: directory,
    ...(owner === undefined ? {} : { owner: { pid: owner.pid, host: owner.host } }),
  })
}

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms))
