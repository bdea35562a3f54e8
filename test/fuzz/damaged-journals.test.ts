/**
 * The journals of a job, with each bit flipped and cut at each byte. What must come of it is worked out from the undamaged
 * frames alone: a frame at or below what a later frame, a header or the manifest says was synced is corruption, and the
 * job is refused; above that it is a torn tail, counted to the byte, and the job holds exactly what came before.
 */
import { beforeAll, describe, expect, test } from 'vitest'
import type { SimFileSystem } from '../../src/env/sim-file-system.js'
import { decodeJson } from '../../src/store/json-file.js'
import { closedJob, damage, flip, killedJob, outcomeOf, QUEUE } from './job-world.js'

const HEADER_BYTES = 64

interface Frame {
  readonly start: number
  readonly end: number
  readonly sequence: number
  readonly synced: number
}

interface Journal {
  readonly path: string
  readonly size: number
  readonly firstSequence: number
  /** What its header says was synced. */
  readonly headerSynced: number
  readonly frames: readonly Frame[]
}

/** Read by the document, not by the reader under test. */
function parseJournal(path: string, bytes: Buffer): Journal {
  const frames: Frame[] = []
  for (let start = HEADER_BYTES; start < bytes.length; ) {
    const end = start + 9 + bytes.readUInt32LE(start)
    const sequence = Number(bytes.readBigUInt64LE(start + 9))
    frames.push({ start, end, sequence, synced: Number(bytes.readBigUInt64LE(start + 17)) })
    start = end
  }
  const [firstSequence, headerSynced] = [40, 48].map((at) => Number(bytes.readBigUInt64LE(at)))
  return { path, size: bytes.length, firstSequence, headerSynced, frames }
}

interface World {
  readonly files: SimFileSystem
  /** Those that count, in order. */
  readonly journals: readonly Journal[]
  /** Replay must reach this. */
  readonly reached: number
  /** Content when the frames up to this sequence are there. */
  readonly contentAt: Map<number, string>
}

async function load(build: () => Promise<SimFileSystem>): Promise<World> {
  const files = await build()
  const active = `${QUEUE}/active.json`
  const { first, sequence } = decodeJson(files.contents(active), active)['journal'] as Record<string, number>
  const journals = files
    .allFiles()
    .filter((path) => path.endsWith('.log') && Number(path.slice(-12, -4)) >= first)
    .map((path) => parseJournal(path, files.contents(path)))
  const contentAt = new Map<number, string>()
  for (const [index, { path, frames }] of journals.entries()) {
    for (const frame of frames) {
      if (frame.sequence < sequence) continue
      let cut = damage(files, path, (bytes) => bytes.subarray(0, frame.end))
      for (const later of journals.slice(index + 1)) cut = damage(cut, later.path, () => undefined)
      const outcome = await outcomeOf(cut)
      if (outcome.kind !== 'open' || outcome.tornBytes !== 0) throw new Error(`cut behind ${frame.sequence}`)
      contentAt.set(frame.sequence, outcome.content)
    }
  }
  return { files, journals, reached: sequence, contentAt }
}

/** The place of a byte: its journal, and its frame, or -1 for the header. */
function placeOf({ journals }: World, path: string, byte: number): { index: number; frame: number; sequence: number } {
  const index = journals.findIndex((journal) => journal.path === path)
  const { frames, firstSequence } = journals[index]
  const frame = frames.findIndex(({ start, end }) => start <= byte && byte < end)
  return { index, frame, sequence: frame < 0 ? firstSequence : frames[frame].sequence }
}

/** The highest sequence that anything still legible behind the bad place, or the manifest, says was synced. */
function promisedBehind({ journals, reached }: World, index: number, framesBehind: readonly Frame[]): number {
  const later = journals.slice(index + 1)
  return Math.max(
    reached,
    ...framesBehind.map((frame) => frame.synced),
    ...later.flatMap((journal) => [journal.headerSynced, ...journal.frames.map((frame) => frame.synced)]),
  )
}

async function expectOutcome(
  world: World,
  path: string,
  byte: number,
  promised: number,
  what: string,
  change: (bytes: Buffer) => Buffer,
  reopen = true,
): Promise<'refused' | 'torn'> {
  const { index, frame, sequence } = placeOf(world, path, byte)
  const { frames } = world.journals[index]
  const at = frame < 0 ? 0 : frames[frame].start
  const damaged = damage(world.files, path, change)
  const outcome = await outcomeOf(damaged)
  const where = `${path}, ${what} (frame ${sequence}, promised ${promised})`
  if (sequence <= promised || (index === 0 && frame < 0)) {
    if (outcome.kind !== 'refused') throw new Error(`${where}: opened, ${outcome.tornBytes} bytes torn`)
    const { code, path: named, offset } = outcome.error
    if (code !== 'HOLDFAST_CORRUPT' || named !== path || offset !== at) {
      throw new Error(`${where}: ${code} names ${named} at ${offset}, expected ${at}`)
    }
    return 'refused'
  }
  if (outcome.kind !== 'open') throw new Error(`${where}: refused, ${outcome.error.message}`)
  const { tornBytes, content } = outcome
  const behind = world.journals.slice(index + 1).reduce((sum, journal) => sum + journal.size, 0)
  const torn = change(world.files.contents(path)).length - at + behind
  if (tornBytes !== torn) throw new Error(`${where}: ${tornBytes} bytes are counted as torn, expected ${torn}`)
  if (content !== world.contentAt.get(sequence - 1)) throw new Error(`${where}: holds ${content}`)
  if (!reopen) return 'torn'
  // What was cut off stays off: the second opening finds a whole journal.
  const again = await outcomeOf(damaged.crash({ seed: 1, unsynced: 'kept' }))
  if (again.kind !== 'open' || again.tornBytes !== 0) throw new Error(`${where}: the second opening finds it torn`)
  return 'torn'
}

/** Flips each bit of the frames. Returns how often what came of it; of each byte one bit is opened twice. */
async function flipFrames(world: World, path: string): Promise<Record<string, number>> {
  const counts: Record<string, number> = { refused: 0, torn: 0 }
  const journal = world.journals.find((one) => one.path === path) as Journal
  for (let byte = HEADER_BYTES; byte < journal.size; byte++) {
    const { index, frame } = placeOf(world, path, byte)
    const promised = promisedBehind(world, index, journal.frames.slice(frame + 1))
    for (let i = 0; i < 8; i++) {
      const bit = byte * 8 + i
      const change = (bytes: Buffer): Buffer => flip(bytes, bit)
      counts[await expectOutcome(world, path, byte, promised, `bit ${bit}`, change, i === byte % 8)]++
    }
  }
  return counts
}

/** Thousands of openings in one test: on a busy machine that takes longer than others may. */
const PATIENT = { timeout: 300_000 }

describe('closed in good order', PATIENT, () => {
  let world: World

  beforeAll(async () => {
    world = await load(closedJob)
  })

  test('undamaged, it opens', async () => {
    expect(world.journals).toHaveLength(1)
    expect(await outcomeOf(damage(world.files, '', (bytes) => bytes))).toMatchObject({
      kind: 'open',
      tornBytes: 0,
      content: world.contentAt.get(world.reached),
    })
  })

  test('any flipped bit is corruption', async () => {
    const [{ path, size, frames }] = world.journals
    expect(frames.length).toBeGreaterThan(3)
    expect(await flipFrames(world, path)).toEqual({ refused: (size - HEADER_BYTES) * 8, torn: 0 })
  })

  test('any flipped bit of the header is corruption', async () => {
    const [{ path }] = world.journals
    for (let bit = 0; bit < HEADER_BYTES * 8; bit++) {
      await expectOutcome(world, path, bit >>> 3, world.reached, `bit ${bit}`, (bytes) => flip(bytes, bit))
    }
  })

  test('cut at any byte it is corruption: the manifest knows how far it went', async () => {
    const [{ path, size, frames }] = world.journals
    for (let length = 0; length < size; length++) {
      const outcome = await outcomeOf(damage(world.files, path, (bytes) => bytes.subarray(0, length)))
      const start = length < HEADER_BYTES ? 0 : (frames.find(({ end }) => length < end) as Frame).start
      expect(outcome).toMatchObject({ kind: 'refused', error: { code: 'HOLDFAST_CORRUPT', path, offset: start } })
    }
  })

  test('gone, it is corruption', async () => {
    const [{ path }] = world.journals
    const gone = await outcomeOf(damage(world.files, path, () => undefined))
    expect(gone).toMatchObject({ kind: 'refused', error: { code: 'HOLDFAST_CORRUPT', path } })
  })

  test('zeros behind it are nothing, anything else behind it is a torn tail', async () => {
    const [{ path }] = world.journals
    const content = world.contentAt.get(world.reached)
    for (const [tail, tornBytes] of [
      [Buffer.alloc(100), 0],
      [Buffer.alloc(100, 1), 100],
      [world.files.contents(path), world.files.contents(path).length],
    ] as const) {
      const outcome = await outcomeOf(damage(world.files, path, (bytes) => Buffer.concat([bytes, tail])))
      expect(outcome).toMatchObject({ kind: 'open', tornBytes, content })
    }
  })
})

describe('killed, with two journals', PATIENT, () => {
  let world: World

  beforeAll(async () => {
    world = await load(killedJob)
  })

  test('has frames that were promised by each kind of witness, and frames that were not', () => {
    const [older, newer] = world.journals
    expect(world.journals).toHaveLength(2)
    expect(older.frames.some((frame) => frame.sequence <= world.reached)).toBe(true)
    expect(newer.headerSynced).toBeGreaterThan(world.reached)
    expect(older.frames.some((frame) => frame.synced > world.reached)).toBe(true)
    const last = newer.frames[newer.frames.length - 1]
    expect(last.synced).toBeGreaterThan(newer.firstSequence)
    expect(last.synced).toBeLessThan(last.sequence)
  })

  test('any flipped bit in the older', async () => {
    const counts = await flipFrames(world, world.journals[0].path)
    expect(counts['refused']).toBeGreaterThan(0)
  })

  test('any flipped bit in the newer', async () => {
    const counts = await flipFrames(world, world.journals[1].path)
    expect(counts['refused']).toBeGreaterThan(0)
    expect(counts['torn']).toBeGreaterThan(0)
  })

  test('any flipped bit in the header of the older', async () => {
    const [{ path }] = world.journals
    for (let bit = 0; bit < HEADER_BYTES * 8; bit++) {
      await expectOutcome(world, path, bit >>> 3, world.reached, `bit ${bit}`, (bytes) => flip(bytes, bit))
    }
  })

  // Fails as long as the reader takes any bad header of a later journal for one that was not written yet, and drops the
  // file with what had been synced in it. A header lies in one sector: no crash leaves it neither whole nor zeros.
  test('any flipped bit in the header of the newer', async () => {
    const { path, frames } = world.journals[1]
    const promised = promisedBehind(world, 1, frames)
    for (let bit = 0; bit < HEADER_BYTES * 8; bit++) {
      await expectOutcome(world, path, bit >>> 3, promised, `bit ${bit}`, (bytes) => flip(bytes, bit))
    }
  })

  test('cut at any byte', async () => {
    for (const [index, { path, size, frames, firstSequence }] of world.journals.entries()) {
      for (let length = 0; length < size; length++) {
        const cut = length < HEADER_BYTES ? undefined : frames.find(({ end }) => length < end)
        const sequence = cut?.sequence ?? firstSequence
        // What is behind the cut is gone, with what it could have told.
        const promised = promisedBehind(world, index, [])
        const what = `cut at ${length}`
        if (cut !== undefined && length === cut.start && index === 1) {
          // At the edge of a frame nothing looks torn.
          const outcome = await outcomeOf(damage(world.files, path, (bytes) => bytes.subarray(0, length)))
          expect(outcome, what).toMatchObject({
            kind: 'open',
            tornBytes: 0,
            content: world.contentAt.get(sequence - 1),
          })
        } else if (length === cut?.start) {
          // The next journal begins too late for this end, and it is there that this is seen.
          const outcome = await outcomeOf(damage(world.files, path, (bytes) => bytes.subarray(0, length)))
          const refused = { kind: 'refused', error: { code: 'HOLDFAST_CORRUPT' } }
          const torn = { kind: 'open', content: world.contentAt.get(sequence - 1), tornBytes: world.journals[1].size }
          expect(outcome, what).toMatchObject(sequence <= promised ? refused : torn)
        } else await expectOutcome(world, path, length, promised, what, (bytes) => bytes.subarray(0, length))
      }
    }
  })

  test('one of them gone', async () => {
    const [older, newer] = world.journals
    expect(await outcomeOf(damage(world.files, older.path, () => undefined))).toMatchObject({
      kind: 'refused',
      error: { code: 'HOLDFAST_CORRUPT', path: older.path },
    })
    // Nothing but itself tells of the newer.
    const last = older.frames[older.frames.length - 1].sequence
    expect(await outcomeOf(damage(world.files, newer.path, () => undefined))).toMatchObject({
      kind: 'open',
      content: world.contentAt.get(last),
    })
  })
})
