/** Small files written whole: the old content or the new at every cut, and no byte that can change unnoticed. */
import { beforeEach, describe, expect, test } from 'vitest'
import { SimFileSystem } from '../../src/env/sim-file-system.js'
import { errorCode } from '../../src/errors.js'
import { decodeJson, encodeJson, readJsonFile, writeFully, writeJsonFile } from '../../src/store/json-file.js'
import { flipped, refusal } from './support.js'

const value = { format: 1, text: 'naïve ☃ 𝄞 \ufffd "crc32"', list: [1, -2.5, null, true, {}], nested: { crc32: 'x' } }
const bytes = encodeJson(value)

describe('the bytes', () => {
  test('are one line of JSON whose last member is the checksum', () => {
    const text = bytes.toString()
    expect(text.endsWith('"}\n')).toBe(true)
    expect(text.indexOf('\n')).toBe(text.length - 1)
    const { crc32, ...rest } = JSON.parse(text)
    expect(crc32).toMatch(/^[0-9a-f]{8}$/)
    expect(rest).toEqual(value)
  })

  test('come back', () => {
    expect(decodeJson(bytes, '/x')).toEqual(value)
  })

  test('any flipped bit is found', () => {
    for (let bit = 0; bit < bytes.length * 8; bit++) {
      const error = refusal(() => decodeJson(flipped(bytes, bit), '/x'))
      expect(error, `bit ${bit}`).toMatchObject({ code: 'HOLDFAST_CORRUPT', path: '/x' })
    }
  })

  test('any other length is found', () => {
    for (let length = 0; length < bytes.length; length++) {
      expect(refusal(() => decodeJson(bytes.subarray(0, length), '/x')).code, `${length}`).toBe('HOLDFAST_CORRUPT')
    }
    for (const extra of ['\n', ' ', '\0', '\0'.repeat(100), '}\n']) {
      expect(refusal(() => decodeJson(Buffer.concat([bytes, Buffer.from(extra)]), '/x')).code).toBe('HOLDFAST_CORRUPT')
    }
  })
})

describe('content that checks out', () => {
  test('of a newer format is told as such', () => {
    const error = refusal(() => decodeJson(encodeJson({ format: 2, all: 'different' }), '/x'))
    expect(error).toMatchObject({ code: 'HOLDFAST_UNSUPPORTED_FORMAT', path: '/x' })
    expect(error.message).toContain('format 2')
  })

  test('without a format, or not an object, is damage', () => {
    for (const wrong of [{ a: 1 }, { format: '1' }, { format: null }]) {
      expect(refusal(() => decodeJson(encodeJson(wrong), '/x')).code).toBe('HOLDFAST_CORRUPT')
    }
  })
})

describe('writing and reading', () => {
  const PATH = '/d/file.json'
  let files: SimFileSystem

  beforeEach(async () => {
    files = new SimFileSystem()
    files.makeDirectory('/d')
    await files.syncDirectory('/')
  })

  const write = (n: number, onRenamed?: () => void): Promise<void> =>
    writeJsonFile(files, '/d', 'file.json', { format: 1, n }, onRenamed)

  test('a missing file is undefined; a directory that is missing too', () => {
    expect(readJsonFile(files, PATH)).toBeUndefined()
    expect(readJsonFile(files, '/nowhere/file.json')).toBeUndefined()
  })

  test('durable when the promise resolves, with nothing left beside it', async () => {
    await write(1)
    const after = files.crash({ seed: 1, unsynced: 'lost' })
    expect(readJsonFile(after, PATH)).toEqual({ format: 1, n: 1 })
    expect(after.readDirectory('/d')).toEqual(['file.json'])
    expect(files.openHandles()).toBe(0)
  })

  test('cut at every call, and torn in every way: the old content or the new', async () => {
    await write(1)
    for (let call = 0; ; call++) {
      const disk = files.crash({ seed: 1, unsynced: 'kept' })
      disk.failAt(call, { kind: 'crash', seed: call })
      let renamed = false
      const written = await writeJsonFile(disk, '/d', 'file.json', { format: 1, n: 2 }, () => {
        renamed = true
      }).then(
        () => true,
        () => false,
      )
      for (const unsynced of ['lost', 'kept', 'torn', 'torn', 'torn'] as const) {
        const n = readJsonFile(disk.crash({ seed: call * 7 + unsynced.length, unsynced }), PATH)?.['n']
        expect([1, 2]).toContain(n)
        if (written) expect(n).toBe(2)
        if (!renamed) expect(n).toBe(1)
      }
      if (written) break
    }
  })

  test('a failure names the file; before the rename the old content stays', async () => {
    await write(1)
    for (let call = 0; ; call++) {
      let renamed = false
      files.failAt(call, { kind: 'EIO' })
      const error = await write(2, () => {
        renamed = true
      }).then(
        () => undefined,
        (reason) => reason,
      )
      if (error === undefined) break
      expect(error).toMatchObject({ code: 'HOLDFAST_IO', path: PATH })
      expect(readJsonFile(files, PATH)?.['n']).toBe(renamed ? 2 : 1)
      expect(files.openHandles()).toBe(0)
      await write(1)
    }
  })

  test('an I/O error while reading is not "missing"', async () => {
    await write(1)
    files.failReads('file.json')
    expect(refusal(() => readJsonFile(files, PATH))).toMatchObject({ code: 'HOLDFAST_IO', path: PATH })
  })
})

test('a short write is a full disk', () => {
  const handle = { path: '/x', write: (some: Uint8Array) => some.length - 1 }
  let thrown: unknown
  try {
    writeFully(handle, Buffer.alloc(10), 0)
  } catch (error) {
    thrown = error
  }
  expect(errorCode(thrown)).toBe('ENOSPC')
  expect((thrown as Error).message).toContain('9 of 10 bytes')
})
