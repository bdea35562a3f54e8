/**
 * Goal: what the documents say is what the code does, as far as text can be compared. Method: read tables, headings, links and
 * names out of README.md and docs/, and hold them against the source.
 */
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { Command } from 'commander'
import { describe, expect, test } from 'vitest'
import { crawlOptions } from '../src/cli/crawl-options.js'
import { TRANSITIONS } from '../src/queue/job-states.js'

const ROOT = fileURLToPath(new URL('../', import.meta.url))
const read = (name: string): string => readFileSync(join(ROOT, name), 'utf8')
const DOCUMENTS = [
  'README.md',
  'CHANGELOG.md',
  ...readdirSync(join(ROOT, 'docs')).map((name) => `docs/${name}`),
].filter((name) => name.endsWith('.md'))
const texts = new Map(DOCUMENTS.map((name) => [name, read(name)]))

/** The cells of the rows of the first table whose header row begins with these cells. */
function table(text: string, ...header: string[]): string[][] {
  const lines = text.split('\n')
  const cells = (line: string): string[] =>
    line
      .split('|')
      .slice(1, -1)
      .map((cell) => cell.trim())
  const at = lines.findIndex((line) => header.every((cell, i) => cells(line)[i] === cell))
  expect(at, `a table that begins with ${header.join(', ')}`).toBeGreaterThanOrEqual(0)
  const rows: string[][] = []
  for (const line of lines.slice(at + 2)) {
    if (!line.startsWith('|')) break
    rows.push(cells(line))
  }
  return rows
}

/** What stands in backticks, outside of code blocks. */
function codes(text: string): string[] {
  const prose = text.replace(/^```[\s\S]*?^```/gm, '')
  return [...prose.matchAll(/`([^`\n]+)`/g)].map((match) => match[1])
}

/** As GitHub makes anchors of headings. */
function anchors(text: string): string[] {
  const headings = [...text.matchAll(/^#+ (.*)$/gm)].map((match) => match[1].toLowerCase())
  return headings.map((heading) => heading.replace(/[^\p{L}\p{N}\s_-]/gu, '').replaceAll(' ', '-'))
}

test('docs/lifecycle.md has exactly the transitions of the code, in their order', () => {
  const rows = table(read('docs/lifecycle.md'), 'verb', 'from', 'to')
  expect(rows.map(([verb, from, to]) => ({ verb, from, to }))).toEqual(TRANSITIONS)
})

test('the picture in docs/lifecycle.md names every state and every verb', () => {
  const picture = /^```\n([\s\S]*?)^```/m.exec(read('docs/lifecycle.md'))?.[1] ?? ''
  const names = new Set(TRANSITIONS.flatMap(({ verb, from, to }) => [verb, from, to]))
  expect([...names].filter((name) => !picture.includes(name))).toEqual([])
})

test('docs/errors.md has one heading for each code, and no other', () => {
  const declared = /type HoldfastErrorCode =([\s\S]*?)\n\n/.exec(read('src/errors.ts'))?.[1] ?? ''
  const inCode = [...declared.matchAll(/'(HOLDFAST_\w+)'/g)].map((match) => match[1])
  const inText = [...read('docs/errors.md').matchAll(/^## (.*)$/gm)].map((match) => match[1])
  expect(inCode.length).toBeGreaterThan(10)
  expect(inText).toEqual(inCode)
})

test('docs/lifecycle.md lists the events of the code', () => {
  const declared = /interface StoreEvents \{([\s\S]*?)\n\}/.exec(read('src/engine/events.ts'))?.[1] ?? ''
  const inCode = [...declared.matchAll(/^ {2}'?([a-z-]+)'?: \[/gm)].map((match) => match[1])
  const inText = table(read('docs/lifecycle.md'), 'event', 'arguments').map(([event]) => event.replaceAll('`', ''))
  expect(inCode.length).toBeGreaterThan(5)
  expect(inText.sort()).toEqual(inCode.sort())
})

describe.each(DOCUMENTS)('%s', (name) => {
  const text = texts.get(name) as string

  test('links to files and headings that are there', () => {
    const targets = [...text.matchAll(/\]\(([^)\s]+)\)/g)].map((match) => match[1])
    const wrong = targets.filter((target) => {
      if (/^[a-z]+:/.test(target)) return false
      const [file, anchor] = target.split('#')
      const path = file === '' ? join(ROOT, name) : join(ROOT, dirname(name), file)
      if (!existsSync(path)) return true
      return anchor !== undefined && !anchors(readFileSync(path, 'utf8')).includes(anchor)
    })
    expect(wrong).toEqual([])
  })

  test('names source files and npm scripts that are there', () => {
    const { scripts } = JSON.parse(read('package.json')) as { scripts: Record<string, string> }
    const wanted = [...text.matchAll(/npm run ([\w:-]+)/g)].map((match) => match[1])
    expect(wanted.filter((script) => scripts[script] === undefined)).toEqual([])
    const files = codes(text).filter((code) => /^[\w/.-]+\/[\w.-]+\.ts$/.test(code))
    expect(files.filter((file) => !existsSync(join(ROOT, file)) && !existsSync(join(ROOT, 'src', file)))).toEqual([])
  })
})

test('there is something to check: links, files, scripts', () => {
  const all = [...texts.values()].join('\n')
  expect(all.match(/\]\([^)\s]+\.md\)/g)?.length).toBeGreaterThan(10)
  expect(codes(all).filter((code) => code.endsWith('.ts')).length).toBeGreaterThan(20)
})

test('the options of holdfast crawl in README.md are those of the command, with their defaults', () => {
  const { options } = crawlOptions(new Command())
  const rows = table(read('README.md'), 'option', 'meaning', 'default')
  for (const [names, , defaults] of rows) {
    const flags = [...names.matchAll(/--[a-z-]+/g)].map(([flag]) => options.find((option) => option.long === flag))
    expect(flags, names).not.toContain(undefined)
    const values = flags.map((option) => option?.defaultValue).filter((value) => value !== undefined)
    if (values.length > 0) expect(defaults.replaceAll('`', ''), names).toBe(values.join(', '))
  }
  expect(rows.length).toBeGreaterThan(5)
})

test('the fields of an output line in README.md are those of the code', () => {
  const declared = /interface PageLine \{([\s\S]*?)\n\}/.exec(read('src/crawl/page-line.ts'))?.[1] ?? ''
  const inCode = [...declared.matchAll(/readonly (\w+)\??:/g)].map((match) => match[1])
  const inText = table(read('README.md'), 'field').flatMap(([fields]) => codes(fields))
  expect(inCode.length).toBeGreaterThan(8)
  expect(inText.sort()).toEqual(inCode.sort())
})
