/**
 * What the world can do to us, as one error class with a stable `code`. Messages say what was found, what was
 * expected and where, and may change; codes may not. A caller's mistake is a plain `TypeError`.
 */
export type HoldfastErrorCode =
  /** Another live process owns the directory. */
  | 'HOLDFAST_LOCKED'
  /** This process owned the directory and lost it: it must not write another byte. */
  | 'HOLDFAST_LOCK_LOST'
  /** Bytes that had been promised are damaged or missing. */
  | 'HOLDFAST_CORRUPT'
  /** Written by a newer version. Nothing was changed. */
  | 'HOLDFAST_UNSUPPORTED_FORMAT'
  /** No room. The call had no effect; it works again once there is room. */
  | 'HOLDFAST_DISK_FULL'
  /** The operating system refused: I/O error, permission, read-only file system, too many open files. */
  | 'HOLDFAST_IO'
  /** The lease behind this job is over (expired, settled, or from before a restart). */
  | 'HOLDFAST_STALE_LEASE'
  /** The payload holds something that cannot be written to disk, and `memoryFallback` is off. */
  | 'HOLDFAST_UNSERIALIZABLE'
  /** One job is larger than the limit. */
  | 'HOLDFAST_TOO_LARGE'
  /** The directory exists, but not with these options (order of a bucket, kind of store …). */
  | 'HOLDFAST_MISMATCH'
  /** There is no job in the directory, and this call does not make one. */
  | 'HOLDFAST_NOT_FOUND'
  /** The queue or frontier was closed. */
  | 'HOLDFAST_CLOSED'

export interface HoldfastErrorFields {
  readonly cause?: unknown
  /** File or directory the error is about. */
  readonly path?: string
  /** Byte offset in that file. */
  readonly offset?: number
  /** The live owner, for HOLDFAST_LOCKED. */
  readonly owner?: { readonly pid: number; readonly host: string }
  /** The field that cannot be serialised, for HOLDFAST_UNSERIALIZABLE. */
  readonly field?: string
}

const BRAND = Symbol.for('holdfast.error')

export class HoldfastError extends Error {
  readonly code: HoldfastErrorCode
  declare readonly path?: string
  declare readonly offset?: number
  declare readonly owner?: { readonly pid: number; readonly host: string }
  declare readonly field?: string

  constructor(code: HoldfastErrorCode, message: string, fields: HoldfastErrorFields = {}) {
    super(message, fields.cause === undefined ? undefined : { cause: fields.cause })
    this.name = 'HoldfastError'
    this.code = code
    if (fields.path !== undefined) this.path = fields.path
    if (fields.offset !== undefined) this.offset = fields.offset
    if (fields.owner !== undefined) this.owner = fields.owner
    if (fields.field !== undefined) this.field = fields.field
  }

  get [BRAND](): true {
    return true
  }

  /** Survives two copies of the package in one process, unlike a plain prototype check. */
  static override [Symbol.hasInstance](value: unknown): boolean {
    return typeof value === 'object' && value !== null && BRAND in value
  }

  toJSON(): Record<string, unknown> {
    const { name, code, message, path, offset, owner, field } = this
    return { name, code, message, path, offset, owner, field }
  }
}

/** The `code` of a Node-style error, or undefined. */
export function errorCode(error: unknown): string | undefined {
  return typeof error === 'object' && error !== null && 'code' in error && typeof error.code === 'string'
    ? error.code
    : undefined
}

/** Wraps what the operating system threw, naming what we were doing and where. Passes our own errors through. */
export function ioError(doing: string, path: string, cause: unknown): HoldfastError {
  if (cause instanceof HoldfastError) return cause as HoldfastError
  const code = errorCode(cause) ?? 'unknown error'
  const full = code === 'ENOSPC' || code === 'EDQUOT' || code === 'EFBIG'
  const hint =
    code === 'EMFILE' || code === 'ENFILE'
      ? ': too many open files'
      : code === 'EROFS'
        ? ': read-only file system'
        : code === 'EACCES' || code === 'EPERM'
          ? ': permission denied'
          : full
            ? ': no room'
            : ''
  return new HoldfastError(full ? 'HOLDFAST_DISK_FULL' : 'HOLDFAST_IO', `${doing} ${path}: ${code}${hint}`, {
    cause,
    path,
  })
}
