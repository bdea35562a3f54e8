/**
 * Who owns a lock: how a process names itself, and how it is judged later by another one.
 *
 * Invariant: `dead` is said only of a process of this host and, where the system tells, of our pid namespace. Any other
 * is `foreign`: its pid means nothing here. Whoever cannot be proven dead is alive, a stopped process included.
 */
import { randomBytes } from 'node:crypto'
import * as fs from 'node:fs'
import { hostname } from 'node:os'
import { errorCode } from '../errors.js'
import { nodeClock } from './clock.js'

/** Enough to tell a process from every other one, later ones with the same pid included. */
export interface Identity {
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

export function identify(): Identity {
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

export const isDead = (identity: Identity | undefined): boolean => identity !== undefined && judge(identity) === 'dead'

/** `foreign`: its process cannot be seen from here. */
export function judge(identity: Identity): 'alive' | 'dead' | 'foreign' {
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
