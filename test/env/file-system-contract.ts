/** The contract of `src/env/file-system.ts` as a suite: every implementation passes it, whatever lies below. */
import { beforeEach, describe, expect, test } from 'vitest'
import type { FileSystem } from '../../src/env/file-system.js'

export function fileSystemContract(name: string, make: () => { files: FileSystem; root: string }): void {
  describe(`${name} keeps the contract`, () => {
    let files: FileSystem
    let root: string
    const at = (relative: string): string => `${root}/${relative}`
    const put = (path: string, text: string): void => {
      const handle = files.open(path, 'create')
      expect(handle.write(Buffer.from(text), 0)).toBe(text.length)
      handle.close()
    }
    const text = (path: string): string => files.readFile(path).toString('latin1')
    const code = (action: () => unknown): string => {
      try {
        action()
      } catch (error) {
        return (error as NodeJS.ErrnoException).code ?? String(error)
      }
      return 'no error'
    }

    beforeEach(() => {
      const made = make()
      files = made.files
      root = made.root
    })

    test('what is written is read, at any position', () => {
      const handle = files.open(at('a'), 'create')
      expect(handle.path).toBe(at('a'))
      expect(handle.write(Buffer.from('world'), 6)).toBe(5)
      expect(handle.write(Buffer.from('hello'), 0)).toBe(5)
      expect(handle.size()).toBe(11)
      const into = Buffer.alloc(20, '.')
      expect(handle.read(into, 0)).toBe(11)
      expect(into.toString('latin1')).toBe('hello\0world.........')
      expect(handle.read(into.subarray(0, 3), 9)).toBe(2)
      expect(handle.read(into, 11)).toBe(0)
      expect(handle.read(into, 500)).toBe(0)
      expect(handle.write(Buffer.alloc(0), 3)).toBe(0)
      expect(handle.size()).toBe(11)
      handle.close()
      expect(text(at('a'))).toBe('hello\0world')
    })

    test('bytes handed in and out are copies', () => {
      const bytes = Buffer.from('abc')
      const handle = files.open(at('a'), 'create')
      handle.write(bytes, 0)
      bytes.fill('x')
      const read = files.readFile(at('a'))
      read.fill('y')
      expect(text(at('a'))).toBe('abc')
      handle.close()
    })

    test('truncating cuts, and growing again reads zeros', () => {
      const handle = files.open(at('a'), 'create')
      handle.write(Buffer.from('abcdef'), 0)
      handle.truncate(2)
      expect(handle.size()).toBe(2)
      handle.truncate(1500)
      expect(handle.size()).toBe(1500)
      const into = Buffer.alloc(1500, '.')
      expect(handle.read(into, 0)).toBe(1500)
      expect(into.equals(Buffer.concat([Buffer.from('ab'), Buffer.alloc(1498)]))).toBe(true)
      expect(handle.read(into, 1200)).toBe(300)
      handle.close()
    })

    test('create empties what is there, edit keeps it, read and edit want it there', () => {
      put(at('a'), 'old content')
      const edit = files.open(at('a'), 'edit')
      edit.write(Buffer.from('OLD'), 0)
      edit.close()
      expect(text(at('a'))).toBe('OLD content')
      files.open(at('a'), 'create').close()
      expect(text(at('a'))).toBe('')
      expect(code(() => files.open(at('b'), 'read'))).toBe('ENOENT')
      expect(code(() => files.open(at('b'), 'edit'))).toBe('ENOENT')
      expect(code(() => files.open(at('no/b'), 'create'))).toBe('ENOENT')
      expect(files.exists(at('b'))).toBe(false)
    })

    test('a handle opened to read does not write', () => {
      put(at('a'), 'abc')
      const handle = files.open(at('a'), 'read')
      expect(code(() => handle.write(Buffer.from('x'), 0))).toBe('EBADF')
      expect(code(() => handle.truncate(0))).toMatch(/EBADF|EINVAL/)
      handle.close()
      expect(text(at('a'))).toBe('abc')
    })

    test('a closed handle refuses everything but a second close', async () => {
      const handle = files.open(at('a'), 'create')
      handle.close()
      handle.close()
      expect(code(() => handle.write(Buffer.from('x'), 0))).toBe('EBADF')
      expect(code(() => handle.read(Buffer.alloc(1), 0))).toBe('EBADF')
      expect(code(() => handle.size())).toBe('EBADF')
      expect(code(() => handle.truncate(0))).toBe('EBADF')
      expect(code(() => handle.syncNow())).toBe('EBADF')
      await expect(handle.sync()).rejects.toMatchObject({ code: 'EBADF' })
    })

    test('closing while a sync runs lets the sync end', async () => {
      const handles = Array.from({ length: 8 }, (_, index) => files.open(at(`f${index}`), 'create'))
      const syncs = handles.map((handle) => {
        handle.write(Buffer.alloc(4096, 'x'), 0)
        const syncs = [handle.sync(), handle.sync()]
        handle.close()
        return Promise.all(syncs)
      })
      // Takes any descriptor number that was freed too early.
      const others = Array.from({ length: 8 }, (_, index) => files.open(at(`g${index}`), 'create'))
      await Promise.all(syncs)
      for (const other of others) other.close()
    })

    test('all forms of sync succeed', async () => {
      files.makeDirectory(at('d'))
      const handle = files.open(at('d/a'), 'create')
      handle.write(Buffer.from('abc'), 0)
      await handle.sync()
      handle.syncNow()
      await files.syncDirectory(at('d'))
      files.syncDirectoryNow(at('d'))
      handle.close()
      await expect(files.syncDirectory(at('none'))).rejects.toMatchObject({ code: 'ENOENT' })
      expect(code(() => files.syncDirectoryNow(at('none')))).toBe('ENOENT')
    })

    test('names in a directory come sorted', () => {
      for (const name of ['b', 'a10', 'a9', 'C']) put(at(name), '')
      files.makeDirectory(at('aa/inner'))
      expect(files.readDirectory(root)).toEqual(['C', 'a10', 'a9', 'aa', 'b'])
      expect(code(() => files.readDirectory(at('none')))).toBe('ENOENT')
      expect(code(() => files.readDirectory(at('b')))).toBe('ENOTDIR')
    })

    test('making a directory makes its parents, again is no error, over a file is one', () => {
      files.makeDirectory(at('x/y/z'))
      files.makeDirectory(at('x/y/z'))
      files.makeDirectory(at('x/y'))
      expect(files.exists(at('x/y/z'))).toBe(true)
      put(at('file'), '')
      expect(code(() => files.makeDirectory(at('file')))).toBe('EEXIST')
      expect(code(() => files.makeDirectory(at('file/below')))).toBe('ENOTDIR')
    })

    test('rename replaces, and an open handle stays with its file', () => {
      put(at('a'), 'new')
      put(at('b'), 'old')
      const old = files.open(at('b'), 'read')
      files.rename(at('a'), at('b'))
      expect(files.readDirectory(root)).toEqual(['b'])
      expect(text(at('b'))).toBe('new')
      const into = Buffer.alloc(3)
      old.read(into, 0)
      expect(into.toString()).toBe('old')
      old.close()
      files.rename(at('b'), at('b'))
      expect(text(at('b'))).toBe('new')
      expect(code(() => files.rename(at('none'), at('c')))).toBe('ENOENT')
      expect(code(() => files.rename(at('b'), at('no/c')))).toBe('ENOENT')
      files.makeDirectory(at('d'))
      expect(code(() => files.rename(at('b'), at('d')))).toBe('EISDIR')
      files.rename(at('b'), at('d/moved'))
      expect(text(at('d/moved'))).toBe('new')
    })

    test('directories are renamed with what is in them', () => {
      files.makeDirectory(at('d/e'))
      put(at('d/e/a'), 'abc')
      files.rename(at('d'), at('f'))
      expect(text(at('f/e/a'))).toBe('abc')
      expect(files.exists(at('d'))).toBe(false)
      files.makeDirectory(at('full/x'))
      expect(code(() => files.rename(at('f'), at('full')))).toMatch(/ENOTEMPTY|EEXIST/)
      expect(code(() => files.rename(at('f'), at('f/e/g')))).toBe('EINVAL')
      files.removeDirectory(at('full/x'))
      files.rename(at('f'), at('full'))
      expect(text(at('full/e/a'))).toBe('abc')
    })

    test('unlink takes the name, the open handle keeps the bytes', () => {
      put(at('a'), 'abc')
      const handle = files.open(at('a'), 'read')
      files.unlink(at('a'))
      expect(files.exists(at('a'))).toBe(false)
      const into = Buffer.alloc(3)
      expect(handle.read(into, 0)).toBe(3)
      expect(into.toString()).toBe('abc')
      handle.close()
      expect(code(() => files.unlink(at('a')))).toBe('ENOENT')
      files.makeDirectory(at('d'))
      expect(code(() => files.unlink(at('d')))).toMatch(/EISDIR|EPERM/)
    })

    test('only an empty directory is removed', () => {
      files.makeDirectory(at('d'))
      put(at('d/a'), '')
      expect(code(() => files.removeDirectory(at('d')))).toBe('ENOTEMPTY')
      expect(code(() => files.removeDirectory(at('d/a')))).toBe('ENOTDIR')
      files.unlink(at('d/a'))
      files.removeDirectory(at('d'))
      expect(files.exists(at('d'))).toBe(false)
      expect(code(() => files.removeDirectory(at('d')))).toBe('ENOENT')
    })

    test('a path through a file is no directory', () => {
      put(at('a'), '')
      expect(files.exists(at('a/b'))).toBe(false)
      expect(code(() => files.open(at('a/b'), 'read'))).toBe('ENOTDIR')
      expect(code(() => files.readFile(at('none')))).toBe('ENOENT')
      expect(code(() => files.readFile(root))).toBe('EISDIR')
    })
  })
}
