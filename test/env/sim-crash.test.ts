/**
 * What a power loss leaves on the simulated disk. Small cases, looked at over many seeds: the set of outcomes must be
 * exactly the set that the rules allow, so a rule that is too kind fails as surely as one that is too harsh.
 */
import { describe, expect, test } from 'vitest'
import { SimFileSystem, type Unsynced } from '../../src/env/sim-file-system.js'

const SEEDS = 400

/** A fresh disk with a durable directory /d. */
function disk(): SimFileSystem {
  const files = new SimFileSystem()
  files.makeDirectory('/d')
  files.syncDirectoryNow('/')
  return files
}

function write(files: SimFileSystem, path: string, text: string, sync: 'sync' | 'no sync' = 'no sync'): void {
  const handle = files.open(path, 'create')
  handle.write(Buffer.from(text), 0)
  if (sync === 'sync') handle.syncNow()
  handle.close()
}

/** Runs of equal bytes as text: `512a 88.` for 512 letters a and 88 zeros. */
function runs(bytes: Buffer): string {
  const out: string[] = []
  for (let from = 0, end = 0; from < bytes.length; from = end) {
    while (end < bytes.length && bytes[end] === bytes[from]) end++
    out.push(`${end - from}${bytes[from] === 0 ? '.' : String.fromCharCode(bytes[from]!)}`)
  }
  return out.join(' ')
}

/** The disk after a crash as one line: each file with its content. */
function picture(files: SimFileSystem): string {
  return files
    .allFiles()
    .map((path) => `${path}=${runs(files.contents(path))}`)
    .join(', ')
}

const pictureAfter = (files: SimFileSystem, unsynced: Unsynced, seed = 1): string =>
  picture(files.crash({ seed, unsynced }))

/** All that `torn` makes of it, over many seeds. */
function outcomes(files: SimFileSystem, seeds = SEEDS): string[] {
  const seen = new Set<string>()
  for (let seed = 0; seed < seeds; seed++) seen.add(pictureAfter(files, 'torn', seed))
  return [...seen].sort()
}

describe('data of a file', () => {
  test('is there as of the last sync, in all three ways to crash', () => {
    const files = disk()
    write(files, '/d/a', 'a'.repeat(600), 'sync')
    files.syncDirectoryNow('/d')
    for (const unsynced of ['lost', 'kept', 'torn'] as const) expect(pictureAfter(files, unsynced)).toBe('/d/a=600a')
    expect(outcomes(files)).toEqual(['/d/a=600a'])
  })

  test('that was not synced is gone, there, or torn at its sectors', () => {
    const files = disk()
    write(files, '/d/a', 'a'.repeat(1024), 'sync')
    files.syncDirectoryNow('/d')
    const handle = files.open('/d/a', 'edit')
    handle.write(Buffer.from('b'.repeat(1024)), 0)
    expect(pictureAfter(files, 'lost')).toBe('/d/a=1024a')
    expect(pictureAfter(files, 'kept')).toBe('/d/a=1024b')
    expect(outcomes(files)).toEqual(['/d/a=1024a', '/d/a=1024b', '/d/a=512a 512b', '/d/a=512b 512a'])
    expect(picture(files)).toBe('/d/a=1024b')
    handle.close()
  })

  test('leaves the sectors alone that were not written', () => {
    const files = disk()
    write(files, '/d/a', 'a'.repeat(1536), 'sync')
    files.syncDirectoryNow('/d')
    const handle = files.open('/d/a', 'edit')
    handle.write(Buffer.from('b'), 700)
    expect(outcomes(files)).toEqual(['/d/a=1536a', '/d/a=700a 1b 835a'])
    handle.close()
  })

  test('may have its length before its bytes: a tail of zeros', () => {
    const files = disk()
    write(files, '/d/a', 'a'.repeat(512), 'sync')
    files.syncDirectoryNow('/d')
    const handle = files.open('/d/a', 'edit')
    handle.write(Buffer.from('b'.repeat(512)), 512)
    handle.write(Buffer.from('c'.repeat(100)), 1024)
    expect(pictureAfter(files, 'lost')).toBe('/d/a=512a')
    expect(outcomes(files)).toEqual([
      '/d/a=512a',
      '/d/a=512a 512.',
      '/d/a=512a 512. 100c',
      '/d/a=512a 512b',
      '/d/a=512a 512b 100.',
      '/d/a=512a 512b 100c',
      '/d/a=512a 612.',
    ])
    handle.close()
  })

  test('may show an appended record only in part, and keeps the synced bytes of the shared sector', () => {
    const files = disk()
    write(files, '/d/a', 'a'.repeat(100), 'sync')
    files.syncDirectoryNow('/d')
    const handle = files.open('/d/a', 'edit')
    handle.write(Buffer.from('b'.repeat(50)), 100)
    expect(outcomes(files)).toEqual(['/d/a=100a', '/d/a=100a 50.', '/d/a=100a 50b'])
    handle.close()
  })

  test('comes back after a cut that was not synced', () => {
    const files = disk()
    write(files, '/d/a', 'a'.repeat(600), 'sync')
    files.syncDirectoryNow('/d')
    const handle = files.open('/d/a', 'edit')
    handle.truncate(512)
    expect(pictureAfter(files, 'lost')).toBe('/d/a=600a')
    expect(pictureAfter(files, 'kept')).toBe('/d/a=512a')
    // The cut part may be zeroed before the length says so.
    expect(outcomes(files)).toEqual(['/d/a=512a', '/d/a=512a 88.', '/d/a=600a'])
    handle.syncNow()
    expect(outcomes(files)).toEqual(['/d/a=512a'])
    handle.close()
  })

  test('may be found empty where create emptied it', () => {
    const files = disk()
    write(files, '/d/a', 'a'.repeat(100), 'sync')
    files.syncDirectoryNow('/d')
    write(files, '/d/a', 'b'.repeat(100))
    expect(pictureAfter(files, 'lost')).toBe('/d/a=100a')
    expect(outcomes(files)).toEqual(['/d/a=', '/d/a=100a', '/d/a=100b'])
  })

  test('cut and written again does not keep what was cut', () => {
    const files = disk()
    write(files, '/d/a', 'a'.repeat(1200), 'sync')
    files.syncDirectoryNow('/d')
    const handle = files.open('/d/a', 'edit')
    handle.truncate(100)
    handle.write(Buffer.from('b'), 1100)
    handle.syncNow()
    expect(outcomes(files)).toEqual(['/d/a=100a 1000. 1b'])
    handle.close()
  })
})

describe('a sync of a file', () => {
  test('covers what was written when it was called, not what came while it ran', async () => {
    const files = disk()
    const handle = files.open('/d/a', 'create')
    files.syncDirectoryNow('/d')
    handle.write(Buffer.from('a'.repeat(10)), 0)
    const running = handle.sync()
    handle.write(Buffer.from('b'.repeat(10)), 5)
    expect(pictureAfter(files, 'lost')).toBe('/d/a=')
    await running
    expect(pictureAfter(files, 'lost')).toBe('/d/a=10a')
    expect(outcomes(files)).toEqual(['/d/a=10a', '/d/a=5a 10b', '/d/a=5a 5b', '/d/a=10a 5.'].sort())
    await handle.sync()
    expect(outcomes(files)).toEqual(['/d/a=5a 10b'])
    handle.close()
  })

  test('that is overtaken by a blocking one does not put old bytes back', async () => {
    const files = disk()
    const handle = files.open('/d/a', 'create')
    files.syncDirectoryNow('/d')
    handle.write(Buffer.from('a'.repeat(10)), 0)
    const running = handle.sync()
    handle.write(Buffer.from('b'.repeat(20)), 0)
    handle.syncNow()
    await running
    expect(pictureAfter(files, 'lost')).toBe('/d/a=20b')
    handle.close()
  })

  test('does nothing more for a handle that was closed meanwhile than for an open one', async () => {
    const files = disk()
    const handle = files.open('/d/a', 'create')
    files.syncDirectoryNow('/d')
    handle.write(Buffer.from('aa'), 0)
    const running = handle.sync()
    handle.close()
    await running
    expect(pictureAfter(files, 'lost')).toBe('/d/a=2a')
  })

  test('does not make the name durable', () => {
    const files = disk()
    write(files, '/d/a', 'aa', 'sync')
    expect(pictureAfter(files, 'lost')).toBe('')
    expect(pictureAfter(files, 'kept')).toBe('/d/a=2a')
    expect(outcomes(files)).toEqual(['', '/d/a=2a'])
  })
})

describe('names', () => {
  test('are durable with the sync of their directory, which does not sync the data', () => {
    const files = disk()
    write(files, '/d/a', 'aa')
    files.syncDirectoryNow('/d')
    expect(pictureAfter(files, 'lost')).toBe('/d/a=')
    expect(outcomes(files)).toEqual(['/d/a=', '/d/a=2.', '/d/a=2a'])
  })

  test('made while the sync of their directory ran are not covered', async () => {
    const files = disk()
    write(files, '/d/a', 'aa', 'sync')
    const running = files.syncDirectory('/d')
    write(files, '/d/b', 'bb', 'sync')
    expect(pictureAfter(files, 'lost')).toBe('')
    await running
    expect(pictureAfter(files, 'lost')).toBe('/d/a=2a')
    expect(outcomes(files)).toEqual(['/d/a=2a', '/d/a=2a, /d/b=2b'])
  })

  test('of directories need the sync of the parent, each its own', () => {
    const files = new SimFileSystem()
    files.makeDirectory('/x/y')
    write(files, '/x/y/a', 'aa', 'sync')
    files.syncDirectoryNow('/x/y')
    expect(pictureAfter(files, 'lost')).toBe('')
    files.syncDirectoryNow('/')
    expect(files.crash({ seed: 1, unsynced: 'lost' }).exists('/x')).toBe(true)
    expect(pictureAfter(files, 'lost')).toBe('')
    files.syncDirectoryNow('/x')
    expect(pictureAfter(files, 'lost')).toBe('/x/y/a=2a')
  })

  test('that were unlinked come back until the directory is synced', () => {
    const files = disk()
    write(files, '/d/a', 'aa', 'sync')
    files.syncDirectoryNow('/d')
    files.unlink('/d/a')
    expect(pictureAfter(files, 'lost')).toBe('/d/a=2a')
    expect(pictureAfter(files, 'kept')).toBe('')
    expect(outcomes(files)).toEqual(['', '/d/a=2a'])
    files.syncDirectoryNow('/d')
    expect(outcomes(files)).toEqual([''])
  })

  test('of removed directories come back too, with their content', () => {
    const files = disk()
    files.makeDirectory('/d/e')
    write(files, '/d/e/a', 'aa', 'sync')
    files.syncDirectoryNow('/d/e')
    files.syncDirectoryNow('/d')
    files.unlink('/d/e/a')
    files.removeDirectory('/d/e')
    expect(pictureAfter(files, 'lost')).toBe('/d/e/a=2a')
    files.syncDirectoryNow('/d')
    expect(files.crash({ seed: 1, unsynced: 'lost' }).exists('/d/e')).toBe(false)
  })

  test('replaced by rename are the old file or the new one, and the temporary name goes with it', () => {
    const files = disk()
    write(files, '/d/m', 'old', 'sync')
    files.syncDirectoryNow('/d')
    write(files, '/d/t', 'new', 'sync')
    files.rename('/d/t', '/d/m')
    expect(picture(files)).toBe('/d/m=1n 1e 1w')
    expect(pictureAfter(files, 'lost')).toBe('/d/m=1o 1l 1d')
    expect(outcomes(files)).toEqual(['/d/m=1n 1e 1w', '/d/m=1o 1l 1d', '/d/m=1o 1l 1d, /d/t=1n 1e 1w'])
    files.syncDirectoryNow('/d')
    expect(outcomes(files)).toEqual(['/d/m=1n 1e 1w'])
  })

  test('renamed before their data was synced may show an empty or zeroed file', () => {
    const files = disk()
    write(files, '/d/m', 'oo', 'sync')
    files.syncDirectoryNow('/d')
    write(files, '/d/t', 'nn')
    files.rename('/d/t', '/d/m')
    files.syncDirectoryNow('/d')
    expect(outcomes(files)).toEqual(['/d/m=', '/d/m=2.', '/d/m=2n'])
  })

  test('unlinked after a rename may be gone before the rename is there', () => {
    const files = disk()
    write(files, '/d/m', 'm', 'sync')
    write(files, '/d/old', 'o', 'sync')
    write(files, '/d/t', 'n', 'sync')
    files.syncDirectoryNow('/d')
    files.rename('/d/t', '/d/m')
    files.unlink('/d/old')
    expect(outcomes(files)).toEqual([
      '/d/m=1m, /d/old=1o, /d/t=1n',
      '/d/m=1m, /d/t=1n',
      '/d/m=1n',
      '/d/m=1n, /d/old=1o',
    ])
  })

  test('moved through one name in turn are never lost: each step builds on the one before', () => {
    const files = disk()
    write(files, '/d/x', '1', 'sync')
    files.syncDirectoryNow('/d')
    files.rename('/d/x', '/d/y')
    write(files, '/d/x', '2', 'sync')
    expect(outcomes(files)).toEqual(['/d/x=11', '/d/x=12, /d/y=11', '/d/y=11'])
  })

  test('moved between directories are in one of them, whichever was synced', () => {
    const make = (): SimFileSystem => {
      const files = disk()
      files.makeDirectory('/e')
      files.syncDirectoryNow('/')
      write(files, '/d/a', 'a', 'sync')
      files.syncDirectoryNow('/d')
      files.rename('/d/a', '/e/b')
      return files
    }
    expect(pictureAfter(make(), 'lost')).toBe('/d/a=1a')
    expect(outcomes(make())).toEqual(['/d/a=1a', '/e/b=1a'])
    for (const directory of ['/d', '/e']) {
      const files = make()
      files.syncDirectoryNow(directory)
      expect(outcomes(files)).toEqual(['/e/b=1a'])
    }
  })

  test('moved before they were durable are not doubled by a sync of the target alone', () => {
    const files = disk()
    files.makeDirectory('/e')
    files.syncDirectoryNow('/')
    write(files, '/d/a', 'a', 'sync')
    write(files, '/d/other', 'o', 'sync')
    files.rename('/d/a', '/e/b')
    files.syncDirectoryNow('/e')
    expect(outcomes(files)).toEqual(['/d/other=1o, /e/b=1a', '/e/b=1a'])
    files.syncDirectoryNow('/d')
    expect(outcomes(files)).toEqual(['/d/other=1o, /e/b=1a'])
  })

  test('of one directory are sometimes lost as a suffix, sometimes as any subset', () => {
    const files = disk()
    for (const name of ['a', 'b', 'c']) write(files, `/d/${name}`, name, 'sync')
    const subsets = ['', 'a', 'ab', 'abc', 'ac', 'b', 'bc', 'c']
    const expected = subsets.map((names) => [...names].map((name) => `/d/${name}=1${name}`).join(', '))
    expect(outcomes(files)).toEqual(expected.sort())
  })

  test('in directories whose own name was lost are gone with it', () => {
    const files = new SimFileSystem()
    files.makeDirectory('/x')
    write(files, '/x/a', 'a', 'sync')
    files.syncDirectoryNow('/x')
    const seen = new Set<string>()
    for (let seed = 0; seed < SEEDS; seed++) {
      const next = files.crash({ seed, unsynced: 'torn' })
      seen.add(`${next.exists('/x')} ${picture(next)}`)
    }
    expect([...seen].sort()).toEqual(['false ', 'true /x/a=1a'])
  })
})

describe('the disk after the crash', () => {
  test('has everything synced, and is another disk', () => {
    const files = disk()
    write(files, '/d/a', 'aa')
    files.capacityBytes = 100
    const next = files.crash({ seed: 1, unsynced: 'kept' })
    expect(outcomes(next)).toEqual(['/d/a=2a'])
    expect([next.mutations, next.hit, next.openHandles(), next.usedBytes, next.capacityBytes]).toEqual([
      0,
      false,
      0,
      2,
      100,
    ])
    write(next, '/d/a', 'bbb', 'sync')
    expect(picture(files)).toBe('/d/a=2a')
    expect(pictureAfter(next, 'lost')).toBe('/d/a=3b')
  })

  test('is the same for the same seed', () => {
    const files = disk()
    for (let index = 0; index < 20; index++)
      write(files, `/d/f${index}`, 'x'.repeat(3000), index % 2 === 0 ? 'sync' : 'no sync')
    const pictures = new Set<string>()
    for (let seed = 0; seed < 50; seed++) {
      expect(pictureAfter(files, 'torn', seed)).toBe(pictureAfter(files, 'torn', seed))
      pictures.add(pictureAfter(files, 'torn', seed))
    }
    expect(pictures.size).toBeGreaterThan(40)
  })
})
