#!/usr/bin/env node
/** The binary: hands the process to the program. Invariant: a reader that went away (EPIPE) is no error of ours. */
import { processIo } from './cli-io.js'
import { runProgram } from './program.js'

for (const stream of [process.stdout, process.stderr]) {
  stream.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code !== 'EPIPE') throw error
  })
}

process.exitCode = await runProgram(process.argv.slice(2), processIo)
