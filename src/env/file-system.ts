/**
 * The files Holdfast lives on, as one contract with two implementations: the real disk (`node-file-system.ts`)
 * and the simulated one (`sim-file-system.ts`) that can lose, tear and refuse.
 *
 * Calls that only move bytes between us and the kernel are synchronous: a cached page costs 2 µs that way and 12 µs
 * through the thread pool. Calls that wait for the device (`sync`, `syncDirectory`) are asynchronous, so that nothing
 * stalls while they run. Every method throws Node-style errors (`code`: 'ENOENT', 'ENOSPC', 'EIO', 'EMFILE' …).
 */
export interface FileHandle {
  readonly path: string
  /**
   * Writes at an absolute position and returns the bytes written. Fewer than asked means that a failure follows
   * (libuv hides the error behind a short count): callers treat it as "disk full".
   */
  write(bytes: Uint8Array, position: number): number
  /** Reads into `into`; returns the bytes read, 0 at the end of the file, fewer than asked only at the end. */
  read(into: Uint8Array, position: number): number
  /** Current length in bytes. */
  size(): number
  /** Cuts (or zero-extends) the file. Not durable before the next `sync`. */
  truncate(length: number): void
  /** fdatasync: covers every write that had returned when this was called. The name needs `syncDirectory`. */
  sync(): Promise<void>
  /** Blocking form, for recovery and closing, where nothing else may run meanwhile. */
  syncNow(): void
  close(): void
}

/** `read`: must exist, read only. `edit`: must exist, read and write. `create`: read and write, made empty if it exists. */
export type OpenMode = 'read' | 'edit' | 'create'

export interface FileSystem {
  open(path: string, mode: OpenMode): FileHandle
  /** Whole file. Throws ENOENT when it is not there. */
  readFile(path: string): Buffer
  /** Names in a directory, sorted. Throws ENOENT when the directory is not there. */
  readDirectory(path: string): string[]
  exists(path: string): boolean
  /** Makes the directory and its missing parents; no error if it is there. */
  makeDirectory(path: string): void
  /** Atomic over an existing name for readers; durable only after `syncDirectory` of the parent. */
  rename(from: string, to: string): void
  unlink(path: string): void
  /** unlink beside the running work: giving a large file's space back takes tens of milliseconds. */
  remove(path: string): Promise<void>
  removeDirectory(path: string): void
  /** fsync of a directory: makes the names in it (created, renamed, unlinked, made) durable. */
  syncDirectory(path: string): Promise<void>
  syncDirectoryNow(path: string): void
}
