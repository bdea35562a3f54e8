/**
 * The figures of one `bench:peers --json` run as a picture: one small chart of horizontal bars per scenario, written as plain
 * SVG. Nothing is run. Colours come from the reader's colour scheme, so the picture reads on white and on black; every bar
 * has its figure beside it, so nothing depends on the colours.
 *
 * Usage: npm run bench:plot -- FILE.json [OUT.svg]
 */
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { peersDirectory } from './modules.js'
import { figure, nameOf, type Row } from './report.js'
import type { ScenarioFacts } from './scenarios.js'

export interface BenchResult {
  readonly date: string
  readonly machine: { readonly cpu: string; readonly cores: number; readonly node: string }
  readonly scale: number
  readonly runs: number
  readonly scenarios: Record<string, ScenarioFacts>
  readonly rows: readonly Row[]
}

const WIDTH = 900
const CHART_WIDTH = 430
const LEFT = 110
const BAR_WIDTH = 220
const BAR_HEIGHT = 14
const BAR_STEP = 19
const TITLE_HEIGHT = 44
const HEAD_HEIGHT = 62

const STYLE = `
  text { font: 12px system-ui, sans-serif; fill: #1f2328 }
  .title { font-size: 18px; font-weight: 600 }
  .chart { font-weight: 600 }
  .quiet { fill: #59636e; font-size: 11px }
  .bar { fill: #8c959f }
  .ours { fill: #0969da }
  .floor { fill: #d0d7de }
  @media (prefers-color-scheme: dark) {
    text { fill: #f0f6fc }
    .quiet { fill: #9198a1 }
    .bar { fill: #656c76 }
    .ours { fill: #4493f8 }
    .floor { fill: #3d444d }
  }`

const escapeXml = (text: string): string => text.replace(/&/g, '&amp;').replace(/</g, '&lt;').replace(/>/g, '&gt;')

/** Three digits and a letter: what a bar can say in the room it has. */
export function short(value: number): string {
  const [divisor, letter] = value >= 1e6 ? [1e6, ' M'] : value >= 1e3 ? [1e3, ' k'] : [1, '']
  const scaled = value / divisor
  return `${scaled.toFixed(scaled >= 100 || (letter === '' && scaled >= 10) ? 0 : scaled >= 10 ? 1 : 2)}${letter}`
}

interface Bar {
  readonly peer: string
  readonly value: number
}

interface Chart {
  readonly title: string
  readonly unit: string
  readonly better: string
  readonly bars: readonly Bar[]
}

/** Memory as bytes a request, because not every peer was given as many; all else by its main figure. Best first. */
export function chartsOf({ scenarios, rows }: BenchResult): Chart[] {
  const charts: Chart[] = []
  for (const [key, { title, durabilities, main, unit, less }] of Object.entries(scenarios)) {
    for (const durability of durabilities) {
      const own = rows.filter((row) => row.scenario === key && row.durability === durability)
      const size = Math.max(...own.flatMap(({ outcomes }) => outcomes.map(({ operations }) => operations)))
      const bars = own.flatMap((row): Bar[] => {
        const value = figure(row, main)
        const smaller = key === '7' && row.outcomes.some(({ operations }) => operations < size)
        return value === undefined || smaller ? [] : [{ peer: row.peer, value }]
      })
      if (bars.length === 0) continue
      bars.sort((a, b) => (less ? a.value - b.value : b.value - a.value))
      const promise = durability === 'power' ? 'fsync' : 'survives kill -9'
      charts.push({ title: `${key}. ${title}`, unit, better: `${promise}, ${less ? 'less' : 'more'} is better`, bars })
    }
  }
  return charts
}

function drawChart({ title, unit, better, bars }: Chart, x: number, y: number): string {
  const most = Math.max(...bars.map(({ value }) => value))
  const lines = bars.map(({ peer, value }, index) => {
    const top = y + TITLE_HEIGHT + index * BAR_STEP
    const width = Math.max(1, (value / most) * BAR_WIDTH).toFixed(1)
    const kind = peer === 'holdfast' ? 'ours' : peer === 'bare log' ? 'floor' : 'bar'
    const weight = peer === 'holdfast' ? ' class="chart"' : ''
    const baseline = top + BAR_HEIGHT - 3
    const figureText = `${short(value)}${unit === '/s' ? '/s' : ` ${unit}`}`
    return [
      `<text${weight} x="${x + LEFT - 8}" y="${baseline}" text-anchor="end">${escapeXml(nameOf(peer))}</text>`,
      `<rect class="${kind}" x="${x + LEFT}" y="${top}" width="${width}" height="${BAR_HEIGHT}" rx="2"/>`,
      `<text class="quiet" x="${x + LEFT + Number(width) + 6}" y="${baseline}">${figureText}</text>`,
    ].join('\n')
  })
  return [
    `<text class="chart" x="${x}" y="${y + 12}">${escapeXml(title)}</text>`,
    `<text class="quiet" x="${x}" y="${y + 28}">${escapeXml(better)}</text>`,
    ...lines,
  ].join('\n')
}

export function drawSvg(result: BenchResult): string {
  const charts = chartsOf(result)
  const parts: string[] = []
  let y = HEAD_HEIGHT
  for (let at = 0; at < charts.length; at += 2) {
    const pair = charts.slice(at, at + 2)
    for (const [column, chart] of pair.entries()) {
      parts.push(drawChart(chart, 16 + column * (CHART_WIDTH + 10), y))
    }
    y += TITLE_HEIGHT + Math.max(...pair.map(({ bars }) => bars.length)) * BAR_STEP + 22
  }
  const { machine, date, runs, scale } = result
  const about = `${machine.cpu}, ${machine.cores} cores, Node ${machine.node}, ${date.slice(0, 10)}, medians of ${runs}, scale ${scale}`
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${WIDTH}" height="${y}" viewBox="0 0 ${WIDTH} ${y}" role="img">
<title>Holdfast beside other queues</title>
<style>${STYLE}
</style>
<text class="title" x="16" y="26">Holdfast beside other queues</text>
<text class="quiet" x="16" y="44">${escapeXml(about)}. * keeps less than the scenario asks for</text>
${parts.join('\n')}
</svg>
`
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const [input, output = join(peersDirectory, '..', '..', 'docs', 'bench-peers.svg')] = process.argv.slice(2)
  if (input === undefined) throw new TypeError('which file? npm run bench:plot -- FILE.json [OUT.svg]')
  writeFileSync(output, drawSvg(JSON.parse(readFileSync(input, 'utf8')) as BenchResult))
  process.stdout.write(`${output}\n`)
}
