/** The plain model of resume semantics: a map and an array, simpler than the code it judges. */

export interface ModelJob {
  readonly url: string
  readonly order: number
  readonly priority: number
  readonly start: boolean
  readonly host: string
  fate: 'ready' | 'delayed' | 'leased' | 'dead' | 'gone'
  due: number
  attempt: number
  /** Monotonic ms at which its lease ends. */
  deadline: number
}

export const MAX_ATTEMPTS = 4
export const LEASE_MS = 60_000

export class Model {
  readonly jobs = new Map<string, ModelJob>()
  now = 0
  private nextOrder = 1

  /** False: it was seen before. */
  add(url: string, priority: number, start: boolean, delayMs: number): boolean {
    if (this.jobs.has(url)) return false
    this.jobs.set(url, {
      url,
      order: this.nextOrder++,
      priority,
      start,
      host: new URL(url).hostname,
      fate: delayMs > 0 ? 'delayed' : 'ready',
      due: this.now + delayMs,
      attempt: 0,
      deadline: 0,
    })
    return true
  }

  of(fate: ModelJob['fate']): ModelJob[] {
    return [...this.jobs.values()].filter((job) => job.fate === fate)
  }

  /** Who may be handed out next: the head of a host's best bucket, for hosts whose best is best of all, least active first. */
  eligible(): ModelJob[] {
    const heads = new Map<string, ModelJob>()
    for (const job of this.of('ready')) {
      const head = heads.get(job.host)
      if (head === undefined || before(job, head) < 0) heads.set(job.host, job)
    }
    const active = (job: ModelJob): number => this.of('leased').filter((other) => other.host === job.host).length
    const all = [...heads.values()]
    const best = Math.max(...all.map((job) => job.priority))
    const top = all.filter((job) => job.priority === best)
    const kind = Math.min(...top.map((job) => Number(job.start)))
    const equal = top.filter((job) => Number(job.start) === kind)
    const least = Math.min(...equal.map(active))
    return equal.filter((job) => active(job) === least)
  }

  take(job: ModelJob): void {
    job.fate = 'leased'
    job.attempt++
    job.deadline = this.now + LEASE_MS
  }

  /** Its lease ended without an answer. */
  lose(job: ModelJob): void {
    job.fate = job.attempt >= MAX_ATTEMPTS ? 'dead' : 'ready'
  }

  retry(job: ModelJob, delayMs: number): void {
    if (job.attempt >= MAX_ATTEMPTS) job.fate = 'dead'
    else if (delayMs > 0) {
      job.fate = 'delayed'
      job.due = this.now + delayMs
    } else job.fate = 'ready'
  }

  advance(ms: number): void {
    this.now += ms
    for (const job of this.of('leased')) if (job.deadline <= this.now) this.lose(job)
    for (const job of this.of('delayed')) if (job.due <= this.now) job.fate = 'ready'
  }

  crash(): void {
    for (const job of this.of('leased')) this.lose(job)
  }
}

function before(a: ModelJob, b: ModelJob): number {
  return b.priority - a.priority || Number(a.start) - Number(b.start) || a.order - b.order
}
