/** A process for the commands to run in: what they print is kept, and signals come when a test says so. */
import type { CliIo, StopSignal } from '../../src/cli/cli-io.js'

export interface TestIo extends CliIo {
  readonly out: string
  readonly err: string
  /** Codes given to `exit`, which does not end anything here. */
  readonly exits: number[]
  signal(signal: StopSignal): void
  listeners(): number
}

export function testIo(
  options: { readonly isTTY?: boolean; readonly environment?: Record<string, string> } = {},
): TestIo {
  const handlers = new Set<(signal: StopSignal) => void>()
  const written = { out: '', err: '' }
  const exits: number[] = []
  return {
    get out() {
      return written.out
    },
    get err() {
      return written.err
    },
    exits,
    stdout: {
      write: (text) => {
        written.out += text
      },
    },
    stderr: {
      ...(options.isTTY === undefined ? {} : { isTTY: options.isTTY }),
      columns: 80,
      write: (text) => {
        written.err += text
      },
    },
    environment: options.environment ?? {},
    onStopSignal(handler) {
      handlers.add(handler)
      return () => handlers.delete(handler)
    },
    exit: (code) => exits.push(code),
    uptimeMs: () => performance.now(),
    signal(signal) {
      for (const handler of handlers) handler(signal)
    },
    listeners: () => handlers.size,
  }
}
