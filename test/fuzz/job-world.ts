/**
 * Small job directories with files of every kind, and what becomes of one when a file of it is damaged: it opens and holds
 * something, or it is refused. Everything else (another exception, a hang) fails the test that asks.
 */
import { SimClock } from '../../src/env/sim-clock.js'
import { simEnv } from '../../src/env/sim-env.js'
import { SimFileSystem } from '../../src/env/sim-file-system.js'
import { HoldfastError } from '../../src/errors.js'
import { type Frontier, openFrontier } from '../../src/frontier/frontier.js'

export const DIRECTORY = '/job'
export const QUEUE = `${DIRECTORY}/requests.queue`
const NOW = Date.UTC(2025, 0, 1)
const DAY_MS = 86_400_000
const FOREVER_MS = 1e13

/** Nothing is too small for a segment of its own. */
const TUNING = { carryBucketBytes: 0, carryTotalBytes: 0, segmentBytes: 1000, reserveBytes: 0 }

const pages = (host: string, from: number, to: number): string[] =>
  Array.from({ length: to - from }, (_, i) => `http://${host}/${from + i}`)

function open(files: SimFileSystem, clock: SimClock, seed: number): Promise<Frontier> {
  const env = simEnv({ seed, files, clock })
  return openFrontier(DIRECTORY, { env, tuning: TUNING, leaseMs: FOREVER_MS, maxAttempts: 100 })
}

/** Segments in two priorities, of delayed and of dead jobs; used-up marks, user state, a journal behind them. */
async function fill(frontier: Frontier): Promise<void> {
  await frontier.setState({ at: 1 })
  await frontier.add(pages('d', 0, 2), { priority: 9 })
  await frontier.add(pages('h', 0, 3), { priority: 5 })
  await frontier.add(pages('l', 0, 2), { start: true })
  await frontier.add(pages('w', 0, 2), { notBefore: NOW + 3 * DAY_MS })
  for (const visit of await frontier.take({ max: 2 })) await visit.bury({ reason: 'no' })
  await frontier.checkpoint()
  const [first] = await frontier.take()
  await first.ack({ add: pages('c', 0, 1) })
  await frontier.checkpoint()
}

/** Closed in good order: the manifest knows how far the journal goes. */
export async function closedJob(): Promise<SimFileSystem> {
  const files = new SimFileSystem()
  const frontier = await open(files, new SimClock({ wallMs: NOW }), 1)
  await fill(frontier)
  await work(frontier)
  await frontier.close()
  return files.crash({ seed: 1, unsynced: 'lost' })
}

/**
 * Killed, after a checkpoint that failed: two journals count. In the second a part is synced and later frames say so; what
 * comes after that is only written.
 */
export async function killedJob(): Promise<SimFileSystem> {
  const files = new SimFileSystem()
  const clock = new SimClock({ wallMs: NOW })
  const frontier = await open(files, clock, 2)
  await fill(frontier)
  await frontier.add(pages('h', 3, 5), { priority: 5 })
  await clock.advance(1000)
  await frontier.add(pages('h', 5, 6), { priority: 5 })
  // Created, synced and begun; then no segment can be.
  files.failAt(4, { kind: 'EIO', sticky: true })
  const failed = await frontier.checkpoint().then(
    () => false,
    () => true,
  )
  if (!failed) throw new Error('the checkpoint was to fail')
  files.clearFaults()
  await work(frontier)
  await clock.advance(1000)
  await frontier.add(pages('t', 0, 1))
  await frontier.add(pages('t', 1, 2))
  return files.crash({ seed: 1, unsynced: 'kept' })
}

async function work(frontier: Frontier): Promise<void> {
  const visits = await frontier.take({ max: 2 })
  await visits[0].retry({ reason: 'again', delayMs: DAY_MS })
  await visits[1].bury({ reason: 'no use', state: { at: 2 } })
  await frontier.requeue([1])
}

export type Outcome =
  | { readonly kind: 'refused'; readonly error: HoldfastError }
  | { readonly kind: 'open'; readonly tornBytes: number; readonly content: string }

/** A copy of the disk with one file changed; undefined removes it. */
export function damage(
  files: SimFileSystem,
  path: string,
  change: (bytes: Buffer) => Buffer | undefined,
): SimFileSystem {
  const copy = new SimFileSystem()
  for (const one of files.allFiles()) {
    const bytes = one === path ? change(files.contents(one)) : files.contents(one)
    if (bytes !== undefined) copy.setContents(one, bytes)
  }
  return copy
}

export const flip = (bytes: Buffer, bit: number): Buffer => {
  bytes[bit >>> 3] ^= 1 << (bit & 7)
  return bytes
}

/** Opens when every delay has ended and tells all there is, to the last byte. */
export async function outcomeOf(files: SimFileSystem): Promise<Outcome> {
  let frontier: Frontier | undefined
  try {
    frontier = await open(files, new SimClock({ wallMs: NOW + 30 * DAY_MS }), 3)
    return { kind: 'open', tornBytes: frontier.recovery.tornBytes, content: await contentOf(frontier) }
  } catch (error) {
    if (!(error instanceof HoldfastError)) throw error
    // A refusal leaves nothing open behind it.
    if (frontier === undefined && files.openHandles() !== 0) throw new Error('handles are left open', { cause: error })
    return { kind: 'refused', error: error as HoldfastError }
  }
}

async function contentOf(frontier: Frontier): Promise<string> {
  const jobs: object[] = []
  // Once more after the last: what could not be read is met by the take after the one that stopped short.
  for (let taken = -1; taken !== jobs.length; ) {
    taken = jobs.length
    for (const visit of await frontier.take({ max: 100 })) {
      const { id, url, method, meta, priority, start, slot, addedAt, attempt, failures, lastReason } = visit
      jobs.push({ id, url, method, meta, priority, start, slot, addedAt, attempt, failures, lastReason })
    }
  }
  const dead: object[] = []
  for await (const { raw, ...letter } of frontier.dead())
    dead.push({ ...letter, raw: Buffer.from(raw).toString('hex') })
  const { counters, leased, dead: deadCount, seen } = await frontier.stats()
  // How often a lease was given back counts the openings, not the jobs.
  const { recovered: _recovered, ...lasting } = counters
  const asked = ['d', 'h', 'l', 'w', 'c', 't'].flatMap((host) => pages(host, 0, 7))
  return JSON.stringify({
    jobs: jobs.sort((a, b) => (a as { id: number }).id - (b as { id: number }).id),
    dead,
    counts: [leased, deadCount, seen],
    counters: lasting,
    state: frontier.state('at'),
    seen: asked.filter((url) => frontier.has(url)),
  })
}
