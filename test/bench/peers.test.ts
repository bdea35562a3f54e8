import { spawnSync } from 'node:child_process'
import { appendFileSync, existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { checkOrder, checkRotation, checkSteps } from '../../bench/peers/check.js'
import { BareLog } from '../../bench/peers/log.js'
import { type BenchResult, drawSvg } from '../../bench/peers/plot.js'
import { requestsOfHosts } from '../../bench/peers/scenarios.js'
import { type BenchRequest, Workload } from '../../bench/workload.js'

const built = fileURLToPath(new URL('../../build/bench/peers/run.js', import.meta.url))
const workload = new Workload(1)

let directory: string
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'peers-test-'))
})
afterEach(() => rmSync(directory, { recursive: true, force: true }))

describe('the harness', () => {
  it('runs holdfast and the bare log, checks them and draws the result', () => {
    expect(existsSync(built), 'compiled by `npm run build:bench`').toBe(true)
    const json = join(directory, 'result.json')
    const flags = ['--peers', 'bare log', '--scale', '0.002', '--runs', '1', '--json', json, '--dir', directory]
    const { status, stderr, stdout } = spawnSync(process.execPath, [built, ...flags], { encoding: 'utf8' })
    expect(status, stderr).toBe(0)
    expect(stdout.match(/correct: 2 of 2/g)).toHaveLength(9)
    const result = JSON.parse(readFileSync(json, 'utf8')) as BenchResult
    // Eight scenarios, the crawl step in both durabilities, two peers each.
    expect(result.rows).toHaveLength(18)
    for (const row of result.rows) expect(row, JSON.stringify(row)).toMatchObject({ outcomes: [expect.anything()] })
    const restarts = result.rows.filter(({ scenario }) => scenario === '6')
    for (const { outcomes } of restarts) expect(outcomes[0].metrics).toMatchObject({ lost: 0, forgotten: 0 })
    const svg = drawSvg(result)
    expect(svg.match(/<rect /g)).toHaveLength(18)
    expect(svg).not.toMatch(/NaN|undefined/)
  })

  it('refuses a peer or a scenario that is not there', () => {
    for (const flags of [
      ['--peers', 'nobody'],
      ['--only', '99'],
    ]) {
      expect(spawnSync(process.execPath, [built, ...flags], { encoding: 'utf8' }).status).not.toBe(0)
    }
  })
})

describe('the checks find a wrong driver', () => {
  const pushed = workload.requests(0, 300)
  const right = [...pushed].sort((a, b) => b.priority - a.priority)

  it('accepts the right order and nothing else', () => {
    expect(() => checkOrder(pushed, right, 'priority', true)).not.toThrow()
    expect(() => checkOrder(pushed, pushed, 'fifo', true)).not.toThrow()
    expect(() => checkOrder(pushed, pushed, 'priority', true)).toThrow(/pop \d+ is/)
    const twoSwapped = [right[1], right[0], ...right.slice(2)]
    expect(() => checkOrder(pushed, twoSwapped, 'priority', true)).toThrow(/pop 0 is/)
  })

  it('finds what is missing, doubled, changed or too much', () => {
    expect(() => checkOrder(pushed, right.slice(1), 'priority', true)).toThrow()
    expect(() => checkOrder(pushed, right.slice(0, 299), 'priority', true)).toThrow(/not everything/)
    expect(() => checkOrder(pushed, right.slice(0, 299), 'priority', false)).not.toThrow()
    expect(() => checkOrder(pushed, [...right, right[0]], 'priority', true)).toThrow(/301 were popped/)
    const changed = (request: object): BenchRequest[] => [{ ...right[0], ...request }, ...right.slice(1)]
    expect(() => checkOrder(pushed, changed({ meta: { ...right[0].meta, d: -1 } }), 'priority', true)).toThrow()
    expect(() => checkOrder(pushed, changed({ more: 1 }), 'priority', true)).toThrow()
  })

  it('finds a host that is served twice in a round', () => {
    const requests = requestsOfHosts(workload, 40, 10)
    expect(() => checkRotation(requests, requests, true)).not.toThrow()
    const unfair = [requests[0], requests[10], ...requests.slice(1, 10), ...requests.slice(11)]
    expect(() => checkRotation(requests, unfair, true)).toThrow(/twice in one round/)
    expect(() => checkRotation(requests, requests.slice(0, 39), true)).toThrow(/not everything/)
  })

  it('finds a crawl step that takes the wrong request or miscounts', () => {
    const known = workload.requests(0, 50)
    const pages = workload.pages(1, 50)
    const [best] = [...known].sort((a, b) => b.priority - a.priority)
    const [worst] = [...known].sort((a, b) => a.priority - b.priority)
    const added = pages[0].fresh.length
    expect(() => checkSteps(known, pages, [{ taken: best, added }], 'priority')).not.toThrow()
    expect(() => checkSteps(known, pages, [{ taken: worst, added }], 'priority')).toThrow(/lower priority/)
    expect(() => checkSteps(known, pages, [{ taken: best, added: added + 1 }], 'priority')).toThrow(/counted wrongly/)
    expect(() => checkSteps(known, pages, [{ taken: workload.request(99), added }], 'priority')).toThrow(/not pending/)
  })
})

describe('the bare log', () => {
  it('goes on where it was after it is opened again, without what a torn write left', async () => {
    const options = { directory, durability: 'process', layout: 'crawl' } as const
    const requests = workload.requests(0, 30)
    const first = new BareLog(options)
    expect(await first.offer(requests)).toBe(30)
    expect(await first.pop(10)).toEqual(requests.slice(0, 10))
    await first.close()
    appendFileSync(join(directory, 'log'), Buffer.alloc(20, 7))
    const again = new BareLog(options)
    expect(await again.offer(requests)).toBe(0)
    expect(await again.pop(100)).toEqual(requests.slice(10))
    await again.push(requests)
    await again.close()
    const third = new BareLog(options)
    expect(await third.pop(100)).toEqual(requests)
    await third.close()
  })
})
