/**
 * The tree of names on a simulated disk: directories, what their names point to, and how a path is followed to it.
 *
 * Invariant: `names` is what the running process sees and `syncedNames` what a power loss leaves, each complete in
 * itself. Both point to the same nodes, so a file that is renamed keeps its bytes and its handles in either.
 */
import { posix } from 'node:path'
import { simError } from './sim-faults.js'
import type { SimFile } from './sim-file.js'

export class SimDirectory {
  readonly kind = 'directory'
  readonly names = new Map<string, SimNode>()
  readonly syncedNames = new Map<string, SimNode>()
}

export type SimNode = SimFile | SimDirectory

/** Follows paths through the written names, and refuses them in the words of a real file system. */
export class SimTree {
  readonly root = new SimDirectory()

  lookUp(path: string): SimNode | undefined {
    let node: SimNode | undefined = this.root
    for (const name of absolute(path).split('/')) {
      if (name === '') continue
      if (node?.kind !== 'directory') return undefined
      node = node.names.get(name)
    }
    return node
  }

  file(path: string, call: string): SimFile {
    const { directory, name, full } = this.parent(path, call)
    const found = directory?.names.get(name)
    if (directory === undefined || found?.kind === 'directory') throw simError('EISDIR', call, full)
    if (found === undefined) throw simError('ENOENT', call, full)
    return found
  }

  directory(path: string, call: string): SimDirectory {
    const node = this.lookUp(path)
    if (node === undefined) throw simError('ENOENT', call, absolute(path))
    if (node.kind === 'file') throw simError('ENOTDIR', call, absolute(path))
    return node
  }

  /** The directory that holds, or would hold, the last name of `path`. The root itself is in none. */
  parent(path: string, call: string): { directory: SimDirectory | undefined; name: string; full: string } {
    const full = absolute(path)
    const directory = full === '/' ? undefined : this.directory(posix.dirname(full), call)
    return { directory, name: posix.basename(full), full }
  }

  /** Paths of all files, sorted. */
  allFiles(): string[] {
    const paths: string[] = []
    const walk = (directory: SimDirectory, path: string): void => {
      for (const [name, node] of directory.names) {
        if (node.kind === 'file') paths.push(`${path}/${name}`)
        else walk(node, `${path}/${name}`)
      }
    }
    walk(this.root, '')
    return paths.sort()
  }
}

export function setName(names: Map<string, SimNode>, name: string, node: SimNode | undefined): void {
  if (node === undefined) names.delete(name)
  else names.set(name, node)
}

export const absolute = (path: string): string => posix.resolve('/', path)
