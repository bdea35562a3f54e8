/**
 * What goes wrong on a simulated disk, and when: the count of its mutating calls, and the faults planned against it.
 *
 * Invariant: a fault strikes before its call has done any of its work, save the part of a write that was asked for, and
 * after a crash no call of any kind is answered. So a run that failed at call k can be repeated with k alone.
 */

/** Thrown by the call at which the machine was planned to stop, and by every call on that disk afterwards. */
export class SimCrash extends Error {
  constructor() {
    super('simulated crash: this disk answers no more')
    this.name = 'SimCrash'
  }
}

export interface SimFault {
  readonly kind: 'crash' | 'EIO' | 'ENOSPC' | 'EMFILE' | 'short'
  /** The same kind of call (blocking or not) fails each time from then on, until `clearFaults()`. */
  readonly sticky?: boolean
  /** For a crash in a write: a prefix of the bytes, as long as the seed says, has been written. Without it, none. */
  readonly seed?: number
}

export type SimCall =
  | 'write'
  | 'truncate'
  | 'sync'
  | 'create'
  | 'makeDirectory'
  | 'rename'
  | 'unlink'
  | 'removeDirectory'
  | 'syncDirectory'

/** One disk's plan of faults, asked by every call before it does its work. */
export class SimFaults {
  /** Mutating calls so far. */
  mutations = 0
  /** Whether the planned fault was reached. */
  hit = false
  crashed = false
  readOnly = false
  #plan: { readonly at: number; readonly fault: SimFault } | undefined
  #stuck: { readonly call: SimCall; readonly fault: SimFault } | undefined
  #readFaults: { readonly part: string; readonly code: string }[] = []

  failAt(callsAhead: number, fault: SimFault): void {
    this.#plan = { at: this.mutations + callsAhead, fault }
    this.hit = false
  }

  failReads(part: string, code: string): void {
    this.#readFaults.push({ part, code })
  }

  clearFaults(): void {
    this.#plan = undefined
    this.#stuck = undefined
    this.#readFaults = []
  }

  checkAlive(): void {
    if (this.crashed) throw new SimCrash()
  }

  checkRead(path: string): void {
    const fault = this.#readFaults.find(({ part }) => path.includes(part))
    if (fault !== undefined) throw simError(fault.code, 'read', path)
  }

  /** Counts a mutating call and throws what was planned for it, save for a write: that one is told how it fails. */
  mutate(call: SimCall, path: string): SimFault | undefined {
    this.checkAlive()
    const index = this.mutations++
    const planned = this.#plan !== undefined && index === this.#plan.at ? this.#plan.fault : undefined
    if (planned !== undefined) {
      this.hit = true
      if (planned.sticky === true) this.#stuck = { call, fault: planned }
    }
    const fault = planned ?? (this.#stuck?.call === call ? this.#stuck.fault : undefined)
    if (fault !== undefined && call !== 'write') throw this.failure(fault, call, path)
    if (fault === undefined && this.readOnly && call !== 'sync' && call !== 'syncDirectory') {
      throw simError('EROFS', call, path)
    }
    return fault
  }

  failure(fault: SimFault, call: SimCall, path: string): Error {
    if (fault.kind === 'crash') {
      this.crashed = true
      return new SimCrash()
    }
    return simError(fault.kind === 'short' ? 'ENOSPC' : fault.kind, call, path)
  }
}

/** An error as Node's own file system throws it. */
export function simError(code: string, call: string, path: string): Error {
  return Object.assign(new Error(`${code}: simulated, ${call} '${path}'`), { code, syscall: call, path })
}
