/** A real process, killed while a worker thread merges: what the manifest names is whole, and the half-made run goes. */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import { nodeEnv } from '../../src/env/node-env.js'
import { SeenSet } from '../../src/seen/seen-set.js'
import { type Committed, JOB_ID } from './seen-support.js'

const CHILD = fileURLToPath(new URL('./seen-kill-child.mjs', import.meta.url))

test('killed in the middle of a merge', async () => {
  let merging = 0
  for (let round = 0; round < 5; round++) {
    const root = mkdtempSync(join(tmpdir(), 'holdfast-seen-kill-'))
    const child: ChildProcess = spawn(process.execPath, [CHILD, root, String(30_000 + round * 1000)], {
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    try {
      const lines = createInterface({ input: child.stdout as NodeJS.ReadableStream })
      await once(lines, 'line')
      child.kill('SIGKILL')
      await once(child, 'exit')
      const directory = join(root, 'requests.seen')
      const committed = JSON.parse(readFileSync(join(root, 'manifest.json'), 'utf8')) as Committed
      const set = SeenSet.open({ env: nodeEnv, directory, jobId: JOB_ID, ...committed })
      if (readdirSync(directory).length > committed.runs.length) merging++
      set.removeUnnamed()
      expect(readdirSync(directory)).toHaveLength(committed.runs.length)
      set.check()
      expect(set.size).toBeGreaterThan(100_000)
      set.close()
    } finally {
      child.kill('SIGKILL')
      rmSync(root, { recursive: true, force: true })
    }
  }
  // The kill comes when it comes; most must meet the merge.
  expect(merging).toBeGreaterThan(0)
}, 60_000)
