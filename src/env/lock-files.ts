/**
 * The files of a lock on a real directory: where they are, and how they are read and made.
 *
 * Invariant: a file that names an owner appears whole or not at all, where the file system has links and renames. A
 * reader that finds other bytes gives them a token of their own, so that they too can be claimed and followed.
 */
import * as fs from 'node:fs'
import { join } from 'node:path'
import { errorCode } from '../errors.js'
import { nodeClock } from './clock.js'
import type { Identity } from './lock-owner.js'

/** Stands for the token where there is no owner. Not hexadecimal, so no token equals it. */
export const NO_OWNER = 'none'

export const CLAIM_PREFIX = 'holdfast.displace.'
export const TEMPORARY_PREFIX = 'holdfast.owner.'

/** The paths of one directory's lock. */
export class Places {
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

export interface OwnerRecord {
  /** What stands there: a token, `NO_OWNER`, or a name for these unreadable bytes. */
  readonly token: string
  readonly identity?: Identity
}

export function readRecord(path: string): OwnerRecord {
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

export function writeOwner(places: Places, self: Identity): void {
  const temporary = writeTemporary(places, self)
  fs.renameSync(temporary, places.owner)
}

/** Creates `path` with the whole identity in it, or returns false because it is there. */
export function createWhole(places: Places, path: string, self: Identity): boolean {
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

export function removeLockDirectory(places: Places): void {
  try {
    fs.rmdirSync(places.lock)
  } catch (error) {
    if (errorCode(error) !== 'ENOENT') throw error
  }
}

/** ms since the last change, or undefined when there is nothing. Negative when the clocks differ: then it is fresh. */
export function ageOf(path: string): number | undefined {
  const stats = fs.statSync(path, { throwIfNoEntry: false })
  return stats === undefined ? undefined : nodeClock.now() - stats.mtimeMs
}
