/**
 * The sign of life of a lock, for hosts that cannot see our processes: the directory `holdfast.lock`, made by
 * proper-lockfile and touched by it every few seconds.
 *
 * Invariant: proper-lockfile keeps the directory's time, and decides nothing. Whether a lock is stale, and who may take
 * a directory away, is for the owners' tokens to say (`node-lock.ts`).
 */
import * as fs from 'node:fs'
import * as lockfile from 'proper-lockfile'
import { LOCK_STALE_MS } from '../limits.js'
import { NO_OWNER, type Places, readRecord } from './lock-files.js'

/**
 * Makes the lock directory (ELOCKED when it is there) and keeps its time of change fresh, until `onCompromised` says
 * that this failed, or until the returned function is called: that removes the directory.
 */
export async function startBeat(
  places: Places,
  token: string,
  onCompromised: (error: Error) => void,
): Promise<() => Promise<void>> {
  const adaptor = new LockfileDisk(places, token)
  const release = await lockfile.lock(places.directory, {
    lockfilePath: places.lock,
    realpath: false,
    stale: LOCK_STALE_MS,
    fs: adaptor,
    // Ours always: without one, proper-lockfile throws where nobody can catch it, and the process ends.
    onCompromised,
  })
  return () => {
    adaptor.silent = true
    return release()
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
