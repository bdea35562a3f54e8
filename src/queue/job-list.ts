/** What a freeze and its undoing do with the linked list of a lane. */
import type { FrozenLanes } from './frozen-lanes.js'
import type { JobEntry } from './job-entry.js'
import { type JobTable, NO_JOB } from './job-table.js'

/** Nodes in the order of service. */
export interface JobList {
  readonly head: number
  readonly tail: number
  readonly count: number
  readonly bytes: number
}

/** Jobs that came back take their places in the list. Their bytes are added to it. */
export function mergedList(jobs: JobTable, list: JobList, returned: JobEntry[], lifo: boolean): JobList {
  returned.sort((a, b) => (lifo ? b.id - a.id : a.id - b.id))
  let { head, tail, count, bytes } = list
  let before = NO_JOB
  let node = head
  for (const job of returned) {
    // It may have had a home, which is marked consumed: a new one is on its way.
    job.home = undefined
    while (node !== NO_JOB && (lifo ? jobs.id(node) > job.id : jobs.id(node) < job.id)) {
      before = node
      node = jobs.next(node)
    }
    const added = jobs.addEntry(job)
    jobs.setNext(added, node)
    if (before === NO_JOB) head = added
    else jobs.setNext(before, added)
    if (node === NO_JOB) tail = added
    before = added
    count++
    bytes += job.length
  }
  return { head, tail, count, bytes }
}

/**
 * What is left of a frozen list, and apart from it the jobs that had come back before the freeze: they may belong before
 * what lies in runs, so they do not stay in the list. Nodes of jobs that were taken go.
 */
export function meltedList(jobs: JobTable, parts: FrozenLanes, frozen: number): JobList & { returned: JobEntry[] } {
  const returned: JobEntry[] = []
  let head = NO_JOB
  let tail = NO_JOB
  let count = 0
  let bytes = 0
  let isTaken = true
  for (let node = parts.heads.at(frozen); node !== NO_JOB; ) {
    const next = jobs.next(node)
    if (node === parts.cursors.at(frozen)) isTaken = false
    const entry = jobs.entry(node)
    if (isTaken || entry !== undefined) {
      jobs.remove(node)
      if (!isTaken && entry !== undefined) returned.push(entry)
    } else {
      if (tail === NO_JOB) head = node
      else jobs.setNext(tail, node)
      tail = node
      count++
      bytes += jobs.length(node)
    }
    node = next
  }
  if (tail !== NO_JOB) jobs.setNext(tail, NO_JOB)
  return { head, tail, count, bytes, returned }
}
