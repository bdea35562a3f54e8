/** One suite over the real disk and the simulated one, so that a test on the second says something about the first. */
import { mkdtempSync, readdirSync, readlinkSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, describe, expect, test } from 'vitest'
import { nodeFiles } from '../../src/env/node-file-system.js'
import { SimFileSystem } from '../../src/env/sim-file-system.js'
import { fileSystemContract } from './file-system-contract.js'

const made: string[] = []
const makeRoot = (): string => {
  const root = mkdtempSync(join(tmpdir(), 'holdfast-files-'))
  made.push(root)
  return root
}

afterEach(() => {
  for (const root of made.splice(0)) rmSync(root, { recursive: true, force: true })
})

fileSystemContract('nodeFiles', () => ({ files: nodeFiles, root: makeRoot() }))

fileSystemContract('SimFileSystem', () => {
  const files = new SimFileSystem()
  files.makeDirectory('/root')
  return { files, root: '/root' }
})

describe.skipIf(process.platform !== 'linux')('the descriptors of nodeFiles', () => {
  // Counted by file, not as a total: the test runner opens and closes descriptors of its own.
  const openUnder = (root: string): number =>
    readdirSync('/proc/self/fd').filter((descriptor) => linkOf(descriptor).startsWith(root)).length
  const linkOf = (descriptor: string): string => {
    try {
      return readlinkSync(`/proc/self/fd/${descriptor}`)
    } catch {
      return ''
    }
  }

  test('one stays open exactly until the last sync on it has ended', async () => {
    const root = makeRoot()
    const handle = nodeFiles.open(`${root}/a`, 'create')
    handle.write(Buffer.alloc(1024), 0)
    expect(openUnder(root)).toBe(1)
    const syncs = [handle.sync(), handle.sync(), handle.sync()]
    handle.close()
    expect(openUnder(root)).toBe(1)
    await Promise.all(syncs)
    expect(openUnder(root)).toBe(0)
    const other = nodeFiles.open(`${root}/b`, 'create')
    other.close()
    expect(openUnder(root)).toBe(0)
  })

  test('none stays open after the sync of a directory, also a failed one', async () => {
    const root = makeRoot()
    await nodeFiles.syncDirectory(root)
    nodeFiles.syncDirectoryNow(root)
    await expect(nodeFiles.syncDirectory(`${root}/none`)).rejects.toThrow(/ENOENT/)
    expect(openUnder(root)).toBe(0)
  })
})
