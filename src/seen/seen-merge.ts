/**
 * Which runs a checkpoint merges, and the merge itself.
 *
 * Runs have an age (their number) and a level (by size: each level holds runs up to `growth` times larger than the one
 * below). Invariants: levels never fall from newest to oldest, so a merge takes the newest runs there were when it began and
 * its output takes their place; what is newer wins; once every merge that is due was done, the last level is one run and any
 * other has fewer than `growth`. A tombstone is dropped when nothing older is left that it could hide.
 */
import { assert } from '../assert.js'
import { KEYS_PER_PAGE, PAGE_BYTES, type SeenRunInfo } from './seen-format.js'
import { compareKeys, copyKey, KEY, KEY_WORDS, type KeyState, sameKey, TOMBSTONE } from './seen-key.js'
import { PAGE_WORDS, type RunPages } from './seen-run-pages.js'
import { STEP_KEYS, type Steps } from './seen-slices.js'
import type { SortedEntries } from './seen-sort.js'

export interface LevelShape {
  /** Runs of a level before they become one of the next; also how much larger the next is. */
  readonly levelGrowth: number
  /** Entries up to which a run is of level 0. */
  readonly levelBaseKeys: number
}

export interface MergePlan {
  /** How many of the newest runs go into the new one. */
  readonly merged: number
  readonly level: number
  /** At least as many entries as the new run can get. */
  readonly entriesMax: number
}

/** The level of a run of so many entries. */
export function levelOf(entries: number, shape: LevelShape): number {
  let level = 0
  for (let most = shape.levelBaseKeys; entries > most; most *= shape.levelGrowth) level++
  return level
}

export const entriesOf = (run: SeenRunInfo): number => run.keys + run.tombstones

/**
 * What to do with `entries` new ones. The whole cascade (a full level makes the next one full) is decided beforehand, so
 * that each merged run is read once and the output is written once. `isWhole`: there are no older runs than these; `must`:
 * the runs up to and with this many have to be in it, whatever their levels.
 */
export function planMerge(
  entries: number,
  runs: readonly SeenRunInfo[],
  shape: LevelShape,
  isWhole = true,
  must = 0,
): MergePlan {
  let merged = 0
  let total = entries
  let level = levelOf(total, shape)
  const take = (): void => {
    total += entriesOf(runs[merged])
    merged++
    level = Math.max(level, levelOf(total, shape))
  }
  while (merged < must) take()
  for (;;) {
    // Smaller but older runs have to be in it: age and level go together.
    while (merged < runs.length && runs[merged].level < level) take()
    let peers = 0
    while (merged + peers < runs.length && runs[merged + peers].level === level) peers++
    const isLast = isWhole && merged + peers === runs.length
    const isFull = peers + 1 >= shape.levelGrowth
    if (peers === 0 || !(isLast || isFull)) return { merged, level, entriesMax: total }
    for (; peers > 0; peers--) take()
  }
}

/** Entries in ascending order. `words[0..3]` is the current key; `advance` says whether there was another. */
export interface MergeSource {
  readonly words: Uint32Array
  state: KeyState
  advance(): boolean
}

export class TableSource implements MergeSource {
  readonly words = new Uint32Array(KEY_WORDS)
  state: KeyState = KEY
  private readonly entries: SortedEntries
  private next = 0

  constructor(entries: SortedEntries) {
    this.entries = entries
  }

  advance(): boolean {
    const { count, order, words, states } = this.entries
    if (this.next === count) return false
    const position = order[this.next++]
    copyKey(this.words, 0, words, position * KEY_WORDS)
    this.state = states[position] as KeyState
    return true
  }
}

/** Pages read at once: few calls, yet no read long enough to be felt. */
const READ_PAGES = 16
/** What a run takes in memory while it is merged. */
export const sourceBytes = ({ keys, tombstones }: SeenRunInfo): number =>
  (Math.min(READ_PAGES, pagesOf(keys)) + Math.min(READ_PAGES, pagesOf(tombstones))) * PAGE_BYTES

const pagesOf = (keys: number): number => Math.ceil(keys / KEYS_PER_PAGE)

/** The keys or the tombstones of one run, read straight from the disk past the page cache. */
export class RunSource implements MergeSource {
  readonly words = new Uint32Array(KEY_WORDS)
  readonly state: KeyState
  private readonly run: RunPages
  private readonly buffer: Buffer
  private readonly bufferWords: Uint32Array
  private nextPage: number
  private readonly endPage: number
  /** Page of the current key; keys of it that were given; where it lies in the buffer, in words. */
  private page = -1
  private given = 0
  private keysInPage = 0
  private at = 0
  private bufferEnd = 0

  constructor(run: RunPages, state: typeof KEY | typeof TOMBSTONE) {
    this.run = run
    this.state = state
    this.nextPage = state === KEY ? 0 : run.keyPages
    this.endPage = state === KEY ? run.keyPages : run.keyPages + run.tombstonePages
    this.buffer = Buffer.alloc(Math.min(READ_PAGES, this.endPage - this.nextPage) * PAGE_BYTES)
    this.bufferWords = new Uint32Array(this.buffer.buffer, this.buffer.byteOffset, this.buffer.length / 4)
  }

  get currentPage(): number {
    return this.page
  }

  get isFirstOfPage(): boolean {
    return this.given === 1
  }

  advance(): boolean {
    if (this.given === this.keysInPage && !this.turnPage()) return false
    copyKey(this.words, 0, this.bufferWords, this.at + this.given * KEY_WORDS)
    this.given++
    return true
  }

  private turnPage(): boolean {
    if (this.nextPage === this.endPage) return false
    this.at += PAGE_WORDS
    if (this.at >= this.bufferEnd) {
      const count = Math.min(READ_PAGES, this.endPage - this.nextPage)
      this.run.readPages(this.buffer, this.nextPage, count)
      this.at = 0
      this.bufferEnd = count * PAGE_WORDS
    }
    this.page = this.nextPage++
    this.keysInPage = this.run.keysInPage(this.page)
    this.given = 0
    return true
  }
}

export function runSources(runs: readonly RunPages[]): MergeSource[] {
  return runs.flatMap((run) => [
    ...(run.keyPages > 0 ? [new RunSource(run, KEY)] : []),
    ...(run.tombstonePages > 0 ? [new RunSource(run, TOMBSTONE)] : []),
  ])
}

/** Several sources as one, without repeats: of equal keys the source that comes first (the newest) is heard. */
export class Merger {
  readonly words = new Uint32Array(KEY_WORDS)
  state: KeyState = KEY
  /** Those that have a current key, newest first. */
  private readonly sources: MergeSource[] = []

  constructor(newestFirst: readonly MergeSource[]) {
    for (const source of newestFirst) if (source.advance()) this.sources.push(source)
  }

  advance(): boolean {
    const { sources, words } = this
    if (sources.length === 0) return false
    let lowest = sources[0]
    for (let i = 1; i < sources.length; i++) {
      if (compareKeys(sources[i].words, 0, lowest.words, 0) < 0) lowest = sources[i]
    }
    copyKey(words, 0, lowest.words, 0)
    this.state = lowest.state
    // Everyone who has this key steps on. From behind, as one that has ended leaves the list.
    for (let i = sources.length - 1; i >= 0; i--) {
      if (sameKey(sources[i].words, 0, words, 0) && !sources[i].advance()) sources.splice(i, 1)
    }
    return true
  }
}

/** Who takes the merged entries: `SeenRunWriter`. */
export interface EntrySink {
  append(words: Uint32Array, at: number, state: number): void
}

/** Feeds the writer. `dropTombstones`: the output will be the oldest run. */
export function* mergeInto(merger: Merger, writer: EntrySink, dropTombstones: boolean): Steps<void> {
  let count = 0
  while (merger.advance()) {
    if (++count % STEP_KEYS === 0) yield
    if (merger.state === TOMBSTONE && dropTombstones) continue
    assert(merger.state !== 0, 'a source gives entries')
    writer.append(merger.words, 0, merger.state)
  }
}
