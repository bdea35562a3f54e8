/** `holdfast repair`: saves what can be read of a damaged job into a new directory. */

import { repairDirectory } from '../engine/repair.js'
import { nodeEnv } from '../env/node-env.js'
import type { CliIo } from './cli-io.js'
import { EXIT_OK } from './exit-codes.js'

export async function repairCommand(
  directory: string,
  newDirectory: string,
  flags: { readonly json?: boolean },
  io: CliIo,
): Promise<number> {
  const report: object = await repairDirectory(directory, newDirectory, nodeEnv)
  if (flags.json === true) io.stdout.write(`${JSON.stringify(report)}\n`)
  else {
    for (const [name, value] of Object.entries(report)) io.stderr.write(`${name}: ${JSON.stringify(value)}\n`)
    io.stderr.write(`saved into ${newDirectory}; ${directory} was left as it is.\n`)
  }
  return EXIT_OK
}
