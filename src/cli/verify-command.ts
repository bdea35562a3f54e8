/** `holdfast verify`: prints what reading a whole job directory found. */

import { verifyDirectory } from '../engine/verify.js'
import { nodeEnv } from '../env/node-env.js'
import type { CliIo } from './cli-io.js'
import { EXIT_DAMAGED, EXIT_OK } from './exit-codes.js'
import { formatReport } from './verify-report.js'

export async function verifyCommand(directory: string, flags: { readonly json?: boolean }, io: CliIo): Promise<number> {
  const report = await verifyDirectory(directory, nodeEnv)
  if (flags.json === true) io.stdout.write(`${JSON.stringify(report)}\n`)
  else io.stderr.write(formatReport(directory, report))
  return report.ok ? EXIT_OK : EXIT_DAMAGED
}
