/** The process as the commands see it: one object, so that a test can run a command and read what it printed. */
export interface CliIo {
  /** Data. */
  readonly stdout: TextOut
  /** Words for people. */
  readonly stderr: TextOut & { readonly isTTY?: boolean; readonly columns?: number }
  readonly environment: Record<string, string | undefined>
  /** Calls `handler` on SIGINT and SIGTERM until the result is called. */
  onStopSignal(handler: (signal: StopSignal) => void): () => void
  /** Ends the process at once, whatever still runs. */
  exit(code: number): void
  /** ms since the process began. */
  uptimeMs(): number
}

export interface TextOut {
  write(text: string): unknown
}

export type StopSignal = 'SIGINT' | 'SIGTERM'

export const processIo: CliIo = {
  stdout: process.stdout,
  stderr: process.stderr,
  environment: process.env,
  onStopSignal(handler) {
    const onInterrupt = (): void => handler('SIGINT')
    const onTerminate = (): void => handler('SIGTERM')
    process.on('SIGINT', onInterrupt)
    process.on('SIGTERM', onTerminate)
    return () => {
      process.off('SIGINT', onInterrupt)
      process.off('SIGTERM', onTerminate)
    }
  },
  exit: (code) => process.exit(code),
  // Not process.uptime(), which begins later: this counts from the start of the process.
  uptimeMs: () => performance.now(),
}
