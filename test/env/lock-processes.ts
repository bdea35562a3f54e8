/** Compiles the lock once per test file and talks to children that hold it: see `lock-child.mjs`. */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'

const HERE = dirname(fileURLToPath(import.meta.url))
const REPOSITORY = join(HERE, '..', '..')

export interface Answer {
  readonly result: string
  readonly owner?: { readonly pid: number; readonly host: string }
  readonly path?: string
  readonly message?: string
  readonly lostBecause?: string
}

/** The lock as JavaScript in a directory of its own: plain Node runs no TypeScript, and `dist` may be older. */
export function compileLock(): { readonly module: string; remove(): void } {
  const directory = mkdtempSync(join(tmpdir(), 'holdfast-lock-build-'))
  symlinkSync(join(REPOSITORY, 'node_modules'), join(directory, 'node_modules'), 'dir')
  writeFileSync(join(directory, 'package.json'), '{ "type": "module" }')
  const config = {
    extends: join(REPOSITORY, 'tsconfig.json'),
    compilerOptions: { rootDir: join(REPOSITORY, 'src'), outDir: join(directory, 'out'), declaration: false },
    include: [],
    files: [join(REPOSITORY, 'src/env/node-lock.ts')],
  }
  writeFileSync(join(directory, 'tsconfig.json'), JSON.stringify(config))
  execFileSync(process.execPath, [join(REPOSITORY, 'node_modules/typescript/bin/tsc'), '-p', directory])
  return {
    module: join(directory, 'out/env/node-lock.js'),
    remove: () => rmSync(directory, { recursive: true, force: true }),
  }
}

export class LockChild {
  readonly #process: ChildProcess
  readonly #answers: AsyncIterator<string>

  private constructor(process: ChildProcess) {
    this.#process = process
    this.#answers = createInterface({ input: process.stdout! })[Symbol.asyncIterator]()
  }

  static async start(module: string): Promise<LockChild> {
    const child = spawn(process.execPath, [join(HERE, 'lock-child.mjs'), module], {
      stdio: ['pipe', 'pipe', 'inherit'],
    })
    const started = new LockChild(child)
    const { result } = await started.#answer()
    if (result !== 'ready') throw new Error(`child said ${result}`)
    return started
  }

  get pid(): number {
    return this.#process.pid!
  }

  async ask(command: string): Promise<Answer> {
    this.#process.stdin!.write(`${command}\n`)
    return this.#answer()
  }

  signal(signal: NodeJS.Signals): void {
    this.#process.kill(signal)
  }

  /** kill -9, and wait until the process is gone. */
  async kill(): Promise<void> {
    if (this.#process.exitCode !== null || this.#process.signalCode !== null) return
    const gone = once(this.#process, 'exit')
    this.#process.kill('SIGKILL')
    await gone
  }

  /** Ends its input and waits for it to leave by itself. */
  async leave(): Promise<void> {
    const gone = once(this.#process, 'exit')
    this.#process.stdin!.end()
    await gone
  }

  async #answer(): Promise<Answer> {
    const { value, done } = await this.#answers.next()
    if (done === true) throw new Error('the child has gone')
    return JSON.parse(value) as Answer
  }
}
