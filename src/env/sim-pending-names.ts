/**
 * What was done to names on a simulated disk and is not durable yet, over all directories, oldest first.
 *
 * Invariant: an operation becomes durable after all that it builds on (earlier ones on the same names), and a rename
 * becomes so on both sides at once. This holds for a completed sync, and for what chance carries over in a crash.
 */
import type { Random } from './random.js'
import { type SimDirectory, type SimNode, setName } from './sim-directory.js'
import type { Unsynced } from './sim-file.js'

/** One name pointing elsewhere than before: to `node`, or to nothing. */
export interface NameChange {
  readonly directory: SimDirectory
  readonly name: string
  readonly node: SimNode | undefined
}

/** What one call did to names, all of it or nothing: a rename is two changes, perhaps in two directories. */
export interface NameOperation {
  readonly changes: readonly NameChange[]
  /** A sync of the directory failed on it: only a sync after some newer change will write the directory again. */
  forgotten: boolean
}

/** One disk's operations, until a sync of their directory has completed. */
export class SimPendingNames {
  #operations: NameOperation[] = []

  add(changes: readonly NameChange[]): void {
    this.#operations.push({ changes, forgotten: false })
  }

  /**
   * The operations that a sync of `directory` makes durable: those in it, and before them whatever they build on
   * (a rename from another directory needs the creation there). A rename is one transaction: the sync of either
   * directory carries both sides.
   */
  coveredBySyncOf(directory: SimDirectory): NameOperation[] {
    const inDirectory = this.#in(directory)
    if (inDirectory.every((operation) => operation.forgotten)) return []
    return this.#withGrounds((operation) => inDirectory.includes(operation))
  }

  /** After a failed sync of `directory`: its changes are still seen, but the next sync has nothing to write for them. */
  forget(directory: SimDirectory): void {
    for (const operation of this.#in(directory)) operation.forgotten = true
  }

  /** The sync has ended: what it covered is durable now. */
  complete(covered: readonly NameOperation[]): void {
    for (const operation of covered) {
      // Another sync may have carried it meanwhile, and later ones on the same name with it.
      if (!this.#operations.includes(operation)) continue
      for (const { directory, name, node } of operation.changes) setName(directory.syncedNames, name, node)
    }
    this.#operations = this.#operations.filter((operation) => !covered.includes(operation))
  }

  /** Makes a name durable, and before it what is pending on that name. */
  settle(directory: SimDirectory, name: string, node: SimNode): void {
    const touches = (change: NameChange): boolean => change.directory === directory && change.name === name
    this.complete(this.#withGrounds(({ changes }) => changes.some(touches)))
    directory.names.set(name, node)
    directory.syncedNames.set(name, node)
  }

  /**
   * Which names a power loss leaves in each directory. For `torn`, each directory with something pending draws how it
   * lost it: as a journaling file system does (a prefix of its operations, in order), or in strict mode (any subset). In
   * both, an operation stays only if none before it on the same names was lost, and a rename stays whole or not at all:
   * so no name is doubled by it, and its target is never without a file.
   */
  afterCrash(unsynced: Unsynced, random: Random): (directory: SimDirectory) => ReadonlyMap<string, SimNode> {
    if (unsynced === 'kept') return (directory) => directory.names
    if (unsynced === 'lost') return (directory) => directory.syncedNames

    const result = new Map<SimDirectory, Map<string, SimNode>>()
    const lost = new NameSet()
    const directoriesCut = new Map<SimDirectory, { readonly strict: boolean; left: number }>()
    for (const operation of this.#operations) {
      for (const { directory } of operation.changes) {
        const cut = directoriesCut.get(directory)
        if (cut !== undefined) continue
        const count = this.#operations.filter(({ changes }) => changes.some((c) => c.directory === directory)).length
        directoriesCut.set(directory, { strict: random.uint32() % 2 === 0, left: random.uint32() % (count + 1) })
      }
    }
    for (const operation of this.#operations) {
      const directories = new Set(operation.changes.map((change) => change.directory))
      let kept = !operation.changes.some((change) => lost.has(change))
      for (const directory of directories) {
        const cut = directoriesCut.get(directory)!
        if (cut.strict) kept = random.uint32() % 2 === 0 && kept
        else if (cut.left-- <= 0) kept = false
      }
      for (const change of operation.changes) {
        if (!kept) {
          lost.add(change)
          // What came after a lost operation is beyond the end of the prefix.
          const cut = directoriesCut.get(change.directory)!
          if (!cut.strict) cut.left = 0
          continue
        }
        let names = result.get(change.directory)
        if (names === undefined) {
          names = new Map(change.directory.syncedNames)
          result.set(change.directory, names)
        }
        setName(names, change.name, change.node)
      }
    }
    return (directory) => result.get(directory) ?? directory.syncedNames
  }

  /** The chosen pending operations and those that they build on: earlier ones on the same names. In order. */
  #withGrounds(chosen: (operation: NameOperation) => boolean): NameOperation[] {
    const wanted = new NameSet()
    const covered: NameOperation[] = []
    for (const operation of [...this.#operations].reverse()) {
      if (!chosen(operation) && !operation.changes.some((change) => wanted.has(change))) continue
      for (const change of operation.changes) wanted.add(change)
      covered.unshift(operation)
    }
    return covered
  }

  #in(directory: SimDirectory): NameOperation[] {
    return this.#operations.filter(({ changes }) => changes.some((change) => change.directory === directory))
  }
}

/** A set of (directory, name). */
class NameSet {
  readonly #names = new Map<SimDirectory, Set<string>>()

  add({ directory, name }: NameChange): void {
    const names = this.#names.get(directory)
    if (names === undefined) this.#names.set(directory, new Set([name]))
    else names.add(name)
  }

  has({ directory, name }: NameChange): boolean {
    return this.#names.get(directory)?.has(name) === true
  }
}
