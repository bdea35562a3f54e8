import { existsSync, mkdirSync, readFileSync, renameSync, unlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { OutputFile, type OutputState } from '../../src/crawl/output-file.js'
import type { FileHandle, FileSystem } from '../../src/env/file-system.js'
import { nodeFiles } from '../../src/env/node-file-system.js'
import { tempDirectory } from '../support/crawl-world.js'

let temp: ReturnType<typeof tempDirectory>
let job: string

beforeEach(() => {
  temp = tempDirectory()
  job = join(temp.path, 'job')
  mkdirSync(job)
})
afterEach(() => temp.remove())

const open = (wanted?: string, stored?: OutputState, files: FileSystem = nodeFiles): OutputFile =>
  OutputFile.open(files, job, wanted, stored)
const line = (text: string): Buffer => Buffer.from(`"${text}"\n`)

/** Writes lines as a run would and returns the state its last commit stored. */
function writeRun(lines: readonly string[], wanted?: string, stored?: OutputState): OutputState {
  const output = open(wanted, stored)
  for (const text of lines) output.append(line(text))
  output.close()
  return output.state
}

describe('position', () => {
  test('follows the lines', () => {
    const output = open()
    expect(output.state).toEqual({ path: 'pages.ndjson', bytes: 0, lines: 0 })
    output.append(line('one'))
    output.append(line('two'))
    expect(output.position).toEqual({ bytes: 12, lines: 2 })
    output.close()
    expect(readFileSync(output.path, 'utf8')).toBe('"one"\n"two"\n')
  })

  test('what lies beyond the stored one is cut off', () => {
    const after1 = writeRun(['one'])
    writeRun(['two'], undefined, after1)
    writeFileSync(join(job, 'pages.ndjson'), `${readFileSync(join(job, 'pages.ndjson'), 'utf8')}"hal`)
    const output = open(undefined, after1)
    expect(readFileSync(output.path, 'utf8')).toBe('"one"\n')
    output.append(line('three'))
    output.close()
    expect(readFileSync(output.path, 'utf8')).toBe('"one"\n"three"\n')
  })
})

describe('another path', () => {
  test('inside the job is stored as relative, so the job can be moved', () => {
    const stored = writeRun(['one'])
    renameSync(job, join(temp.path, 'moved'))
    const output = OutputFile.open(nodeFiles, join(temp.path, 'moved'), undefined, stored)
    output.close()
    expect(output.position.lines).toBe(1)
  })

  test('outside is stored as absolute, found again without --out, and made with its directories', () => {
    const path = join(temp.path, 'elsewhere/deep/out.ndjson')
    const stored = writeRun(['one'], path)
    expect(stored.path).toBe(path)
    const output = open(undefined, stored)
    output.close()
    expect(output.path).toBe(path)
  })

  test('is taken when the file was moved there', () => {
    const stored = writeRun(['one'])
    const moved = join(temp.path, 'moved.ndjson')
    renameSync(join(job, 'pages.ndjson'), moved)
    expect(writeRun(['two'], moved, stored)).toEqual({ path: moved, bytes: 12, lines: 2 })
    expect(readFileSync(moved, 'utf8')).toBe('"one"\n"two"\n')
  })

  test('is refused when it does not hold the output', () => {
    const stored = writeRun(['one'])
    const other = join(temp.path, 'other.ndjson')
    writeFileSync(other, '')
    expect(() => open(other, stored)).toThrow(expect.objectContaining({ code: 'HOLDFAST_MISMATCH', path: other }))
    const absent = join(temp.path, 'absent.ndjson')
    expect(() => open(absent, stored)).toThrow(expect.objectContaining({ code: 'HOLDFAST_MISMATCH', path: absent }))
    expect(existsSync(absent)).toBe(false)
  })
})

describe('refusals', () => {
  test('a new crawl does not write into a file that holds something', () => {
    writeFileSync(join(job, 'pages.ndjson'), 'precious')
    expect(() => open()).toThrow(expect.objectContaining({ code: 'HOLDFAST_MISMATCH' }))
    expect(readFileSync(join(job, 'pages.ndjson'), 'utf8')).toBe('precious')
  })

  test('an empty file is fine: it is what a kill before the first page leaves', () => {
    writeFileSync(join(job, 'pages.ndjson'), '')
    open().close()
  })

  test('a file shorter than what was committed is damage', () => {
    const stored = writeRun(['one', 'two'])
    writeFileSync(join(job, 'pages.ndjson'), '"one"\n')
    expect(() => open(undefined, stored)).toThrow(expect.objectContaining({ code: 'HOLDFAST_CORRUPT', offset: 6 }))
  })

  test('so is a file that is gone, and none is made in its place', () => {
    const stored = writeRun(['one'])
    unlinkSync(join(job, 'pages.ndjson'))
    expect(() => open(undefined, stored)).toThrow(expect.objectContaining({ code: 'HOLDFAST_CORRUPT', offset: 0 }))
    expect(existsSync(join(job, 'pages.ndjson'))).toBe(false)
  })

  test('a file without a line end where the commit says is not ours', () => {
    const stored = writeRun(['one'])
    writeFileSync(join(job, 'pages.ndjson'), '\0\0\0\0\0\0\0\0')
    expect(() => open(undefined, stored)).toThrow(expect.objectContaining({ code: 'HOLDFAST_CORRUPT' }))
    expect(readFileSync(join(job, 'pages.ndjson')).length).toBe(8)
  })
})

describe('a write that fails', () => {
  /** Lets a test fail writes and truncates of an otherwise real file. */
  function flaky(plan: { write?: (bytes: Uint8Array) => number | undefined; truncate?: () => void }): FileSystem {
    return {
      ...nodeFiles,
      open(path, mode): FileHandle {
        const real = nodeFiles.open(path, mode)
        return {
          path,
          read: (into, position) => real.read(into, position),
          size: () => real.size(),
          sync: () => real.sync(),
          syncNow: () => real.syncNow(),
          close: () => real.close(),
          truncate(length) {
            plan.truncate?.()
            real.truncate(length)
          },
          write(bytes, position) {
            const most = plan.write?.(bytes)
            return real.write(most === undefined ? bytes : bytes.subarray(0, most), position)
          },
        }
      },
    }
  }

  test('leaves the file as it was, and the next one may succeed', () => {
    const plan: Parameters<typeof flaky>[0] = {}
    const output = open(undefined, undefined, flaky(plan))
    output.append(line('one'))
    plan.write = () => 3
    expect(() => output.append(line('two'))).toThrow(expect.objectContaining({ code: 'HOLDFAST_DISK_FULL' }))
    expect(readFileSync(output.path, 'utf8')).toBe('"one"\n')
    plan.write = () => {
      throw Object.assign(new Error('no'), { code: 'EIO' })
    }
    expect(() => output.append(line('two'))).toThrow(expect.objectContaining({ code: 'HOLDFAST_IO' }))
    delete plan.write
    output.append(line('three'))
    expect(output.position).toEqual({ bytes: 14, lines: 2 })
    output.close()
    expect(readFileSync(output.path, 'utf8')).toBe('"one"\n"three"\n')
  })

  test('when it cannot be cut back nothing more is written', () => {
    const plan: Parameters<typeof flaky>[0] = {}
    const output = open(undefined, undefined, flaky(plan))
    output.append(line('one'))
    plan.write = () => 3
    plan.truncate = () => {
      throw Object.assign(new Error('no'), { code: 'EIO' })
    }
    expect(() => output.append(line('two'))).toThrow(expect.objectContaining({ code: 'HOLDFAST_DISK_FULL' }))
    delete plan.write
    expect(() => output.append(line('three'))).toThrow(expect.objectContaining({ code: 'HOLDFAST_IO' }))
    expect(output.position).toEqual({ bytes: 6, lines: 1 })
    output.close()
  })
})
