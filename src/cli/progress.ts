/** One line on stderr that is rewritten a few times a second, on a terminal only. Silent otherwise. */

import { type PageLine, ROBOTS_ERROR } from '../crawl/page-line.js'
import type { CrawlOpened } from '../crawl/run-crawl.js'
import type { Stats } from '../frontier/types.js'
import type { CliIo } from './cli-io.js'

const REFRESH_MS = 250
/** Rates are those of the last so many samples: quick enough to show a stall, slow enough to be read. */
const SAMPLES = 20
const ERASE_LINE = '\r\x1b[2K'

interface Sample {
  readonly atMs: number
  readonly pages: number
  readonly waiting: number
}

export interface ProgressState {
  /** Lines of all runs. */
  readonly lines: number
  readonly pagesPerSecond: number
  readonly errors: number
  readonly stats: Pick<Stats, 'ready' | 'leased' | 'delayed' | 'seen'>
  /** undefined when it would be a guess: as long as the frontier grows. */
  readonly etaMs: number | undefined
}

export class ProgressLine {
  readonly #io: CliIo
  readonly #pagesMax: number
  readonly #enabled: boolean
  #timer: NodeJS.Timeout | undefined
  #opened: CrawlOpened | undefined
  #pages = 0
  #errors = 0
  readonly #samples: Sample[] = []

  constructor(io: CliIo, options: { readonly pagesMax: number }) {
    this.#io = io
    this.#pagesMax = options.pagesMax
    this.#enabled = io.stderr.isTTY === true && io.environment['TERM'] !== 'dumb'
  }

  start(opened: CrawlOpened): void {
    if (!this.#enabled) return
    this.#opened = opened
    this.#timer = setInterval(() => {
      // The store may close while a sample is being taken; the next line written is the summary anyhow.
      this.#draw(opened).catch(() => {})
    }, REFRESH_MS)
  }

  page(line: PageLine): void {
    this.#pages++
    if (line.error !== undefined && line.error !== ROBOTS_ERROR) this.#errors++
  }

  /** Erases the line, so that what is written next stands alone. A second call does nothing. */
  stop(): void {
    if (this.#timer === undefined) return
    clearInterval(this.#timer)
    this.#timer = undefined
    this.#opened = undefined
    this.#io.stderr.write(ERASE_LINE)
  }

  async #draw(opened: CrawlOpened): Promise<void> {
    const stats = await opened.stats()
    // Stopped meanwhile.
    if (this.#opened === undefined) return
    const waiting = stats.ready + stats.delayed + stats.leased
    this.#samples.push({ atMs: this.#io.uptimeMs(), pages: this.#pages, waiting })
    if (this.#samples.length > SAMPLES) this.#samples.shift()
    const state = {
      lines: opened.lines + this.#pages,
      errors: this.#errors,
      stats,
      ...ratesOf(this.#samples, this.#pagesMax - opened.lines - this.#pages),
    }
    const plain = this.#io.environment['NO_COLOR'] !== undefined && this.#io.environment['NO_COLOR'] !== ''
    const text = formatProgress(state).slice(0, (this.#io.stderr.columns ?? 80) - 1)
    this.#io.stderr.write(`${ERASE_LINE}${plain ? text : `\x1b[36m${text}\x1b[39m`}`)
  }
}

/** `pagesLeft`: until `--max-pages`, perhaps infinite. */
export function ratesOf(
  samples: readonly Sample[],
  pagesLeft: number,
): Pick<ProgressState, 'pagesPerSecond' | 'etaMs'> {
  const first = samples[0]
  const last = samples[samples.length - 1]
  const ms = samples.length < 2 ? 0 : last.atMs - first.atMs
  if (ms <= 0) return { pagesPerSecond: 0, etaMs: undefined }
  const pagesPerMs = (last.pages - first.pages) / ms
  const drainedPerMs = (first.waiting - last.waiting) / ms
  const untilEmptyMs = drainedPerMs > 0 ? last.waiting / drainedPerMs : Number.POSITIVE_INFINITY
  const untilLimitMs = pagesPerMs > 0 ? pagesLeft / pagesPerMs : Number.POSITIVE_INFINITY
  const etaMs = Math.min(untilEmptyMs, untilLimitMs)
  return { pagesPerSecond: pagesPerMs * 1000, etaMs: Number.isFinite(etaMs) ? etaMs : undefined }
}

export function formatProgress(state: ProgressState): string {
  const { stats } = state
  const rate = state.pagesPerSecond < 10 ? state.pagesPerSecond.toFixed(1) : count(Math.round(state.pagesPerSecond))
  const parts = [
    `${count(state.lines)} pages`,
    `${rate}/s`,
    `${count(stats.ready)} ready`,
    `${count(stats.leased)} in flight`,
    `${count(stats.delayed)} delayed`,
    `${count(stats.seen)} seen`,
    `${count(state.errors)} errors`,
  ]
  if (state.etaMs !== undefined) parts.push(`about ${seconds(state.etaMs)} left`)
  return parts.join(' · ')
}

export function count(value: number): string {
  return value.toLocaleString('en-US')
}

export function seconds(ms: number): string {
  const total = ms / 1000
  if (total < 10) return `${total.toFixed(1)} s`
  if (total < 120) return `${Math.round(total)} s`
  const minutes = Math.round(total / 60)
  if (minutes < 120) return `${minutes} min`
  return `${(minutes / 60).toFixed(1)} h`
}
