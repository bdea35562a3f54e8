/**
 * Reads the source as text and keeps its shape: imports point one way and in no circle, the outside world is named in
 * src/env only, every file says at its top what it is for, and none grows past what a person reads in one go.
 */
import { readdirSync, readFileSync } from 'node:fs'
import { dirname, join, relative, sep } from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, test } from 'vitest'

const SRC = fileURLToPath(new URL('../src/', import.meta.url))

/** Lower layers first. A folder may import from lower layers and from itself, never from a neighbour. */
const LAYERS = [
  ['env', 'bytes'],
  ['store'],
  ['queue', 'seen'],
  ['priority'],
  ['engine'],
  ['frontier'],
  ['crawl'],
  ['cli'],
]
/** Used by all; these import only one another. */
const COMMON = new Set(['errors.ts', 'limits.ts', 'assert.ts'])
/** The public names: may import from anywhere, and nobody imports it. */
const INDEX = 'index.ts'

const LINES_MAX = 450
interface Import {
  readonly to: string
  /** Vanishes when compiled: it orders layers, but cannot make a circle at run time. */
  readonly typeOnly: boolean
}

interface Source {
  readonly name: string
  readonly text: string
  /** Without comments, and with empty strings. */
  readonly code: string
  readonly imports: readonly Import[]
}

const sources: readonly Source[] = readdirSync(SRC, { recursive: true, withFileTypes: true })
  .filter((entry) => entry.isFile() && entry.name.endsWith('.ts'))
  .map((entry) => relative(SRC, join(entry.parentPath, entry.name)).split(sep).join('/'))
  .sort()
  .map(load)

function load(name: string): Source {
  const text = readFileSync(SRC + name, 'utf8')
  const bare = text.replace(/\/\*[\s\S]*?\*\//g, '').replace(/(^|\s)\/\/.*$/gm, '$1')
  const imports: Import[] = []
  for (const match of bare.matchAll(/\b(?:import|export)\s+(type\s+)?([^'";]*?\bfrom\s*)?['"](\.[^'"]+)['"]/g)) {
    const to = join(dirname(name), match[3].replace(/\.js$/, '.ts')).split(sep).join('/')
    const names = /\{([^}]*)\}/
      .exec(match[2] ?? '')?.[1]
      .split(',')
      .map((one) => one.trim())
    const onlyTypes = names?.every((one) => one === '' || one.startsWith('type ')) === true
    imports.push({ to, typeOnly: match[1] !== undefined || onlyTypes })
  }
  const strings = /'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*"/g
  // Module names stay: they are what some of the rules are about.
  const code = bare.replace(strings, (found) => (/^.node:/.test(found) ? found : "''"))
  return { name, text, code, imports }
}

const folderOf = (name: string): string => (name.includes('/') ? name.slice(0, name.indexOf('/')) : '')
const rankOf = (name: string): number => LAYERS.findIndex((layer) => layer.includes(folderOf(name)))

test('the source is read: a rule that sees no file cannot fail', () => {
  expect(sources.length).toBeGreaterThan(60)
  expect(sources.reduce((sum, source) => sum + source.imports.length, 0)).toBeGreaterThan(200)
  const reader = sources.find((source) => source.name === 'store/journal-reader.ts')
  expect(reader?.imports).toContainEqual({ to: 'store/frame.ts', typeOnly: false })
  expect(reader?.imports).toContainEqual({ to: 'env/file-system.ts', typeOnly: true })
})

describe('imports', () => {
  test('every folder has a place in the order', () => {
    const folders = new Set(sources.map((source) => folderOf(source.name)))
    folders.delete('')
    expect([...folders].filter((folder) => !LAYERS.flat().includes(folder))).toEqual([])
    const top = sources.filter((source) => folderOf(source.name) === '').map((source) => source.name)
    expect(top.filter((name) => name !== INDEX && !COMMON.has(name))).toEqual([])
  })

  test('name files that are there', () => {
    const names = new Set(sources.map((source) => source.name))
    expect(list(({ to }) => !names.has(to))).toEqual([])
  })

  test('point to lower layers only', () => {
    expect(
      list(({ to }, { name }) => {
        if (name === INDEX || COMMON.has(to)) return false
        if (to === INDEX || COMMON.has(name)) return true
        return folderOf(to) !== folderOf(name) && rankOf(to) >= rankOf(name)
      }),
    ).toEqual([])
  })

  test('make no circle', () => {
    const next = new Map(
      sources.map(({ name, imports }) => [name, imports.filter((one) => !one.typeOnly).map((one) => one.to)]),
    )
    expect(findCircle(next)).toBeUndefined()
    // The search itself: it finds one where there is one.
    expect(
      findCircle(
        new Map([
          ['a', ['b']],
          ['b', ['c']],
          ['c', ['b']],
        ]),
      ),
    ).toEqual(['b', 'c', 'b'])
  })
})

/** Imports that break a rule, as `from -> to`. */
function list(isWrong: (one: Import, from: Source) => boolean): string[] {
  return sources.flatMap((from) =>
    from.imports.filter((one) => isWrong(one, from)).map((one) => `${from.name} -> ${one.to}`),
  )
}

function findCircle(next: ReadonlyMap<string, readonly string[]>): string[] | undefined {
  const done = new Set<string>()
  const path: string[] = []
  const visit = (name: string): string[] | undefined => {
    if (path.includes(name)) return [...path.slice(path.indexOf(name)), name]
    if (done.has(name)) return undefined
    path.push(name)
    for (const to of next.get(name) ?? []) {
      const circle = visit(to)
      if (circle !== undefined) return circle
    }
    path.pop()
    done.add(name)
    return undefined
  }
  for (const name of next.keys()) {
    const circle = visit(name)
    if (circle !== undefined) return circle
  }
  return undefined
}

describe('the outside world', () => {
  /** The command line is the outside world's other end: it has a process, a terminal and files of its own. */
  const ALLOWED = ['env', 'cli']
  const RULES: readonly (readonly [string, RegExp])[] = [
    ['files', /['"](node:)?fs(\/promises)?['"]/],
    ['the wall clock', /\bDate\.now\b|\bnew Date\(\)/],
    ['the monotonic clock', /\bperformance\.now\b|\bhrtime\b/],
    ['chance', /\bMath\.random\b|\brandom(Bytes|Int|UUID)\b/],
    ['timers', /\b(setTimeout|setInterval|setImmediate)\b/],
    ['the process', /\bprocess\./],
  ]

  test.each(RULES)('%s: named only where it may be', (_what, pattern) => {
    const wrong = sources.filter(({ name, code }) => !ALLOWED.includes(folderOf(name)) && pattern.test(code))
    expect(wrong.map((source) => source.name)).toEqual([])
    // And it is named there, so the pattern does match something.
    expect(sources.some(({ name, code }) => folderOf(name) === 'env' && pattern.test(code))).toBe(true)
  })
})

describe('every file', () => {
  test('begins with what it is for', () => {
    const silent = sources.filter(({ text }) => !/^(#!.*\n)?\/\*\*\s*\S/.test(text))
    expect(silent.map((source) => source.name)).toEqual([])
  })

  test(`has at most ${LINES_MAX} lines`, () => {
    const lines = sources.map(({ name, text }) => [name, text.split('\n').length - 1] as const)
    const over = lines.filter((one) => one[1] > LINES_MAX)
    expect(over).toEqual([])
  })
})
