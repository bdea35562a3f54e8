/**
 * The run file of format 1, byte for byte. The bytes lie in the repository and are never changed: a newer format gets a file
 * of its own beside it, and this one stays readable. Made once with HOLDFAST_UPDATE_FIXTURES=1.
 */
import { readFileSync, writeFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { seededRandom } from '../../src/env/random.js'
import { runName } from '../../src/seen/seen-format.js'
import { KEY, newProbe, probeBytes, TOMBSTONE } from '../../src/seen/seen-key.js'
import { RunSource } from '../../src/seen/seen-merge.js'
import { SeenRunWriter } from '../../src/seen/seen-run-writer.js'
import { type SeenRunInfo, SeenSet } from '../../src/seen/seen-set.js'
import { runAtOnce } from '../../src/seen/seen-slices.js'
import { DIRECTORY, world } from './seen-support.js'

const FIXTURE = new URL('../../fixtures/formats/v1/seen-run', import.meta.url)
const binPath = `${FIXTURE.pathname}.bin`
const jsonPath = `${FIXTURE.pathname}.json`

/** What the file means. */
interface Meaning {
  readonly jobId: string
  readonly number: number
  readonly salt: number
  readonly level: number
  readonly filterKeysMax: number
  readonly info: SeenRunInfo
  /** Hex, ascending. */
  readonly keys: readonly string[]
  readonly tombstones: readonly string[]
}

/** 300 keys: spread ones, a row of counters beginning with all zeros, and all ones; five tombstones among them. */
function sample(): Omit<Meaning, 'info'> {
  const random = seededRandom(2024)
  const jobId = random.bytes(16).toString('hex')
  const salt = random.uint32()
  const all = new Set<string>(['f'.repeat(32)])
  for (let n = 0; n < 20; n++) all.add(n.toString(16).padStart(32, '0'))
  while (all.size < 305) all.add(random.bytes(16).toString('hex'))
  const ascending = [...all].sort()
  const isTombstone = (_: string, i: number): boolean => i % 61 === 60
  return {
    jobId,
    number: 7,
    salt,
    level: 2,
    filterKeysMax: 200,
    keys: ascending.filter((key, i) => !isTombstone(key, i)),
    tombstones: ascending.filter(isTombstone),
  }
}

function encode(meaning: Omit<Meaning, 'info'>): { bytes: Buffer; info: SeenRunInfo } {
  const { files } = world(1)
  files.makeDirectory(DIRECTORY)
  const path = `${DIRECTORY}/${runName(meaning.number)}`
  const writer = new SeenRunWriter({
    files,
    path,
    jobId: Buffer.from(meaning.jobId, 'hex'),
    number: meaning.number,
    salt: meaning.salt,
    level: meaning.level,
    filterKeysMax: meaning.filterKeysMax,
    entriesMax: meaning.keys.length + meaning.tombstones.length,
  })
  const entries = [
    ...meaning.keys.map((key) => ({ key, state: KEY })),
    ...meaning.tombstones.map((key) => ({ key, state: TOMBSTONE })),
  ].sort((a, b) => (a.key < b.key ? -1 : 1))
  const probe = newProbe()
  for (const { key, state } of entries) {
    probeBytes(probe, Buffer.from(key, 'hex'), 0)
    writer.append(probe, 0, state)
  }
  const { info } = runAtOnce(writer.finish())
  writer.close()
  return { bytes: files.contents(path), info }
}

if (process.env['HOLDFAST_UPDATE_FIXTURES'] === '1') {
  const meaning = sample()
  const { bytes, info } = encode(meaning)
  writeFileSync(binPath, bytes)
  writeFileSync(jsonPath, `${JSON.stringify({ ...meaning, info }, null, 2)}\n`)
}

describe('run file, format 1', () => {
  const bytes = readFileSync(binPath)
  const meaning = JSON.parse(readFileSync(jsonPath, 'utf8')) as Meaning

  test('the sample has everything the format has', () => {
    expect([meaning.keys.length, meaning.tombstones.length]).toEqual([300, 5])
    expect(meaning).toEqual({ ...sample(), info: meaning.info })
  })

  test('encoding what it means gives its bytes', () => {
    const encoded = encode(meaning)
    expect(encoded.info).toEqual(meaning.info)
    expect(encoded.bytes.equals(bytes)).toBe(true)
  })

  test('decoding its bytes gives what it means', () => {
    const env = world(1)
    env.files.setContents(`${DIRECTORY}/${meaning.info.file}`, bytes)
    const options = { env, directory: DIRECTORY, jobId: Buffer.from(meaning.jobId, 'hex') }
    const set = SeenSet.open({ ...options, runs: [meaning.info], size: meaning.keys.length })
    set.check()
    expect([...set.keys()].map((key) => Buffer.from(key).toString('hex'))).toEqual(meaning.keys)
    for (const key of meaning.keys) expect(set.has(Buffer.from(key, 'hex'), 0)).toBe(true)
    for (const key of meaning.tombstones) expect(set.has(Buffer.from(key, 'hex'), 0)).toBe(false)
    expect(tombstonesOf(set)).toEqual(meaning.tombstones)
    set.close()
  })
})

function tombstonesOf(set: SeenSet): string[] {
  // Look-ups tell a tombstone from nothing only by what it hides; its page is read here as a merge reads it.
  const { readers } = (set as unknown as { runList: { readers: ConstructorParameters<typeof RunSource>[0][] } }).runList
  const found: string[] = []
  for (const source = new RunSource(readers[0], TOMBSTONE); source.advance(); ) {
    found.push([...source.words].map((word) => word.toString(16).padStart(8, '0')).join(''))
  }
  return found
}
