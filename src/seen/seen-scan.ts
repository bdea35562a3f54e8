/** All keys of a seen-set in ascending order: the merged view of tables and runs, for checks and tools. */
import { KEY, KEY_BYTES, KEY_WORDS, writeWord } from './seen-key.js'
import { Merger, runSources, TableSource } from './seen-merge.js'
import type { RunPages } from './seen-run-pages.js'
import { runAtOnce } from './seen-slices.js'
import { sortTable } from './seen-sort.js'
import type { SeenTable } from './seen-table.js'

/** Tables and runs newest first; the newest word on a key counts. */
export function countKeys(tables: readonly SeenTable[], runs: readonly RunPages[]): number {
  let count = 0
  for (const merger = mergerOf(tables, runs); merger.advance(); ) if (merger.state === KEY) count++
  return count
}

export function* allKeys(tables: readonly SeenTable[], runs: readonly RunPages[]): Generator<Uint8Array, void, void> {
  for (const merger = mergerOf(tables, runs); merger.advance(); ) {
    if (merger.state !== KEY) continue
    const key = new Uint8Array(KEY_BYTES)
    for (let i = 0; i < KEY_WORDS; i++) writeWord(key, i * 4, merger.words[i])
    yield key
  }
}

function mergerOf(tables: readonly SeenTable[], runs: readonly RunPages[]): Merger {
  const sources = tables.map((table) => new TableSource(runAtOnce(sortTable(table))))
  return new Merger([...sources, ...runSources(runs)])
}
