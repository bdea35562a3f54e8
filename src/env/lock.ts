/** The lock on a job directory, as a contract: one writer, proven each time before bytes are written. */
export interface DirectoryLock {
  /**
   * Throws HOLDFAST_LOCK_LOST when another process owns the directory now. Cheap enough to be asked before every
   * write: it looks at the disk only when the last look is older than `LOCK_VERIFY_MS`.
   */
  assertOwned(): void
  /** Gives the lock back; harmless when it was lost. */
  release(): Promise<void>
}

export interface LockService {
  /** Takes the lock or throws HOLDFAST_LOCKED naming the live owner. `onLost` is called at most once. */
  acquire(directory: string, onLost: (reason: string) => void): Promise<DirectoryLock>
}
