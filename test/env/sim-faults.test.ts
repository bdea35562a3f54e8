/** The faults that the simulated disk can be told to have, and its helpers for tests. */
import { describe, expect, test } from 'vitest'
import { SimCrash, type SimFault, SimFileSystem } from '../../src/env/sim-file-system.js'

const CALLS = [
  'makeDirectory',
  'create',
  'write',
  'truncate',
  'sync',
  'syncNow',
  'rename',
  'unlink',
  'syncDirectory',
  'syncDirectoryNow',
  'removeDirectory',
]

/** Every mutating call once, in the order of CALLS; `done` grows with each that returned. */
async function everyCall(files: SimFileSystem, done: string[]): Promise<void> {
  const step = async (name: string, action: () => unknown): Promise<void> => {
    await action()
    done.push(name)
  }
  await step('makeDirectory', () => files.makeDirectory('/d'))
  const handle = files.open('/d/a', 'create')
  done.push('create')
  await step('write', () => expect(handle.write(Buffer.from('abcdef'), 0)).toBe(6))
  await step('truncate', () => handle.truncate(4))
  await step('sync', () => handle.sync())
  await step('syncNow', () => handle.syncNow())
  handle.close()
  await step('rename', () => files.rename('/d/a', '/d/b'))
  expect(files.readFile('/d/b').toString()).toBe('abcd')
  await step('unlink', () => files.unlink('/d/b'))
  await step('syncDirectory', () => files.syncDirectory('/d'))
  await step('syncDirectoryNow', () => files.syncDirectoryNow('/d'))
  await step('removeDirectory', () => files.removeDirectory('/d'))
}

const codeOf = (action: () => unknown): string => {
  try {
    action()
  } catch (error) {
    return error instanceof SimCrash ? 'crash' : ((error as NodeJS.ErrnoException).code ?? String(error))
  }
  return 'no error'
}

function newFile(files: SimFileSystem, path = '/a') {
  const handle = files.open(path, 'create')
  files.syncDirectoryNow('/')
  return handle
}

const lost = (files: SimFileSystem, path = '/a'): string =>
  files.crash({ seed: 1, unsynced: 'lost' }).contents(path).toString('latin1')

describe('the fault plan', () => {
  test('counts each mutating call once, and no other', async () => {
    const files = new SimFileSystem()
    await everyCall(files, [])
    expect(files.mutations).toBe(CALLS.length)
  })

  test.each(['EIO', 'ENOSPC', 'EMFILE'] as const)('%s at each call stops that call and no other', async (kind) => {
    for (let k = 0; k < CALLS.length; k++) {
      const files = new SimFileSystem()
      files.failAt(k, { kind })
      const done: string[] = []
      await expect(everyCall(files, done)).rejects.toMatchObject({ code: kind })
      expect(done).toEqual(CALLS.slice(0, k))
      expect(files.hit).toBe(true)
      expect(codeOf(() => files.makeDirectory('/other'))).toBe('no error')
    }
    const files = new SimFileSystem()
    files.failAt(CALLS.length, { kind })
    await everyCall(files, [])
    expect(files.hit).toBe(false)
  })

  test('a failing call changes nothing that is seen', () => {
    const files = new SimFileSystem()
    files.setContents('/d/a', Buffer.from('abc'))
    files.makeDirectory('/empty')
    const handle = files.open('/d/a', 'edit')
    const calls = [
      () => handle.write(Buffer.from('x'), 0),
      () => handle.truncate(0),
      () => files.open('/d/a', 'create'),
      () => files.open('/d/new', 'create'),
      () => files.makeDirectory('/new'),
      () => files.rename('/d/a', '/d/b'),
      () => files.unlink('/d/a'),
      () => files.removeDirectory('/empty'),
    ]
    for (const call of calls) {
      files.failAt(0, { kind: 'EIO' })
      expect(codeOf(call)).toBe('EIO')
      expect(files.allFiles()).toEqual(['/d/a'])
      expect(files.contents('/d/a').toString()).toBe('abc')
      expect(files.readDirectory('/')).toEqual(['d', 'empty'])
    }
    expect(files.openHandles()).toBe(1)
  })

  test('a crash at each call has no effect there, and every later call meets it', async () => {
    for (let k = 0; k < CALLS.length; k++) {
      const files = new SimFileSystem()
      files.failAt(k, { kind: 'crash' })
      const done: string[] = []
      await expect(everyCall(files, done)).rejects.toBeInstanceOf(SimCrash)
      expect(done).toEqual(CALLS.slice(0, k))
      expect([files.hit, files.crashed]).toEqual([true, true])
    }
  })

  test('a crashed disk answers no call, and can still be looked at', async () => {
    const files = new SimFileSystem()
    files.setContents('/a', Buffer.from('abc'))
    const handle = files.open('/a', 'edit')
    files.failAt(0, { kind: 'crash' })
    expect(codeOf(() => handle.write(Buffer.from('x'), 0))).toBe('crash')
    files.clearFaults()
    const calls = [
      () => handle.write(Buffer.from('x'), 0),
      () => handle.read(Buffer.alloc(1), 0),
      () => handle.size(),
      () => handle.truncate(0),
      () => handle.syncNow(),
      () => handle.close(),
      () => files.open('/a', 'read'),
      () => files.open('/b', 'create'),
      () => files.readFile('/a'),
      () => files.readDirectory('/'),
      () => files.exists('/a'),
      () => files.makeDirectory('/d'),
      () => files.rename('/a', '/b'),
      () => files.unlink('/a'),
      () => files.removeDirectory('/d'),
      () => files.syncDirectoryNow('/'),
    ]
    for (const call of calls) expect(codeOf(call)).toBe('crash')
    await expect(handle.sync()).rejects.toBeInstanceOf(SimCrash)
    await expect(files.syncDirectory('/')).rejects.toBeInstanceOf(SimCrash)
    expect(files.contents('/a').toString()).toBe('abc')
    expect(lost(files)).toBe('abc')
  })

  test('a crash while a sync runs takes the sync with it', async () => {
    const files = new SimFileSystem()
    const handle = newFile(files)
    handle.write(Buffer.from('abc'), 0)
    const running = handle.sync()
    const naming = files.syncDirectory('/')
    files.failAt(0, { kind: 'crash' })
    expect(codeOf(() => files.makeDirectory('/d'))).toBe('crash')
    await expect(running).rejects.toBeInstanceOf(SimCrash)
    await expect(naming).rejects.toBeInstanceOf(SimCrash)
    expect(lost(files)).toBe('')
  })

  test('a crash in a write leaves a prefix of it when a seed is given, of any length', () => {
    const seen = new Set<string>()
    for (let seed = 0; seed < 100; seed++) {
      const files = new SimFileSystem()
      const handle = newFile(files)
      files.failAt(0, { kind: 'crash', seed })
      expect(codeOf(() => handle.write(Buffer.from('abc'), 0))).toBe('crash')
      seen.add(files.contents('/a').toString())
    }
    expect([...seen].sort()).toEqual(['', 'a', 'ab', 'abc'])
  })

  test('short writes half, and is a full disk to all other calls', async () => {
    const files = new SimFileSystem()
    const handle = newFile(files)
    files.failAt(0, { kind: 'short' })
    expect(handle.write(Buffer.from('abcdef'), 0)).toBe(3)
    expect(files.contents('/a').toString()).toBe('abc')
    expect(handle.write(Buffer.from('def'), 3)).toBe(3)
    for (const call of [() => handle.truncate(0), () => handle.syncNow(), () => files.unlink('/a')]) {
      files.failAt(0, { kind: 'short' })
      expect(codeOf(call)).toBe('ENOSPC')
    }
    files.failAt(0, { kind: 'short' })
    await expect(handle.sync()).rejects.toMatchObject({ code: 'ENOSPC' })
  })

  test('sticky fails each call of the same kind until the faults are cleared', async () => {
    const files = new SimFileSystem()
    const handle = newFile(files)
    const fault: SimFault = { kind: 'ENOSPC', sticky: true }
    files.failAt(1, fault)
    expect(handle.write(Buffer.from('a'), 0)).toBe(1)
    for (let time = 0; time < 3; time++) {
      expect(codeOf(() => handle.write(Buffer.from('b'), 0))).toBe('ENOSPC')
      expect(codeOf(() => handle.syncNow())).toBe('no error')
    }
    files.clearFaults()
    expect(handle.write(Buffer.from('c'), 0)).toBe(1)
    files.failAt(0, { kind: 'EIO', sticky: true })
    await expect(handle.sync()).rejects.toMatchObject({ code: 'EIO' })
    expect(codeOf(() => handle.syncNow())).toBe('EIO')
    expect(codeOf(() => files.syncDirectoryNow('/'))).toBe('no error')
  })
})

describe('a failed sync', () => {
  test.each(['EIO', 'ENOSPC'] as const)(
    'with %s gives up what it should have written: no later one makes it durable',
    async (kind) => {
      const files = new SimFileSystem()
      const handle = newFile(files)
      handle.write(Buffer.from('a'.repeat(512)), 0)
      files.failAt(0, { kind })
      await expect(handle.sync()).rejects.toMatchObject({ code: kind })
      expect(files.contents('/a').toString()).toBe('a'.repeat(512))
      handle.write(Buffer.from('b'.repeat(512)), 512)
      await handle.sync()
      expect(lost(files)).toBe('\0'.repeat(512) + 'b'.repeat(512))
      // What is written anew is written.
      handle.write(Buffer.from('a'.repeat(512)), 0)
      handle.syncNow()
      expect(lost(files)).toBe('a'.repeat(512) + 'b'.repeat(512))
    },
  )

  test('may or may not have written some of it', () => {
    const files = new SimFileSystem()
    const handle = newFile(files)
    handle.write(Buffer.alloc(512, 'a'), 0)
    handle.syncNow()
    handle.write(Buffer.alloc(512, 'b'), 0)
    files.failAt(0, { kind: 'EIO' })
    expect(codeOf(() => handle.syncNow())).toBe('EIO')
    handle.syncNow()
    const seen = new Set<string>()
    for (let seed = 0; seed < 50; seed++) {
      seen.add(files.crash({ seed, unsynced: 'torn' }).contents('/a').toString('latin1', 0, 1))
    }
    expect([...seen].sort()).toEqual(['a', 'b'])
    expect(lost(files)).toBe('a'.repeat(512))
  })

  test('of a directory leaves its names undurable until something there changes again', async () => {
    const files = new SimFileSystem()
    files.open('/a', 'create').close()
    files.failAt(0, { kind: 'EIO' })
    await expect(files.syncDirectory('/')).rejects.toMatchObject({ code: 'EIO' })
    await files.syncDirectory('/')
    expect(files.crash({ seed: 1, unsynced: 'lost' }).allFiles()).toEqual([])
    files.open('/b', 'create').close()
    files.syncDirectoryNow('/')
    expect(files.crash({ seed: 1, unsynced: 'lost' }).allFiles()).toEqual(['/a', '/b'])
  })
})

describe('a full disk', () => {
  test('takes what fits, then refuses, and works again when there is room', () => {
    const files = new SimFileSystem()
    files.capacityBytes = 10
    const a = newFile(files, '/a')
    const b = newFile(files, '/b')
    expect(a.write(Buffer.alloc(6, 'a'), 0)).toBe(6)
    expect(b.write(Buffer.alloc(6, 'b'), 0)).toBe(4)
    expect(codeOf(() => b.write(Buffer.alloc(1, 'b'), 4))).toBe('ENOSPC')
    expect(codeOf(() => b.truncate(5))).toBe('ENOSPC')
    expect(b.write(Buffer.alloc(3, 'c'), 2)).toBe(2)
    expect(a.write(Buffer.alloc(6, 'd'), 0)).toBe(6)
    expect(files.usedBytes).toBe(10)
    a.truncate(1)
    expect(b.write(Buffer.alloc(9, 'e'), 0)).toBe(9)
    expect(files.usedBytes).toBe(10)
  })

  test('gets the room of a file back with its last name and handle', () => {
    const files = new SimFileSystem()
    const put = (path: string) => {
      const handle = files.open(path, 'create')
      handle.write(Buffer.alloc(10), 0)
      return handle
    }
    put('/a').close()
    const b = put('/b')
    files.rename('/a', '/c')
    expect(files.usedBytes).toBe(20)
    files.rename('/c', '/b')
    expect(files.usedBytes).toBe(20)
    b.close()
    expect(files.usedBytes).toBe(10)
    files.open('/b', 'create').close()
    expect(files.usedBytes).toBe(0)
    const d = put('/d')
    files.unlink('/d')
    d.truncate(4)
    expect(files.usedBytes).toBe(4)
    d.close()
    expect(files.usedBytes).toBe(0)
    put('/e').close()
    put('/f').close()
    files.rename('/e', '/f')
    expect(files.usedBytes).toBe(10)
    files.unlink('/f')
    expect(files.usedBytes).toBe(0)
  })
})

describe('other ways to refuse', () => {
  test('reads fail where told, writing does not', () => {
    const files = new SimFileSystem()
    files.setContents('/d/journal-1', Buffer.from('abc'))
    files.setContents('/d/other', Buffer.from('abc'))
    files.failReads('journal')
    expect(codeOf(() => files.readFile('/d/journal-1'))).toBe('EIO')
    const handle = files.open('/d/journal-1', 'edit')
    expect(codeOf(() => handle.read(Buffer.alloc(1), 0))).toBe('EIO')
    expect(handle.write(Buffer.from('x'), 0)).toBe(1)
    expect(files.readFile('/d/other').toString()).toBe('abc')
    files.clearFaults()
    expect(files.readFile('/d/journal-1').toString()).toBe('xbc')
  })

  test('a read-only disk refuses every change, and is read', () => {
    const files = new SimFileSystem()
    files.setContents('/d/a', Buffer.from('abc'))
    const handle = files.open('/d/a', 'edit')
    files.readOnly = true
    const calls = [
      () => handle.write(Buffer.from('x'), 0),
      () => handle.truncate(0),
      () => files.open('/d/a', 'create'),
      () => files.open('/d/b', 'create'),
      () => files.open('/d/a', 'edit'),
      () => files.makeDirectory('/e'),
      () => files.rename('/d/a', '/d/b'),
      () => files.unlink('/d/a'),
      () => files.removeDirectory('/d'),
    ]
    for (const call of calls) expect(codeOf(call)).toBe('EROFS')
    files.makeDirectory('/d')
    expect(files.readFile('/d/a').toString()).toBe('abc')
    expect(files.open('/d/a', 'read').size()).toBe(3)
    expect(files.allFiles()).toEqual(['/d/a'])
  })
})

describe('helpers for tests', () => {
  test('rot is seen at once and survives a crash', () => {
    const files = new SimFileSystem()
    files.setContents('/a', Buffer.from('abc'))
    files.corrupt('/a', 1, 0x01)
    expect(files.contents('/a').toString()).toBe('acc')
    expect(lost(files)).toBe('acc')
    files.corrupt('/a', 1, 0x01)
    expect(files.contents('/a').toString()).toBe('abc')
    expect(() => files.corrupt('/a', 3, 1)).toThrow(/offset 3/)
  })

  test('contents that are set are durable with all directories above, and count as no call', () => {
    const files = new SimFileSystem()
    files.makeDirectory('/x')
    files.open('/x/t', 'create').close()
    files.rename('/x/t', '/x/a')
    const before = files.mutations
    files.setContents('/x/a', Buffer.from('longer than the next'))
    files.setContents('/x/a', Buffer.from('abc'))
    expect(files.mutations).toBe(before)
    for (let seed = 0; seed < 50; seed++) {
      const after = files.crash({ seed, unsynced: 'torn' })
      expect(after.allFiles()).toEqual(['/x/a'])
      expect(after.contents('/x/a').toString()).toBe('abc')
    }
    expect(files.usedBytes).toBe(3)
  })

  test('handles are counted until they are closed', () => {
    const files = new SimFileSystem()
    const a = files.open('/a', 'create')
    const b = files.open('/a', 'read')
    expect(files.openHandles()).toBe(2)
    a.close()
    a.close()
    expect(files.openHandles()).toBe(1)
    b.close()
    expect(files.openHandles()).toBe(0)
  })

  test('paths are posix paths however they are spelt', () => {
    const files = new SimFileSystem()
    files.makeDirectory('job')
    files.setContents('job/./x/../a', Buffer.from('abc'))
    expect(files.allFiles()).toEqual(['/job/a'])
    expect(files.readFile('/job//a').toString()).toBe('abc')
    expect(files.readDirectory('job/')).toEqual(['a'])
  })
})
