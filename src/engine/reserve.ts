/**
 * A file of zeros that is given up when the disk is full, so that finishing work needs no room it cannot get. It holds
 * nothing: losing it loses nothing, and it is made again when there is room.
 */
import type { FileSystem } from '../env/file-system.js'
import { writeFully } from '../store/json-file.js'
import { removeIfThere } from '../store/segment-set.js'

export class Reserve {
  private readonly files: FileSystem
  private readonly path: string
  private readonly bytes: number
  held = false

  constructor(files: FileSystem, path: string, bytes: number) {
    this.files = files
    this.path = path
    this.bytes = bytes
  }

  /** Makes the file if it is not whole. A disk that is full already gives none: not an error. */
  hold(): void {
    if (this.held || this.bytes === 0) return
    try {
      if (this.files.exists(this.path)) {
        const handle = this.files.open(this.path, 'read')
        const whole = handle.size() === this.bytes
        handle.close()
        if (whole) {
          this.held = true
          return
        }
      }
      const handle = this.files.open(this.path, 'create')
      try {
        writeFully(handle, Buffer.alloc(this.bytes), 0)
      } finally {
        handle.close()
      }
      this.held = true
    } catch {
      removeIfThere(this.files, this.path)
    }
  }

  /** True when there was something to give up. */
  giveUp(): boolean {
    if (!this.held) return false
    this.held = false
    return removeIfThere(this.files, this.path)
  }
}
