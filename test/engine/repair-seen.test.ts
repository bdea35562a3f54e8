/** What a repair makes of several runs with tombstones: the same keys as the seen-set itself, less those of bad pages. */
import { expect, test } from 'vitest'
import { Findings } from '../../src/engine/repair-findings.js'
import { SeenSalvage } from '../../src/engine/repair-seen.js'
import { simEnv } from '../../src/env/sim-env.js'
import { SeenSet } from '../../src/seen/seen-set.js'
import { SeenTable } from '../../src/seen/seen-table.js'

const DIRECTORY = '/seen'
const JOB_ID = Buffer.alloc(16, 7)

function key(n: number): Buffer {
  const bytes = Buffer.alloc(16)
  bytes.writeUInt32BE(Math.imul(n, 0x9e3779b1) >>> 0, 0)
  bytes.writeUInt32BE(n, 12)
  return bytes
}

const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex')

/** A large old run, and small new ones that forget some of its keys and see one of them again. */
async function makeRuns() {
  const env = simEnv({ seed: 4 })
  env.files.makeDirectory(DIRECTORY)
  const tuning = { levelBaseKeys: 20, levelGrowth: 4 }
  const set = SeenSet.open({ env, directory: DIRECTORY, jobId: JOB_ID, runs: [], size: 0, tuning })
  const checkpoint = async (): Promise<void> => {
    set.freeze()
    await set.writeFrozen()
    set.commitFrozen()
  }
  for (let n = 0; n < 6000; n++) set.add(key(n), 0)
  await checkpoint()
  for (let n = 0; n < 9; n++) set.forget(key(n), 0)
  await checkpoint()
  set.add(key(3), 0)
  for (let n = 7000; n < 7200; n++) set.add(key(n), 0)
  await checkpoint()
  set.forget(key(7000), 0)
  await checkpoint()
  const expected = [...set.keys()].map(hex)
  const infos = set.runs
  set.close()
  return { env, infos, expected }
}

function salvage(env: ReturnType<typeof simEnv>, infos: SeenSet['runs'], names = infos.map((info) => info.file)) {
  const findings = new Findings()
  const seen = new SeenSalvage(env, DIRECTORY, JOB_ID, findings)
  try {
    seen.survey(names, infos)
    const keys: string[] = []
    for (const words of seen.keys(new SeenTable())) {
      const bytes = Buffer.alloc(16)
      for (const [i, word] of words.entries()) bytes.writeUInt32BE(word, i * 4)
      keys.push(hex(bytes))
    }
    return { keys, findings, incomplete: seen.incomplete }
  } finally {
    seen.close()
    expect(env.files.openHandles()).toBe(0)
  }
}

test('undamaged runs, with and without a manifest, in any order of names', async () => {
  const { env, infos, expected } = await makeRuns()
  expect(infos.length).toBeGreaterThanOrEqual(3)
  expect(infos.some((info) => info.tombstones > 0)).toBe(true)
  const names = infos.map((info) => info.file)
  for (const [known, order] of [
    [infos, names],
    [infos, [...names].reverse()],
    [[], [...names, 'r00099.tmp', 'notes']],
  ] as const) {
    const { keys, findings, incomplete } = salvage(env, known, order as string[])
    expect(keys).toEqual(expected)
    expect(findings.problems).toEqual([])
    expect(incomplete).toBe(false)
  }
})

test('each page of each run in turn: its keys are lost, or its tombstones, and nothing else', async () => {
  const { env, infos, expected } = await makeRuns()
  for (const info of infos) {
    const pages = Math.ceil(info.keys / 255) + Math.ceil(info.tombstones / 255)
    for (let page = 0; page < pages; page++) {
      const path = `${DIRECTORY}/${info.file}`
      const at = 4096 * (page + 1)
      const isKeys = page < Math.ceil(info.keys / 255)
      const lost = new Set<string>()
      const bytes = env.files.contents(path)
      const count = bytes.readUInt32LE(at + 4084)
      for (let i = 0; i < count; i++) lost.add(bytes.toString('hex', at + i * 16, at + i * 16 + 16))
      env.files.corrupt(path, at + 5, 1)
      const { keys, findings, incomplete } = salvage(env, infos)
      env.files.corrupt(path, at + 5, 1)
      expect(findings.problems).toEqual([expect.objectContaining({ path, offset: at })])
      expect(findings.lostBytes).toBe(4096)
      expect(incomplete).toBe(true)
      const found = new Set(keys)
      expect(expected.filter((one) => !found.has(one) && !lost.has(one))).toEqual([])
      expect(keys.filter((one) => !lost.has(one))).toEqual(expected.filter((one) => !lost.has(one)))
      // What a lost tombstone hid is seen again.
      if (!isKeys) expect(keys.length).toBeGreaterThan(expected.length)
    }
  }
})
