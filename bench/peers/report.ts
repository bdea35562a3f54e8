/** The tables: one a scenario, the peers below each other, holdfast first, and who had no figure and why. */
import { count, median, ms, table } from '../measure.js'
import type { Durability } from './driver.js'
import { PEERS } from './peers.js'
import { type Outcome, SCENARIOS } from './scenarios.js'

export interface Row {
  readonly scenario: string
  readonly durability: Durability
  readonly peer: string
  readonly outcomes: Outcome[]
  /** Why there is no figure: it cannot do this. */
  readonly skipped?: string
  /** It could, and went wrong. */
  failed?: string
}

/** The median of one figure over the runs. */
export function figure(row: Row, name: string): number | undefined {
  const values = row.outcomes.map(({ metrics }) => metrics[name]).filter((value) => value !== undefined)
  return values.length === 0 ? undefined : median(values)
}

const TITLES: Record<string, string> = {
  rate: 'per second',
  pushRate: 'push/s',
  popRate: 'pop/s',
  cpuUs: 'cpu us/op',
  p99Ms: 'p99 ms',
  firstMs: 'first ms',
  openMs: 'open ms',
  lost: 'not at hand',
  forgotten: 'seen lost',
  endMb: 'MB at the end',
  peakMb: 'MB peak',
  bytesPending: 'bytes/pending',
  bytesSeen: 'bytes/seen',
}

/** How many times as good holdfast is: above 1 it is ahead. */
export function ratio(holdfast: number | undefined, peer: number | undefined, less: boolean): number | undefined {
  if (holdfast === undefined || peer === undefined) return undefined
  return less ? peer / holdfast : holdfast / peer
}

const show = (name: string, value: number | undefined): string =>
  value === undefined ? '' : /Us|Ms|Mb/.test(name) ? ms(value) : count(value)

const unkeptOf = (name: string): string | undefined => PEERS.find((peer) => peer.name === name)?.unkept
/** A star says that the peer keeps less than the scenario asks for. */
export const nameOf = (peer: string): string => (unkeptOf(peer) === undefined ? peer : `${peer}*`)

export function printScenario(scenario: string, durability: Durability, rows: readonly Row[]): void {
  const { title, main, less } = SCENARIOS[scenario]
  const promise = durability === 'power' ? 'fsync' : 'survives kill -9'
  console.log(`\n${scenario}. ${title} (${promise})`)
  const metrics = [...new Set(rows.flatMap(({ outcomes }) => outcomes.flatMap((one) => Object.keys(one.metrics))))]
  const ours = rows.find(({ peer }) => peer === 'holdfast')
  const lines = rows
    .filter(({ outcomes }) => outcomes.length > 0)
    .map((row) => {
      const times = ours === undefined ? undefined : ratio(figure(ours, main), figure(row, main), less)
      return [
        nameOf(row.peer),
        ...metrics.map((name) => show(name, figure(row, name))),
        times === undefined || row === ours ? '' : `${times.toFixed(2)}x`,
        count(median(row.outcomes.map(({ operations }) => operations))),
      ]
    })
  if (lines.length > 0) {
    console.log(table([['', ...metrics.map((name) => TITLES[name] ?? name), 'holdfast is', 'operations'], ...lines]))
  }
  for (const { peer, outcomes } of rows) {
    for (const note of new Set(outcomes.flatMap(({ notes }) => notes ?? []))) console.log(`  ${peer}: ${note}`)
  }
  for (const { peer, outcomes } of rows) {
    const unkept = unkeptOf(peer)
    if (unkept !== undefined && outcomes.length > 0) console.log(`  ${peer}*: ${unkept}`)
  }
  if (metrics.includes('endMb'))
    console.log('  MB are of as many pending as the last column says: where it differs, compare bytes')
  if (metrics.includes('lost')) {
    console.log('  not at hand: pending that the new process does not get at once; leases of the killed one may run on')
  }
  for (const { peer, skipped, failed } of rows) {
    if (skipped !== undefined) console.log(`  ${peer}: no figure, ${skipped}`)
    if (failed !== undefined) console.log(`  ${peer}: FAILED, ${failed}`)
  }
  const right = rows.filter(({ failed, outcomes }) => failed === undefined && outcomes.length > 0).length
  console.log(
    `  correct: ${right} of ${right + rows.filter(({ failed }) => failed !== undefined).length} peers that ran`,
  )
}
