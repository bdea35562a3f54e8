/**
 * The same proof on pages that real people wrote: any directory of HTML is served on loopback, crawled, killed, resumed.
 * Usage: npm run crawl:real -- DIR [--kills 10] [--seed N] [--start PATH] [--durability power] [--keep]
 */
import { mkdtempSync, rmSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { parseArgs } from 'node:util'
import { seededNumbers } from '../fixtures/site/random.js'
import {
  type AnswerSource,
  crawlWithKills,
  HEADER,
  judge,
  killPoints,
  number,
  runRow,
  verdictRows,
} from './crawl-kills.js'
import { serveFiles } from './static-files.js'
import { identity, walkFiles } from './static-walk.js'

const { values: flags, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    kills: { type: 'string', default: '10' },
    seed: { type: 'string' },
    start: { type: 'string', default: '/' },
    durability: { type: 'string', default: 'process' },
    keep: { type: 'boolean', default: false },
  },
})
if (positionals.length !== 1) {
  console.error('usage: npm run crawl:real -- DIR [--kills 10] [--seed N] [--start PATH] [--durability power] [--keep]')
  process.exit(2)
}
const root = resolve(positionals[0])
if (statSync(root, { throwIfNoEntry: false })?.isDirectory() !== true) {
  console.error(`${root} is not a directory`)
  process.exit(2)
}
const seed = Number(flags.seed ?? Date.now() % 1_000_000)
const directory = mkdtempSync(join(tmpdir(), 'holdfast-real-'))
const job = join(directory, 'job')
const outputPath = join(job, 'pages.ndjson')
const source: AnswerSource = { onAnswer: () => {}, onRobots: () => {} }
const requests = new Map<string, number>()
const served = await serveFiles(root, (path) => {
  if (path === '/robots.txt') {
    source.onRobots()
    return
  }
  requests.set(path, (requests.get(path) ?? 0) + 1)
  source.onAnswer()
})
const start = new URL(flags.start, served.origin).href
const expected = walkFiles(root, start)
// As a browser would load it, nothing else is on this host: politeness has nobody to spare.
const args = [start, '--job', job, '--per-host', '16', '--delay', '0']
if (flags.durability !== 'process') args.push('--durability', flags.durability)

console.log(`${root}: ${number(expected.size)} URLs can be reached; killed ${flags.kills} times (--seed ${seed})\n`)
console.log(`  $ holdfast crawl ${args.join(' ')}\n`)
console.log(HEADER)
let ok = false
try {
  const runs = await crawlWithKills({
    args,
    outputPath,
    killAfter: killPoints(Number(flags.kills), expected.size, seededNumbers(seed).uint32),
    source,
    onRun: (run, index) => console.log(runRow(run, index)),
  })
  const last = runs[runs.length - 1]
  if (last.exitCode !== 0) {
    console.log(`\nThe last run failed:\n${last.stderr}`)
  } else {
    const verdict = judge(outputPath, expected, identity)
    let again = 0
    for (const times of requests.values()) again += times - 1
    let seconds = 0
    for (const run of runs) seconds += run.durationMs / 1000
    console.log(`\n${verdictRows(verdict, runs, again)}`)
    console.log(
      `  ${'pages/s'.padEnd(18)}${number(Math.round(verdict.lines / seconds)).padStart(9)}   starts of ${runs.length} processes included\n`,
    )
    ok = verdict.ok
    console.log(ok ? '  Nothing lost, nothing twice.' : `  This must not happen: please report it with --seed ${seed}.`)
  }
} finally {
  await served.close()
  if (flags.keep || !ok) console.log(`  Left in ${directory}`)
  else rmSync(directory, { recursive: true, force: true })
}
process.exitCode = ok ? 0 : 1
