/**
 * A lock that is held: proven before bytes are written, kept alive, given back or lost.
 *
 * Invariant: it is ours as long as `owner.json` holds our token, and no longer. Once it was lost or given back it never
 * becomes ours again, and `onLost` has been called at most once.
 */
import * as fs from 'node:fs'
import { HoldfastError, ioError } from '../errors.js'
import { LOCK_VERIFY_MS } from '../limits.js'
import { nodeClock } from './clock.js'
import type { DirectoryLock } from './lock.js'
import { startBeat } from './lock-beat.js'
import { claim, unclaim } from './lock-claim.js'
import { NO_OWNER, type OwnerRecord, type Places, readRecord, removeLockDirectory } from './lock-files.js'
import type { Identity } from './lock-owner.js'

export class HeldLock implements DirectoryLock {
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
    this.#stopBeating = await startBeat(this.#places, this.#self.token, (error) => {
      this.#stopBeating = undefined
      this.#renewal = this.#renew(error)
    })
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
