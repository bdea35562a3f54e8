/** Every name on disk, made and parsed in one place. */

export const ACTIVE_FILE = 'active.json'
export const INFO_FILE = 'info.json'
export const RESERVE_FILE = 'reserve'
export const TEMPORARY_SUFFIX = '.tmp'

/** Buckets that are not a priority. */
export const DELAYED_BUCKET = 'delayed'
export const DEAD_BUCKET = 'dead'

export function join(directory: string, ...names: string[]): string {
  return [directory.replace(/\/+$/, ''), ...names].join('/')
}

export interface JobPaths {
  readonly root: string
  readonly queue: string
  readonly journal: string
  readonly seen: string
  readonly active: string
  readonly reserve: string
}

export function jobPaths(root: string): JobPaths {
  const queue = join(root, 'requests.queue')
  return {
    root,
    queue,
    journal: join(queue, 'journal'),
    seen: join(root, 'requests.seen'),
    active: join(queue, ACTIVE_FILE),
    reserve: join(queue, RESERVE_FILE),
  }
}

export const journalName = (number: number): string => `${String(number).padStart(8, '0')}.log`

export function parseJournalName(name: string): number | undefined {
  return /^\d{8,}\.log$/.test(name) ? Number(name.slice(0, -4)) : undefined
}

/** `q00000` as queuelib names them; the width is a minimum. */
export const segmentName = (number: number): string => `q${String(number).padStart(5, '0')}`

export function parseSegmentName(name: string): number | undefined {
  return /^q\d{5,}$/.test(name) ? Number(name.slice(1)) : undefined
}

/** The directory name of a priority: negated, as Scrapy does it; `0 -` so that zero is never "-0". */
export const bucketName = (priority: number, start: boolean): string => `${0 - priority}${start ? 's' : ''}`

export function parseBucketName(name: string): { priority: number; start: boolean } | undefined {
  const match = /^(0|-?[1-9]\d*)(s?)$/.exec(name)
  if (match === null) return undefined
  const priority = 0 - Number(match[1])
  return Number.isSafeInteger(priority) ? { priority, start: match[2] === 's' } : undefined
}

export function bucketDirectory(paths: JobPaths, name: string): string {
  return name === DEAD_BUCKET ? join(paths.root, DEAD_BUCKET) : join(paths.queue, name)
}
