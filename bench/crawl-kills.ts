/**
 * Crawls with the real command line in a child process, kills it with SIGKILL after a given number of answers, and runs
 * the same line again until it is done. What it wrote is then held against what a walk without any crawler found.
 *
 * The moments are counted in answers, not in seconds, so that they mean the same on a slow machine.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

const CLI = fileURLToPath(new URL('../../dist/cli/main.js', import.meta.url))

/** The server's side: calls these for each page, and each robots.txt, that it is asked for. */
export interface AnswerSource {
  onAnswer: () => void
  onRobots: () => void
}

export interface Run {
  /** Lines in the output when it ended. */
  readonly lines: number
  readonly answers: number
  readonly killed: boolean
  readonly exitCode: number | null
  /** From the start of the process to the first page it asked for; null when it asked for none. */
  readonly firstPageMs: number | null
  readonly durationMs: number
  readonly stderr: string
}

export interface KillPlan {
  /** Of `holdfast crawl`. */
  readonly args: readonly string[]
  readonly outputPath: string
  /** Answers after which each run is killed; then one more run may end by itself. */
  readonly killAfter: readonly number[]
  readonly source: AnswerSource
  readonly onRun: (run: Run, index: number) => void
}

export async function crawlWithKills(plan: KillPlan): Promise<Run[]> {
  const runs: Run[] = []
  for (let index = 0; ; index++) {
    const run = await crawlOnce(plan, plan.killAfter[index])
    runs.push(run)
    plan.onRun(run, index)
    // It failed, or there was less left than it was to be killed after.
    if (!run.killed) return runs
  }
}

async function crawlOnce(plan: KillPlan, killAfter: number | undefined): Promise<Run> {
  const startMs = performance.now()
  const child = spawn(process.execPath, [CLI, 'crawl', ...plan.args], { stdio: ['ignore', 'pipe', 'pipe'] })
  let answers = 0
  let firstPageMs: number | null = null
  let killed = false
  // A process asks for robots.txt before anything else. What comes earlier is an echo of the one killed before.
  let begun = false
  plan.source.onRobots = () => {
    begun = true
  }
  plan.source.onAnswer = () => {
    if (!begun) return
    answers++
    firstPageMs ??= performance.now() - startMs
    if (answers === killAfter) killed = child.kill('SIGKILL')
  }
  const [exitCode, stderr] = await Promise.all([exitOf(child), textOf(child)])
  plan.source.onAnswer = () => {}
  return {
    lines: countLines(plan.outputPath),
    answers,
    killed,
    exitCode,
    firstPageMs,
    durationMs: performance.now() - startMs,
    stderr,
  }
}

function exitOf(child: ChildProcess): Promise<number | null> {
  return new Promise((resolve, reject) => {
    child.once('error', reject)
    child.once('exit', (code) => resolve(code))
  })
}

async function textOf(child: ChildProcess): Promise<string> {
  let text = ''
  child.stdout?.resume()
  for await (const chunk of child.stderr ?? []) text += String(chunk)
  return text
}

/** Whole lines; a killed run may leave half of one behind, which the next run cuts off. */
function countLines(path: string): number {
  if (!existsSync(path)) return 0
  let lines = 0
  for (const byte of readFileSync(path)) if (byte === 0x0a) lines++
  return lines
}

export interface Verdict {
  readonly expected: number
  readonly lines: number
  readonly missing: readonly string[]
  readonly twice: readonly string[]
  readonly unexpected: readonly string[]
  readonly ok: boolean
}

/** `identity` maps a URL of the output to what `expected` holds. */
export function judge(outputPath: string, expected: ReadonlySet<string>, identity: (url: string) => string): Verdict {
  const counts = new Map<string, number>()
  let lines = 0
  for (const line of readFileSync(outputPath, 'utf8').split('\n')) {
    if (line === '') continue
    lines++
    const id = identity((JSON.parse(line) as { url: string }).url)
    counts.set(id, (counts.get(id) ?? 0) + 1)
  }
  const missing = [...expected].filter((id) => !counts.has(id))
  const twice = [...counts].filter(([, count]) => count > 1).map(([id]) => id)
  const unexpected = [...counts.keys()].filter((id) => !expected.has(id))
  const ok = missing.length + twice.length + unexpected.length === 0
  return { expected: expected.size, lines, missing, twice, unexpected, ok }
}

/** So many places between 0 and `total`, as numbers of answers from one kill to the next. */
export function killPoints(kills: number, total: number, uint32: () => number): number[] {
  // Together at most nine tenths: the last run has something left to do.
  const most = Math.max(2, Math.floor((0.9 * total) / Math.max(1, kills)))
  const least = Math.max(1, Math.floor(most / 5))
  return Array.from({ length: kills }, () => least + (uint32() % Math.max(1, most - least)))
}

export const number = (value: number): string => value.toLocaleString('en-US')

export const HEADER = '  run   ended                           in the output   first page after'

export function runRow(run: Run, index: number): string {
  const ended = run.killed
    ? `SIGKILL after ${number(run.answers)} pages`
    : run.exitCode === 0
      ? `by itself, after ${number(run.answers)} pages`
      : `exit code ${run.exitCode}`
  const first = run.firstPageMs === null ? '-' : `${(run.firstPageMs / 1000).toFixed(2)} s`
  return `  ${String(index + 1).padStart(3)}   ${ended.padEnd(30)}${number(run.lines).padStart(15)}${first.padStart(19)}`
}

export function verdictRows(verdict: Verdict, runs: readonly Run[], again: number): string {
  const rows: [string, number, string?][] = [
    ['kills', runs.filter((run) => run.killed).length],
    ['pages expected', verdict.expected, 'by a walk of the links without any crawler'],
    ['pages in output', verdict.lines],
    ['missing', verdict.missing.length],
    ['twice', verdict.twice.length],
    ['unexpected', verdict.unexpected.length],
    ['asked for again', again, 'in flight when a kill came'],
  ]
  const text = rows.map(([name, value, note]) => {
    return `  ${name.padEnd(18)}${number(value).padStart(9)}${note === undefined ? '' : `   ${note}`}`
  })
  for (const name of ['missing', 'twice', 'unexpected'] as const) {
    for (const url of verdict[name].slice(0, 10)) text.push(`    ${name}: ${url}`)
  }
  return text.join('\n')
}
