/**
 * A process of its own that takes locks on request. Reads one command per line, answers each with one line of JSON:
 * `acquire DIR`, `assert`, `release`. The compiled lock is named by the first argument. Comes to its end with its standard input,
 * if nothing else keeps it alive.
 */
import { createInterface } from 'node:readline'

const { nodeLocks } = await import(process.argv[2])
let lock
let lostBecause

const commands = {
  async acquire(directory) {
    lock = await nodeLocks.acquire(directory, (reason) => {
      lostBecause = reason
    })
    return 'held'
  },
  async assert() {
    lock.assertOwned()
    return 'owned'
  },
  async release() {
    await lock.release()
    return 'released'
  },
}

const answer = (value) => process.stdout.write(`${JSON.stringify(value)}\n`)

answer({ result: 'ready' })
for await (const line of createInterface({ input: process.stdin })) {
  const [command, argument] = line.split(' ')
  try {
    answer({ result: await commands[command](argument), lostBecause })
  } catch (error) {
    answer({
      result: error.code ?? String(error),
      owner: error.owner,
      path: error.path,
      message: error.message,
      lostBecause,
    })
  }
}
