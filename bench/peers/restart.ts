/**
 * Scenario 6: a writer is killed with SIGKILL, and another process wants the first request. The clock runs from the call
 * that opens, with all imports done, to the first request in hand. Invariant: nothing is closed in between, server
 * included, and what is left is counted afterwards, because an opening that lost everything is quick.
 */
import type { ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { turn } from '../measure.js'
import { indexOfUrl, type Workload } from '../workload.js'
import type { Orders } from './child.js'
import type { Driver, Layout } from './driver.js'
import { BATCH, type Outcome } from './scenarios.js'

const SEEN_SAMPLE = 10_000
type Line = Record<string, number>

// ---- the parent

/** Fills once, then opens `openings` times, killing each; the last one also counts what is there. */
export async function restart(
  start: (orders: Orders) => ChildProcess,
  orders: Orders,
  openings: number,
): Promise<Outcome[]> {
  const outcomes: Outcome[] = []
  const filled = await lineThenKill(start({ ...orders, scenario: '6 fill' }))
  for (let opening = 1; opening <= openings; opening++) {
    const task = opening === openings ? '6 count' : '6 open'
    const { firstMs, openMs, left, forgotten, wrong } = await lineThenKill(start({ ...orders, scenario: task }))
    const metrics: Record<string, number> = { firstMs, openMs }
    if (left !== undefined) {
      metrics.lost = filled.pending - left
      metrics.forgotten = forgotten
      if (wrong > 0) throw new Error(`${wrong} requests came out that had been removed, or twice`)
    }
    outcomes.push({ operations: filled.pending, metrics })
  }
  return outcomes
}

/** Waits for the one line a child says when it is done, then kills it, and its server first. */
async function lineThenKill(child: ChildProcess): Promise<Line> {
  if (child.stdout === null || child.stderr === null) throw new Error('a child of scenario 6 has no output')
  const exit = once(child, 'exit')
  let said = ''
  child.stderr.on('data', (chunk) => {
    said += chunk
  })
  const [text] = await Promise.race([once(createInterface({ input: child.stdout }), 'line'), exit.then(() => [''])])
  if (text === '') throw new Error(`a child ended before it was done: ${said.trim().split('\n').at(-1)}`)
  const line = JSON.parse(String(text)) as Line
  child.kill('SIGKILL')
  await exit
  if (line.serverPid !== undefined) await killServer(line.serverPid)
  return line
}

/** Waits until it is gone: the next server wants its files. */
async function killServer(pid: number): Promise<void> {
  for (let signal: NodeJS.Signals | 0 = 'SIGKILL'; ; signal = 0) {
    try {
      process.kill(pid, signal)
    } catch {
      return
    }
    await new Promise((resolve) => setTimeout(resolve, 2))
  }
}

// ---- the child

const say = (line: Line): void => void process.stdout.write(`${JSON.stringify(line)}\n`)

/** As much seen again as pending, all of it through the front door: offered, then popped. Which ones stay is the peer's. */
async function fill(driver: Driver, workload: Workload, size: number): Promise<Line> {
  for (let at = 0; at < 2 * size; at += BATCH) {
    await driver.offer(workload.requests(at, BATCH))
    await turn()
  }
  for (let left = size; left > 0; ) {
    left -= (await driver.pop(Math.min(BATCH, left))).length
    await turn()
  }
  await driver.settle()
  return { pending: size }
}

async function count(driver: Driver, workload: Workload, size: number, first: string | undefined): Promise<Line> {
  const urls = new Set<string>(first === undefined ? [] : [first])
  let wrong = 0
  for (let again = 0; ; ) {
    const batch = await driver.pop(BATCH)
    if (batch.length === 0) {
      const step = Math.max(1, Math.floor((2 * size) / SEEN_SAMPLE))
      let forgotten = 0
      let asked = 0
      for (let index = 0; index < 2 * size; index += step, asked++) {
        forgotten += await driver.offer([workload.request(index)])
      }
      return { left: urls.size, forgotten: Math.round((forgotten / asked) * 2 * size), wrong }
    }
    for (const { url } of batch) {
      // What the first take left in the store may come once more; nothing else may.
      if ((urls.has(url) && again++ > 0) || indexOfUrl(url) >= 2 * size) wrong++
      urls.add(url)
    }
  }
}

/** Says its line and stays until it is killed. */
export async function restartChild(
  task: string,
  open: (layout: Layout) => Promise<Driver>,
  workload: Workload,
  size: number,
): Promise<void> {
  const begun = performance.now()
  const driver = await open('crawl')
  const openMs = performance.now() - begun
  const server: Line = driver.serverPid === undefined ? {} : { serverPid: driver.serverPid }
  if (task === '6 fill') say({ ...(await fill(driver, workload, size)), ...server })
  else {
    const first = await driver.takeOne()
    const firstMs = performance.now() - begun
    const counted = task === '6 count' ? await count(driver, workload, size, first?.url) : {}
    say({ openMs, firstMs, ...counted, ...server })
  }
  setInterval(() => {}, 1 << 30)
}
