/**
 * The command line: names, help, and what becomes of errors. Each command is loaded when it is called, so that `--help`
 * is quick and a crawl does not wait for what only `repair` needs.
 */
import { readFileSync } from 'node:fs'
import { Command, CommanderError } from 'commander'
import { HoldfastError } from '../errors.js'
import type { CliIo } from './cli-io.js'
import { crawlOptions } from './crawl-options.js'
import { EXIT_OK, EXIT_USAGE, exitCodeOf } from './exit-codes.js'

/** Runs one command line and returns its exit code. Never throws. */
export async function runProgram(args: readonly string[], io: CliIo): Promise<number> {
  let exitCode = EXIT_OK
  const program = buildProgram(io, (code) => {
    exitCode = code
  })
  try {
    await program.parseAsync(args, { from: 'user' })
    return exitCode
  } catch (error) {
    // Commander has printed it already; help and version come this way as well.
    if (error instanceof CommanderError) {
      const asked = error.code === 'commander.helpDisplayed' || error.code === 'commander.version'
      return asked ? EXIT_OK : EXIT_USAGE
    }
    io.stderr.write(`holdfast: ${describe(error)}\n`)
    return exitCodeOf(error)
  }
}

function buildProgram(io: CliIo, done: (exitCode: number) => void): Command {
  const program = new Command('holdfast')
    .description('A crawl that survives being killed: run the same line again and it goes on.')
    .version(packageVersion())
    .showHelpAfterError('(holdfast --help says more)')
    .exitOverride()
    .configureOutput({
      writeOut: (text) => void io.stdout.write(text),
      writeErr: (text) => void io.stderr.write(text),
    })
    .addHelpText('after', EXAMPLES)

  crawlOptions(program.command('crawl')).action(async (urls: string[], flags: Record<string, unknown>, command) => {
    const { crawlCommand } = await import('./crawl-command.js')
    done(await crawlCommand(urls, flags, io, command, packageVersion()))
  })

  program
    .command('verify')
    .description('Reads everything in a job directory and says what is damaged. Changes nothing.')
    .argument('<dir>', 'job directory')
    .option('--json', 'print the report as one JSON document')
    .addHelpText('after', '\nExit code: 0 sound, 4 damaged, 2 no job there.')
    .action(async (directory: string, flags: { json?: boolean }) => {
      const { verifyCommand } = await import('./verify-command.js')
      done(await verifyCommand(directory, flags, io))
    })

  program
    .command('repair')
    .description('Saves what can be read of a damaged job into a new directory. The damaged one is left as it is.')
    .argument('<dir>', 'damaged job directory')
    .argument('<new>', 'directory to make')
    .option('--json', 'print the report as one JSON document')
    .action(async (directory: string, newDirectory: string, flags: { json?: boolean }) => {
      const { repairCommand } = await import('./repair-command.js')
      done(await repairCommand(directory, newDirectory, flags, io))
    })
  return program
}

const EXAMPLES = `
Examples:
  holdfast crawl https://example.org/ --job ./example      crawl one site into ./example/pages.ndjson
  (the same line again)                                    go on after a stop, a kill or a power cut
  holdfast crawl https://example.org/docs/ --job ./docs --scope prefix --delay 500
  holdfast verify ./example                                is everything there?

Exit codes: 0 fine, 1 the work failed, 2 usage, 3 the job is in use, 4 the job is damaged, 130 and 143 stopped.`

function describe(error: unknown): string {
  if (error instanceof HoldfastError) {
    const { code, message } = error as HoldfastError
    return code === 'HOLDFAST_DISK_FULL' ? `${message}. Make room and run the same command again.` : message
  }
  // A bug: whoever reports it needs to say where.
  return error instanceof Error ? (error.stack ?? error.message) : String(error)
}

let version: string | undefined

export function packageVersion(): string {
  version ??= (JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8')) as { version: string })
    .version
  return version
}
