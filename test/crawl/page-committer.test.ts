/**
 * Exactly once: whatever happens between writing a line and committing its page, the output cut to the committed length
 * holds each committed page once and nothing else.
 */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { OutputFile, type OutputState } from '../../src/crawl/output-file.js'
import { OUTPUT_STATE_KEY, PageCommitter } from '../../src/crawl/page-committer.js'
import type { PageLine } from '../../src/crawl/page-line.js'
import type { FileHandle, FileSystem } from '../../src/env/file-system.js'
import { nodeFiles } from '../../src/env/node-file-system.js'
import { HoldfastError } from '../../src/errors.js'
import type { Visit } from '../../src/frontier/types.js'
import { readLines, tempDirectory } from '../support/crawl-world.js'
import { FakeDisk, FakeFrontier } from '../support/fake-frontier.js'

let temp: ReturnType<typeof tempDirectory>
beforeEach(() => {
  temp = tempDirectory()
})
afterEach(() => temp.remove())

const url = (name: string): string => `http://site.example/${name}`

function pageLine(name: string): PageLine {
  return {
    url: url(name),
    status: 200,
    depth: 0,
    referer: null,
    fetchedAt: '2025-01-01T00:00:00.000Z',
    contentType: 'text/html',
    bytes: 0,
    title: null,
    links: [],
    sha256: null,
  }
}

/** A frontier with these pages handed out, and a committer for them. */
async function setUp(names: readonly string[], options: { power?: boolean; files?: FileSystem } = {}) {
  const disk = new FakeDisk()
  const frontier = new FakeFrontier(disk)
  await frontier.add(names.map(url))
  const visits = new Map<string, Visit>()
  const hand = frontier.visits()
  for (const name of names) {
    const next = await hand.next()
    visits.set(name, next.value as Visit)
  }
  const output = OutputFile.open(options.files ?? nodeFiles, temp.path, undefined, undefined)
  const committer = new PageCommitter(output, { power: options.power ?? false })
  const commit = (name: string, add: readonly string[] = []) =>
    committer.commit({
      visit: visits.get(name) as Visit,
      line: pageLine(name),
      add: add.map((to) => ({ url: url(to) })),
    })
  return { disk, frontier, visits, output, committer, commit }
}

/** What the next run would find, after cutting the file to the committed length. */
function committedNames(disk: FakeDisk): string[] {
  const output = OutputFile.open(nodeFiles, temp.path, undefined, disk.state.get(OUTPUT_STATE_KEY) as OutputState)
  output.close()
  return readLines(output.path).map((line) => new URL(line.url).pathname.slice(1))
}

const waitingNames = (disk: FakeDisk): string[] =>
  [...disk.jobs.values()].map((job) => new URL(String(job.request.url)).pathname.slice(1))

const NAMES = ['a', 'b', 'c', 'd', 'e']

describe.each([{ power: false }, { power: true }])('power: $power', ({ power }) => {
  test('pages finished together are each there once, in order, and end with the file', async () => {
    const { commit, disk, output } = await setUp(NAMES, { power })
    expect(await Promise.all(NAMES.map((name) => commit(name)))).toEqual(NAMES.map(() => 'committed'))
    expect(committedNames(disk)).toEqual(NAMES)
    expect(disk.state.get(OUTPUT_STATE_KEY)).toEqual(output.state)
    expect(output.position.bytes).toBe(readFileSync(output.path).length)
    expect(waitingNames(disk)).toEqual([])
  })

  test('what a page led to is added in its commit', async () => {
    const { commit, disk } = await setUp(['a', 'b'], { power })
    await Promise.all([commit('a', ['x', 'y']), commit('b', ['y', 'z'])])
    expect(waitingNames(disk).sort()).toEqual(['x', 'y', 'z'])
  })

  test('a page whose lease is over leaves no line', async () => {
    const { commit, disk, frontier } = await setUp(NAMES, { power })
    frontier.expire(url('c'))
    const outcomes = await Promise.all(NAMES.map((name) => commit(name)))
    expect(outcomes).toEqual(['committed', 'committed', 'lost', 'committed', 'committed'])
    expect(committedNames(disk)).toEqual(['a', 'b', 'd', 'e'])
    expect(waitingNames(disk)).toEqual(['c'])
  })

  test('a kill before each commit in turn: nothing is lost, nothing is there twice', async () => {
    for (let commits = 0; commits <= NAMES.length; commits++) {
      temp.remove()
      temp = tempDirectory()
      const { commit, disk, frontier } = await setUp(NAMES, { power })
      let left = commits
      let reached = (): void => {}
      const killed = new Promise<void>((resolve) => {
        reached = resolve
      })
      frontier.beforeCommit = async () => {
        if (left-- > 0) return
        frontier.kill()
        reached()
      }
      const all = Promise.all(NAMES.map((name) => commit(name)))
      await Promise.race([all, killed])
      expect(committedNames({ ...disk, state: withDefault(disk) } as FakeDisk)).toEqual(NAMES.slice(0, commits))
      expect(waitingNames(disk)).toEqual(NAMES.slice(commits))
    }
  })

  test('a full journal: the page comes back, and its line is cut off', async () => {
    const { commit, disk, frontier } = await setUp(['a', 'b'], { power })
    await commit('a')
    frontier.refuse = () => new HoldfastError('HOLDFAST_DISK_FULL', 'no room')
    await expect(commit('b')).rejects.toMatchObject({ code: 'HOLDFAST_DISK_FULL' })
    frontier.refuse = () => undefined
    // The crawl is over: what is finished later is not written behind a hole.
    await expect(commit('b')).rejects.toMatchObject({ code: 'HOLDFAST_DISK_FULL' })
    expect(committedNames(disk)).toEqual(['a'])
    expect(waitingNames(disk)).toEqual(['b'])
  })

  test('no room in the output: nothing is settled', async () => {
    const files: FileSystem = { ...nodeFiles, open: (path, mode) => shortWrites(nodeFiles.open(path, mode), 2) }
    const { commit, disk, output } = await setUp(['a', 'b', 'c'], { power, files })
    const results = await Promise.allSettled(['a', 'b', 'c'].map((name) => commit(name)))
    expect(results[2]).toMatchObject({ status: 'rejected', reason: { code: 'HOLDFAST_DISK_FULL' } })
    const done = results.filter((result) => result.status === 'fulfilled').length
    expect(waitingNames(disk)).toEqual(['a', 'b', 'c'].slice(done))
    expect(output.position.lines).toBe(done)
  })
})

/** Fails the write number `failing` (from 0) half way. */
function shortWrites(handle: FileHandle, failing: number): FileHandle {
  let writes = 0
  return new Proxy(handle, {
    get(target, property) {
      if (property === 'write') {
        return (bytes: Uint8Array, position: number) =>
          target.write(writes++ === failing ? bytes.subarray(0, bytes.length >> 1) : bytes, position)
      }
      const value = Reflect.get(target, property) as unknown
      return typeof value === 'function' ? value.bind(target) : value
    },
  })
}

/** Before the first commit there is no position: the real crawl stores one when it opens the output. */
function withDefault(disk: FakeDisk): Map<string, unknown> {
  return new Map([[OUTPUT_STATE_KEY, { path: 'pages.ndjson', bytes: 0, lines: 0 }], ...disk.state])
}

describe('a shared sync', () => {
  /** Counts syncs and runs `during` while one is under way. */
  function syncing(during: () => void): { files: FileSystem; count: () => number } {
    let count = 0
    const files: FileSystem = {
      ...nodeFiles,
      open: (path, mode) =>
        new Proxy(nodeFiles.open(path, mode), {
          get(target, property) {
            if (property === 'sync') {
              return async () => {
                count++
                during()
                await target.sync()
              }
            }
            const value = Reflect.get(target, property) as unknown
            return typeof value === 'function' ? value.bind(target) : value
          },
        }),
    }
    return { files, count: () => count }
  }

  test('covers the pages that waited for it', async () => {
    const { files, count } = syncing(() => {})
    const { commit } = await setUp(NAMES, { power: true, files })
    await Promise.all(NAMES.map((name) => commit(name)))
    // The first does not wait for company; the other four share one.
    expect(count()).toBe(2)
  })

  test('a lease that ends during it takes its line with it', async () => {
    let frontier: FakeFrontier | undefined
    let syncs = 0
    const { files } = syncing(() => {
      if (++syncs === 2) frontier?.expire(url('c'))
    })
    const world = await setUp(NAMES, { power: true, files })
    frontier = world.frontier
    const outcomes = await Promise.all(NAMES.map((name) => world.commit(name)))
    expect(outcomes).toEqual(['committed', 'committed', 'lost', 'committed', 'committed'])
    expect(committedNames(world.disk)).toEqual(['a', 'b', 'd', 'e'])
  })

  test('one page of a group refused and a later one not: its line is blanked, and the file stays readable', async () => {
    const { commit, disk, frontier } = await setUp(NAMES, { power: true })
    frontier.refuse = (verb, of) =>
      verb === 'ack' && of === url('c') ? new HoldfastError('HOLDFAST_DISK_FULL', 'no room') : undefined
    const results = await Promise.allSettled(NAMES.map((name) => commit(name)))
    expect(results.map((result) => result.status)).toEqual([
      'fulfilled',
      'fulfilled',
      'rejected',
      'fulfilled',
      'fulfilled',
    ])
    expect(committedNames(disk)).toEqual(['a', 'b', 'd', 'e'])
    expect(waitingNames(disk)).toEqual(['c'])
    expect(readFileSync(join(temp.path, 'pages.ndjson'), 'utf8').split('\n')).toHaveLength(5)
  })
})
