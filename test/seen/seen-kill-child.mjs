/**
 * The victim of seen-kill.test.ts, on the built package: adds keys, checkpoints by the book with a manifest of its own, and
 * says when a merge beside has begun to write. Whoever started it kills it.
 */
import { readdirSync, renameSync, statSync, writeFileSync } from 'node:fs'
import { nodeEnv } from '../../dist/env/node-env.js'
import { SeenSet } from '../../dist/seen/seen-set.js'

const [root, count] = [process.argv[2], Number(process.argv[3])]
const directory = `${root}/requests.seen`
const key = Buffer.alloc(16)
const jobId = Uint8Array.from({ length: 16 }, (_, i) => i + 1)
const tuning = { workerKeysMin: 0, besideKeysMin: 100_000, levelBaseKeys: 40_000, levelGrowth: 4 }
const set = SeenSet.open({ env: nodeEnv, directory, jobId, runs: [], size: 0, tuning })

for (let n = 0; ; n++) {
  // Spread over the first word, so that runs overlap.
  key.writeUInt32BE(Math.imul(n, 0x9e3779b1) >>> 0, 0)
  key.writeUInt32BE(n, 12)
  set.add(key, 0)
  if ((n + 1) % count !== 0) continue
  set.freeze()
  const manifest = await set.writeFrozen()
  writeFileSync(`${root}/manifest.tmp`, JSON.stringify(manifest))
  renameSync(`${root}/manifest.tmp`, `${root}/manifest.json`)
  set.commitFrozen()
  await nodeEnv.clock.yield()
  const named = new Set(manifest.runs.map((run) => run.file))
  const others = readdirSync(directory).filter((file) => !named.has(file))
  if (others.length === 0) continue
  while (!set.isMerged && statSync(`${directory}/${others[0]}`).size < 64 * 1024) await nodeEnv.clock.yield()
  process.stdout.write(`${n + 1}\n`)
}
