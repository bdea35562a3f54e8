/**
 * Claims: the right to follow one owner, or one claimant. `holdfast.displace.T` names the process that may remove the
 * token T from where it stands.
 *
 * Invariant: of all who claim one token, one has it. A claim is taken away only from a claimant that is dead, or unseen
 * for longer than a lock lives, and only under a claim on that claimant's own token.
 */
import * as fs from 'node:fs'
import { join } from 'node:path'
import { LOCK_STALE_MS } from '../limits.js'
import { ageOf, CLAIM_PREFIX, createWhole, NO_OWNER, type Places, readRecord, TEMPORARY_PREFIX } from './lock-files.js'
import { type Identity, judge } from './lock-owner.js'

/** Who is in the way: `final` when waiting will not help. `owner` is unknown when nothing readable names one. */
export interface Blocker {
  readonly final: boolean
  readonly owner?: Identity | undefined
}

/**
 * Makes us the only one who may remove `token` from where it stands (`owner.json`, or another claim). Returns who has
 * that right already.
 */
export function claim(places: Places, token: string, self: Identity): Blocker | undefined {
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
export function unclaim(places: Places, token: string, self: Identity): void {
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
export function sweep(places: Places, ownToken: string): void {
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
