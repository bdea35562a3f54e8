/**
 * The promise, shown: a site is crawled, the crawler is killed with SIGKILL five times and started again with the same
 * line, and every page is in the output once. Usage: npm run demo [-- --seed N] [--pages N] [--kills N] [--durability power] [--keep]
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { generateSite } from '../fixtures/site/generate.js'
import { seededNumbers } from '../fixtures/site/random.js'
import { serveSite } from '../fixtures/site/serve.js'
import { reachable } from '../fixtures/site/walk.js'
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

const { values: flags } = parseArgs({
  options: {
    seed: { type: 'string' },
    pages: { type: 'string', default: '2000' },
    kills: { type: 'string', default: '5' },
    durability: { type: 'string', default: 'process' },
    keep: { type: 'boolean', default: false },
  },
})
const seed = Number(flags.seed ?? Date.now() % 1_000_000)
const site = generateSite({ seed, pages: Number(flags.pages) })
const expected = reachable(site)
const asked = [...expected].filter((path) => !site.forbidden.some((prefix) => path.startsWith(prefix))).length
const directory = mkdtempSync(join(tmpdir(), 'holdfast-demo-'))
const job = join(directory, 'job')
const outputPath = join(job, 'pages.ndjson')
const source: AnswerSource = { onAnswer: () => {}, onRobots: () => {} }
const served = await serveSite(site, {
  latencyMs: 10,
  slowMs: 250,
  onRobots: () => source.onRobots(),
  onAnswer: () => source.onAnswer(),
})
const args = [`${served.origin}/`, '--job', job, '--per-host', '8', '--delay', '0']
if (flags.durability !== 'process') args.push('--durability', flags.durability)

console.log(
  `A site of ${number(expected.size)} URLs, crawled by a process that is killed ${flags.kills} times (--seed ${seed})\n`,
)
console.log(`  $ holdfast crawl ${args.join(' ')}\n`)
console.log(HEADER)
const startMs = performance.now()
let ok = false
try {
  const runs = await crawlWithKills({
    args,
    outputPath,
    killAfter: killPoints(Number(flags.kills), asked, seededNumbers(seed).uint32),
    source,
    onRun: (run, index) => console.log(runRow(run, index)),
  })
  const last = runs[runs.length - 1]
  if (last.exitCode !== 0) {
    console.log(`\nThe last run failed:\n${last.stderr}`)
  } else {
    const verdict = judge(outputPath, expected, (url) => new URL(url).pathname)
    let again = 0
    for (const times of served.requests.values()) again += times - 1
    console.log(`\n${verdictRows(verdict, runs, again)}\n`)
    ok = verdict.ok
    const took = `${((performance.now() - startMs) / 1000).toFixed(1)} s`
    console.log(
      ok ? `  Nothing lost, nothing twice. (${took})` : `  This must not happen: please report it with --seed ${seed}.`,
    )
  }
} finally {
  await served.close()
  if (flags.keep || !ok) console.log(`  Left in ${directory}`)
  else rmSync(directory, { recursive: true, force: true })
}
process.exitCode = ok ? 0 : 1
