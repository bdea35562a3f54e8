/**
 * One run of one peer on one scenario, in a process of its own: what it costs in memory and what it leaves open is nobody
 * else's. Takes its orders as JSON, says one line of JSON, and ends; a run that goes wrong ends with an error instead.
 */
import { mkdirSync, rmSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { Workload } from '../workload.js'
import type { Durability, Layout } from './driver.js'
import { memory } from './memory.js'
import { peerNamed } from './peers.js'
import { restartChild } from './restart.js'
import { RUNS, WARM_LAYOUTS, warmUp } from './scenarios.js'

export interface Orders {
  readonly peer: string
  readonly scenario: string
  readonly durability: Durability
  readonly directory: string
  readonly size: number
  readonly seed: number
}

export const childPath = fileURLToPath(import.meta.url)

/** One request in and out: whether the peer's modules load and its server starts here. */
async function probe(open: (layout: Layout) => ReturnType<Awaited<ReturnType<ReturnType<typeof peerNamed>['load']>>>) {
  const driver = await open('queue')
  const [request] = new Workload(1).requests(0, 1)
  await driver.push([request])
  const popped = await driver.pop(1)
  await driver.close()
  if (popped[0]?.url !== request.url) throw new Error('what was pushed did not come back')
  return { operations: 1, metrics: {} }
}

async function main(): Promise<void> {
  const orders = JSON.parse(process.argv[2]) as Orders
  const { scenario, durability, directory, size, seed } = orders
  const peer = peerNamed(orders.peer)
  const opener = await peer.load()
  const open = (layout: Layout) => opener({ directory, durability, layout })
  const workload = new Workload(seed)
  if (scenario.startsWith('6')) return restartChild(scenario, open, workload, size)
  const run = scenario === '7' ? memory : RUNS[scenario]
  const layout = WARM_LAYOUTS[scenario]
  if (layout !== undefined) {
    const warm = `${directory}-warm`
    mkdirSync(warm)
    const openWarm = (of: Layout) => opener({ directory: warm, durability, layout: of })
    await warmUp({ peer, workload: new Workload(seed + 1), size, open: openWarm }, layout, scenario === '4')
    rmSync(warm, { recursive: true, force: true })
  }
  const outcome = scenario === 'probe' ? await probe(open) : await run({ peer, workload, size, open })
  process.stdout.write(`${JSON.stringify(outcome)}\n`)
}

if (process.argv[1] === childPath) await main()
