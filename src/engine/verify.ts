/**
 * The store's own full check, without a lock and without changing anything: everything recovery reads, plus every block of
 * every segment and every page of the seen-set. What it finds is told, file by file; the counts are a full scan, so
 * they can be held against what an open store says of itself.
 */
import type { Env } from '../env/env.js'
import { nodeEnv } from '../env/node-env.js'
import { errorCode, HoldfastError } from '../errors.js'
import { jobPaths } from '../store/file-names.js'
import { corrupt } from '../store/format.js'
import { emptyJobHeader, readJobHeader } from '../store/job-record.js'
import type { CounterValues, StoreKind } from '../store/manifest.js'
import { readManifest } from '../store/manifest.js'
import { loadState } from './recovery.js'
import { StoreState } from './store-state.js'

export interface VerifyProblem {
  readonly code: string
  readonly path: string | undefined
  readonly offset: number | undefined
  readonly message: string
}

export interface VerifyReport {
  /** Nothing that was promised is damaged. A torn tail is not damage. */
  readonly ok: boolean
  readonly problems: readonly VerifyProblem[]
  readonly kind: StoreKind | undefined
  readonly order: 'fifo' | 'lifo' | undefined
  readonly generation: number
  readonly files: number
  readonly bytes: number
  /** As the next open will find them; `leased` become ready again. */
  readonly jobs: { readonly ready: number; readonly delayed: number; readonly leased: number; readonly dead: number }
  readonly seen: number
  readonly counters: CounterValues | undefined
  readonly tornBytes: number
}

const ATTEMPTS = 3

/** Checks the job in `directory`. Throws HOLDFAST_NOT_FOUND when there is none. */
export async function verifyDirectory(directory: string, env: Env = nodeEnv): Promise<VerifyReport> {
  const root = directory.length > 1 ? directory.replace(/\/+$/, '') : directory
  // A live writer may publish a checkpoint and remove files while they are read: then it is looked at again.
  for (let attempt = 1; ; attempt++) {
    const before = generationOf(root, env)
    const report = verifyOnce(root, env)
    if (report.ok || attempt === ATTEMPTS || generationOf(root, env) === before) return report
  }
}

function generationOf(root: string, env: Env): number | undefined {
  try {
    return readManifest(env.files, jobPaths(root))?.generation
  } catch {
    return undefined
  }
}

function verifyOnce(root: string, env: Env): VerifyReport {
  const problems: VerifyProblem[] = []
  const report = {
    ok: false,
    problems,
    kind: undefined as StoreKind | undefined,
    order: undefined as 'fifo' | 'lifo' | undefined,
    generation: 0,
    files: 0,
    bytes: 0,
    jobs: { ready: 0, delayed: 0, leased: 0, dead: 0 },
    seen: 0,
    counters: undefined as CounterValues | undefined,
    tornBytes: 0,
  }
  const paths = jobPaths(root)
  let state: StoreState | undefined
  try {
    const manifest = readManifest(env.files, paths)
    if (manifest === undefined) {
      if (!env.files.exists(paths.journal)) {
        throw new HoldfastError('HOLDFAST_NOT_FOUND', `${root} holds no job`, { path: root })
      }
      throw corrupt(paths.active, 'missing')
    }
    state = new StoreState({
      env,
      paths,
      kind: manifest.kind,
      lifo: manifest.order === 'lifo',
      limitsOf: () => ({ concurrency: Infinity, delayMs: 0 }),
    })
    const loaded = loadState(state, manifest)
    report.kind = manifest.kind
    report.order = manifest.order
    report.generation = manifest.generation
    report.tornBytes = loaded.scan.tornBytes
    report.jobs = {
      ready: state.ready.count,
      delayed: state.delayed.count,
      leased: loaded.leased.length,
      dead: state.dead.count,
    }
    report.seen = state.seen.size
    report.counters = state.counters
    checkSegments(state, problems)
    attempt(problems, () => state?.seen.check())
  } catch (error) {
    if (errorCode(error) === 'HOLDFAST_NOT_FOUND') throw error
    problems.push(problemOf(error))
  } finally {
    state?.handles.close()
    state?.seen?.close()
  }
  Object.assign(report, measure(env, root))
  report.ok = problems.length === 0
  return report
}

/** Every block of every segment; ids must be unique among what is live, and in their lane's range. */
function checkSegments(state: StoreState, problems: VerifyProblem[]): void {
  const header = emptyJobHeader()
  const ids = new Set<number>()
  for (const set of state.segmentSets()) {
    for (const segment of set.segments) {
      attempt(problems, () => {
        let live = 0
        const lanes = segment.lanes()
        let at = 0
        segment.checkBlocks((record, ordinal) => {
          live++
          readJobHeader(record.buffer, record.start, record.end, header)
          // Records come in the order of their ordinals, and lanes are ranges of them.
          while (at < lanes.length && ordinal >= lanes[at].first + lanes[at].count) at++
          const lane = lanes[at]
          if (lane === undefined || header.id < lane.lowestId || header.id > lane.highestId) {
            throw corrupt(segment.path, `record ${ordinal} is job ${header.id}, outside its lane's range`)
          }
          if (ids.has(header.id)) throw corrupt(segment.path, `job ${header.id} is live twice`)
          ids.add(header.id)
        })
        if (live !== segment.live) throw corrupt(segment.path, `${live} records are live, ${segment.live} are counted`)
      })
    }
  }
}

function attempt(problems: VerifyProblem[], check: () => void): void {
  try {
    check()
  } catch (error) {
    problems.push(problemOf(error))
  }
}

function problemOf(error: unknown): VerifyProblem {
  const { path, offset, message } = error as HoldfastError
  return { code: errorCode(error) ?? 'HOLDFAST_CORRUPT', path, offset, message }
}

function measure(env: Env, root: string): { files: number; bytes: number } {
  const total = { files: 0, bytes: 0 }
  const walk = (path: string): void => {
    let names: string[]
    try {
      names = env.files.readDirectory(path)
    } catch {
      try {
        const handle = env.files.open(path, 'read')
        total.files++
        total.bytes += handle.size()
        handle.close()
      } catch {
        // Gone meanwhile.
      }
      return
    }
    for (const name of names) walk(`${path}/${name}`)
  }
  for (const part of ['requests.queue', 'requests.seen', 'dead']) walk(`${root}/${part}`)
  return total
}
