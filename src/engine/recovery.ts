/**
 * From a directory to a state: steps R2 to R9 of docs/durability.md. Only R7 (cutting a torn tail) and R8 (removing what
 * nothing names) change the disk, and `readOnly` leaves them out; so recovery can be cut at any call and run again.
 */
import type { FileSystem } from '../env/file-system.js'
import { errorCode, HoldfastError, ioError } from '../errors.js'
import { KIND_ORDINARY, KIND_START } from '../queue/bucket.js'
import type { JobEntry } from '../queue/job-entry.js'
import { type SeenRunInfo, SeenSet } from '../seen/seen-set.js'
import {
  bucketDirectory,
  DEAD_BUCKET,
  DELAYED_BUCKET,
  INFO_FILE,
  join,
  journalName,
  parseBucketName,
  parseJournalName,
  parseSegmentName,
  TEMPORARY_SUFFIX,
} from '../store/file-names.js'
import { corrupt, FILE_HEADER_BYTES } from '../store/format.js'
import { type JournalScan, replayJournals } from '../store/journal-reader.js'
import { encodeJournalHeader, type JournalFile, JournalWriter } from '../store/journal-writer.js'
import { writeFully } from '../store/json-file.js'
import { type Manifest, readManifest, writeManifest, zeroCounters } from '../store/manifest.js'
import { removeIfThere } from '../store/segment-set.js'
import { Replayer } from './replay.js'
import type { StoreState } from './store-state.js'

export interface Loaded {
  readonly manifest: Manifest
  readonly scan: JournalScan
  /** Jobs that were leased when the process before ended, by id; not yet queued. */
  readonly leased: JobEntry[]
}

export function listDirectory(files: FileSystem, path: string): string[] {
  try {
    return files.readDirectory(path)
  } catch (error) {
    if (errorCode(error) === 'ENOENT') return []
    throw ioError('listing', path, error)
  }
}

/** R2. undefined: the directory is empty, or holds only what a first open that was cut short leaves behind. */
export function findManifest(state: StoreState): Manifest | undefined {
  const { env, paths } = state
  const manifest = readManifest(env.files, paths)
  if (manifest !== undefined) {
    if (manifest.kind !== state.kind) {
      throw new HoldfastError('HOLDFAST_MISMATCH', `${paths.root} holds a ${manifest.kind}, not a ${state.kind}`, {
        path: paths.root,
      })
    }
    return manifest
  }
  for (const name of listDirectory(env.files, paths.journal)) {
    const path = join(paths.journal, name)
    const handle = env.files.open(path, 'read')
    const size = handle.size()
    handle.close()
    // The first manifest is published before the first frame: a journal with frames has lost its manifest.
    if (size > FILE_HEADER_BYTES) throw corrupt(paths.active, `missing, although ${path} has ${size} bytes`)
  }
  for (const name of listDirectory(env.files, paths.queue)) {
    if (parseBucketName(name) === undefined && name !== DELAYED_BUCKET) continue
    throw corrupt(paths.active, `missing, although there is a bucket ${name}`)
  }
  if (listDirectory(env.files, paths.seen).some((name) => !name.endsWith(TEMPORARY_SUFFIX))) {
    throw corrupt(paths.active, `missing, although ${paths.seen} has files`)
  }
  return undefined
}

/** The first open: journal 1, its name, then the manifest. Nothing is promised before. */
export async function createJob(state: StoreState): Promise<Manifest> {
  const { env, paths } = state
  const { files, random } = env
  try {
    for (const directory of [paths.root, paths.queue, paths.journal]) files.makeDirectory(directory)
    const jobId = random.bytes(16)
    const file = files.open(join(paths.journal, journalName(1)), 'create')
    try {
      writeFully(file, encodeJournalHeader(jobId, { number: 1, salt: newSalt(state) }, 1, 0), 0)
      await file.sync()
    } finally {
      file.close()
    }
    await files.syncDirectory(paths.journal)
    await files.syncDirectory(paths.queue)
    await files.syncDirectory(paths.root)
    const parent = paths.root.includes('/') ? paths.root.slice(0, paths.root.lastIndexOf('/')) || '/' : '.'
    await files.syncDirectory(parent)
    const manifest: Manifest = {
      jobId: jobId.toString('hex'),
      kind: state.kind,
      order: state.lifo ? 'lifo' : 'fifo',
      generation: 0,
      epoch: 0,
      startprios: [],
      buckets: [],
      journal: { first: 1, last: 1, sequence: 0 },
      nextId: 1,
      nextSegmentId: 1,
      counters: zeroCounters(),
      seen: { size: 0, runs: [] },
    }
    await writeManifest(files, paths, manifest)
    return manifest
  } catch (error) {
    throw ioError('creating the job in', paths.root, error)
  }
}

export const newSalt = (state: StoreState): number => (state.env.random.uint32() | 1) >>> 0

/** R3 to R6, and filling the lanes. Changes nothing on disk. */
export function loadState(state: StoreState, manifest: Manifest): Loaded {
  const { env, paths } = state
  state.jobId = Buffer.from(manifest.jobId, 'hex')
  state.generation = manifest.generation
  state.highestGeneration = manifest.generation
  state.epoch = manifest.epoch
  state.nextId = manifest.nextId
  state.nextSegmentId = manifest.nextSegmentId
  state.counters = { ...manifest.counters }
  for (const name of manifest.buckets) {
    const set =
      name === DELAYED_BUCKET ? state.delayed.store : name === DEAD_BUCKET ? state.dead.store : bucketSet(state, name)
    state.highestGeneration = Math.max(
      state.highestGeneration,
      set.load(manifest.generation, state.jobId, state.blocks),
    )
  }
  for (const name of listBuckets(state)) {
    if (!manifest.buckets.includes(name))
      state.highestGeneration = Math.max(state.highestGeneration, strayGeneration(state, name))
  }
  state.seen = SeenSet.open({
    env,
    directory: paths.seen,
    jobId: state.jobId,
    runs: manifest.seen.runs as SeenRunInfo[],
    size: manifest.seen.size,
    memoryBytes: state.seenMemoryBytes,
    warn: (code, message) => state.warn(code, message),
  })
  const replayer = new Replayer(state)
  const present = listDirectory(env.files, paths.journal)
    .map(parseJournalName)
    .filter((n) => n !== undefined)
    .sort((a, b) => a - b)
  const scan = replayJournals(
    env.files,
    paths.journal,
    { jobId: state.jobId, ...manifest.journal, present },
    replayer.batch,
  )
  // Homes in the tail may name segments of a checkpoint that never became real: their numbers are not used again.
  state.nextSegmentId = Math.max(state.nextSegmentId, replayer.highestSegmentId + 1)
  return { manifest, scan, leased: replayer.finishReplay() }
}

function bucketSet(state: StoreState, name: string) {
  const { priority, start } = parseBucketName(name) as { priority: number; start: boolean }
  const { store } = state.bucket(priority, start ? KIND_START : KIND_ORDINARY)
  return store as NonNullable<typeof store>
}

function listBuckets(state: StoreState): string[] {
  const { files } = state.env
  const names = listDirectory(files, state.paths.queue).filter(
    (name) => name === DELAYED_BUCKET || parseBucketName(name) !== undefined,
  )
  if (files.exists(join(state.paths.root, DEAD_BUCKET))) names.push(DEAD_BUCKET)
  return names
}

/** A bucket no manifest names is from a checkpoint that did not commit, or one whose last step was cut short. */
function strayGeneration(state: StoreState, name: string): number {
  try {
    const path = join(bucketDirectory(state.paths, name), INFO_FILE)
    const generation = (JSON.parse(state.env.files.readFile(path).toString()) as { generation?: unknown }).generation
    return Number.isSafeInteger(generation) ? (generation as number) : 0
  } catch {
    return 0
  }
}

/** R7 and R8: cuts the torn tail, removes what nothing names, and gives back the journal that goes on. */
export function repairTail(state: StoreState, loaded: Loaded): JournalWriter {
  const { env, paths } = state
  const { scan, manifest } = loaded
  const path = join(paths.journal, journalName(scan.number))
  const handle = openToAppend(env.files, path)
  try {
    if (handle.size() > scan.position) {
      handle.truncate(scan.position)
      handle.syncNow()
    }
    // An older journal that a plain kill left unsynced must not be taken for synced when the current one is.
    for (let number = manifest.journal.first; number < scan.number; number++) {
      const older = env.files.open(join(paths.journal, journalName(number)), 'edit')
      try {
        older.syncNow()
      } finally {
        older.close()
      }
    }
    for (const number of scan.dropped) env.files.unlink(join(paths.journal, journalName(number)))
    if (scan.dropped.length > 0) env.files.syncDirectoryNow(paths.journal)
  } catch (error) {
    handle.close()
    throw ioError('cutting the torn tail of', path, error)
  }
  removeUnnamed(state, manifest)
  const current: JournalFile = { number: scan.number, handle, salt: scan.salt, position: scan.position }
  const writer = new JournalWriter(env.files, paths.journal, state.jobId, current, scan.sequence, scan.synced)
  writer.olderBytes = scan.bytes - scan.position
  return writer
}

function openToAppend(files: FileSystem, path: string) {
  try {
    return files.open(path, 'edit')
  } catch (error) {
    throw ioError('opening', path, error)
  }
}

function removeUnnamed(state: StoreState, manifest: Manifest): void {
  const { files } = state.env
  const { paths } = state
  for (const name of listDirectory(files, paths.journal)) {
    const number = parseJournalName(name)
    if (number !== undefined && number < manifest.journal.first) removeIfThere(files, join(paths.journal, name))
  }
  for (const name of listDirectory(files, paths.queue)) {
    if (name.endsWith(TEMPORARY_SUFFIX)) removeIfThere(files, join(paths.queue, name))
  }
  for (const name of listBuckets(state)) removeUnnamedInBucket(state, name, manifest.buckets.includes(name))
  state.seen.removeUnnamed()
}

function removeUnnamedInBucket(state: StoreState, bucket: string, named: boolean): void {
  const { files } = state.env
  const directory = bucketDirectory(state.paths, bucket)
  const set = [...state.segmentSets()].find((one) => one.name === bucket)
  const kept = new Set(named && set !== undefined ? set.segments.map((segment) => segment.file) : [])
  for (const name of listDirectory(files, directory)) {
    const ours = parseSegmentName(name) !== undefined || name.endsWith(TEMPORARY_SUFFIX)
    if ((ours && !kept.has(name)) || (!named && name === INFO_FILE)) removeIfThere(files, join(directory, name))
  }
  if (named) return
  try {
    files.removeDirectory(directory)
  } catch {
    // Something foreign lies in it: left alone.
  }
}
