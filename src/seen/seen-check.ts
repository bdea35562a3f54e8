/** The full check of one run: every page, every key in order, every fence and filter agreeing with the keys. */
import { assert } from '../assert.js'
import { HoldfastError } from '../errors.js'
import { corrupt } from '../store/format.js'
import { fuseMayHold } from './binary-fuse.js'
import { compareKeys, hashHigh, hashLow, KEY, KEY_WORDS, newProbe, probeWords, TOMBSTONE } from './seen-key.js'
import { RunSource } from './seen-merge.js'
import { pageOffset } from './seen-run-pages.js'
import type { SeenRunReader } from './seen-run-reader.js'

/** Throws HOLDFAST_CORRUPT at the first thing that is not as it should be. Reads the whole file. */
export function checkRunPages(run: SeenRunReader): void {
  const keys = new CheckedSource(run, KEY)
  const tombstones = new CheckedSource(run, TOMBSTONE)
  const filters = new FilterCheck(run)
  let key = keys.advance()
  let tombstone = tombstones.advance()
  while (key || tombstone) {
    const order = !tombstone ? -1 : !key ? 1 : compareKeys(keys.words, 0, tombstones.words, 0)
    if (order === 0) throw corrupt(run.path, 'a key is also a tombstone', tombstones.pageOffset)
    const source = order < 0 ? keys : tombstones
    filters.see(source.words, source.pageOffset)
    if (order < 0) key = keys.advance()
    else tombstone = tombstones.advance()
  }
  filters.end()
}

/** One run's keys or tombstones, each compared with the one before and, at the start of a page, with the fence. */
class CheckedSource {
  readonly words: Uint32Array
  private readonly run: SeenRunReader
  private readonly source: RunSource
  private readonly before = new Uint32Array(KEY_WORDS)
  private count = 0

  constructor(run: SeenRunReader, state: typeof KEY | typeof TOMBSTONE) {
    this.run = run
    this.source = new RunSource(run, state)
    this.words = this.source.words
  }

  get pageOffset(): number {
    return pageOffset(this.source.currentPage)
  }

  advance(): boolean {
    this.before.set(this.words)
    if (!this.source.advance()) return false
    if (this.count++ > 0 && compareKeys(this.before, 0, this.words, 0) >= 0) {
      throw corrupt(this.run.path, 'keys out of order', this.pageOffset)
    }
    if (this.source.isFirstOfPage) {
      const fence = this.source.currentPage * KEY_WORDS
      if (compareKeys(this.words, 0, this.run.fences, fence) !== 0) {
        throw corrupt(this.run.path, 'the first key of a page is not its fence', this.pageOffset)
      }
    }
    return true
  }
}

/** Each key must pass the filter it falls to, and each filter must have been built from as many as fall to it. */
class FilterCheck {
  private readonly run: SeenRunReader
  private readonly probe = newProbe()
  private index = -1
  private entries = 0
  private fingerprints: Uint8Array = new Uint8Array(0)

  constructor(run: SeenRunReader) {
    this.run = run
    this.assertGood()
    assert(run.filters.count > 0, 'a run has entries, so it has a filter')
  }

  see(words: Uint32Array, offset: number): void {
    const { filters, path } = this.run
    const next = this.index + 1
    if (next === 0 || (next < filters.count && compareKeys(words, 0, filters.firstWords, next * KEY_WORDS) >= 0)) {
      this.turnTo(next)
      if (compareKeys(words, 0, filters.firstWords, next * KEY_WORDS) !== 0) {
        throw corrupt(path, `filter ${next} does not begin at its first key`, offset)
      }
    }
    this.entries++
    probeWords(this.probe, words, 0)
    const shape = filters.shapeOf(this.index)
    if (shape.length === 0) return
    if (fuseMayHold(shape, this.fingerprints, hashHigh(this.probe), hashLow(this.probe))) return
    throw corrupt(path, `filter ${this.index} denies a key of its run`, offset)
  }

  end(): void {
    const { filters, path } = this.run
    const { entries } = filters.shapeOf(this.index)
    if (this.entries === entries) return
    const message = `${path}: filter ${this.index} is of ${entries} keys, ${this.entries} fall to it`
    throw new HoldfastError('HOLDFAST_CORRUPT', message, { path })
  }

  private turnTo(index: number): void {
    if (index > 0) this.end()
    this.index = index
    this.entries = 0
    this.fingerprints = this.run.filters.read(index) ?? this.fingerprints
    this.assertGood()
  }

  /** The run can do without them, but that it has to is damage. */
  private assertGood(): void {
    const { damage } = this.run.filters
    if (damage !== undefined) throw corrupt(this.run.path, damage.message, damage.offset)
  }
}
