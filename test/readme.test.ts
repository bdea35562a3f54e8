/**
 * Goal: the examples in README.md run as they are printed. Method: take them out of the text, give the crawl a site of our own
 * to go to, run them as processes, and kill the crawl once on the way. They import the compiled package, which `npm test`
 * has built, by its own name; so they lie in a directory inside this package.
 */
import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { links, pageServer, pages } from './support/crawl-world.js'

const ROOT = fileURLToPath(new URL('../', import.meta.url))
const examples = [...readFileSync(join(ROOT, 'README.md'), 'utf8').matchAll(/^```ts\n([\s\S]*?)^```/gm)].map(
  (match) => match[1],
)
const [crawlExample, queueExample] = examples
let directory = ''

beforeAll(() => {
  expect(existsSync(join(ROOT, 'dist/index.js')), 'compiled by `npm run build`').toBe(true)
  mkdirSync(join(ROOT, 'build'), { recursive: true })
  directory = mkdtempSync(join(ROOT, 'build/readme-'))
})

afterAll(() => rmSync(directory, { recursive: true, force: true }))

/** The examples have no types in them, so what is printed is what runs. */
function start(name: string, code: string): ChildProcess {
  writeFileSync(join(directory, name), code)
  return spawn(process.execPath, [name], { cwd: directory, stdio: ['ignore', 'pipe', 'inherit'] })
}

async function ended(child: ChildProcess): Promise<{ code: number | null; out: string }> {
  let out = ''
  child.stdout?.setEncoding('utf8').on('data', (text: string) => {
    out += text
  })
  return new Promise((resolve) => child.once('close', (code) => resolve({ code, out })))
}

test('there are two, and they are short', () => {
  expect(examples).toHaveLength(2)
  expect(crawlExample.split('\n').length).toBeLessThanOrEqual(25)
  expect(queueExample.split('\n').length).toBeLessThanOrEqual(11)
})

test('the crawl visits a whole site, goes on after a kill, and does nothing the third time', async () => {
  let onHalf = (): void => {}
  const site = await pageServer(
    pages({
      '/': links('/a', '/half', 'https://elsewhere.example/', 'mailto:me@elsewhere.example'),
      '/a': links('/', '/a#top'),
      '/half': (_request, response) => {
        onHalf()
        response.writeHead(200, { 'content-type': 'text/html' }).end(links('/b'))
      },
      '/b': links('/'),
    }),
  )
  try {
    expect(crawlExample).toContain("'https://example.org/'")
    const code = crawlExample.replace('https://example.org/', `${site.origin}/`)

    const first = start('crawl.mjs', code)
    onHalf = () => void first.kill('SIGKILL')
    expect((await ended(first)).code).toBeNull()
    onHalf = () => {}
    expect(site.asked).toEqual(['/', '/a', '/half'])

    const second = await ended(start('crawl.mjs', code))
    expect(second.code).toBe(0)
    expect(second.out).toContain(`200 ${site.origin}/b\n`)
    // The start page was done before the kill: it is not asked for again. What was in flight is.
    expect(site.asked.filter((path) => path === '/')).toHaveLength(1)
    expect(site.asked.filter((path) => path === '/half')).toHaveLength(2)
    expect(site.asked.filter((path) => path === '/b')).toHaveLength(1)

    const asked = site.asked.length
    expect(await ended(start('crawl.mjs', code))).toEqual({ code: 0, out: '' })
    expect(site.asked).toHaveLength(asked)
  } finally {
    await site.close()
  }
})

test('the queue hands out every job and ends', async () => {
  const { code, out } = await ended(start('queue.mjs', queueExample))
  expect(code).toBe(0)
  expect(out).toBe("resizing { file: 'a.png', width: 320 }\nresizing { file: 'b.png', width: 640 }\n")
})

test('they fit the types of the package', async () => {
  examples.forEach((code, i) => {
    writeFileSync(join(directory, `example-${i}.ts`), code)
  })
  const compilerOptions = { strict: true, noEmit: true, target: 'ES2023', module: 'NodeNext', types: ['node'] }
  writeFileSync(join(directory, 'tsconfig.json'), JSON.stringify({ compilerOptions, include: ['*.ts'] }))
  const tsc = join(ROOT, 'node_modules/typescript/bin/tsc')
  const { stdout } = await promisify(execFile)(process.execPath, [tsc, '-p', directory]).catch((error) => error)
  expect(stdout).toBe('')
})
