/**
 * One repair, from reading to writing. In the order of trust: active.json and the info.json files say which files count;
 * the journals say how each job stood last; segments and runs hold the rest. What is gone is told, and what had to be
 * assumed in its place is said.
 */
import type { Env } from '../env/env.js'
import type { FileSystem } from '../env/file-system.js'
import { decodeRunHeader, parseRunName, RUN_HEADER_BYTES } from '../seen/seen-format.js'
import { writeWord } from '../seen/seen-key.js'
import type { SeenRunInfo } from '../seen/seen-set.js'
import {
  bucketDirectory,
  DEAD_BUCKET,
  DELAYED_BUCKET,
  type JobPaths,
  join,
  journalName,
  parseBucketName,
  parseJournalName,
  parseSegmentName,
} from '../store/file-names.js'
import { decodeFileHeader, JOB_HAS_FINGERPRINT, JOURNAL_MAGIC, SEGMENT_MAGIC } from '../store/format.js'
import { emptyJobHeader, readJobHeader } from '../store/job-record.js'
import { type Manifest, readManifest, type StoreKind } from '../store/manifest.js'
import { Engine } from './engine.js'
import { resolveOptions, type Tuning } from './engine-options.js'
import { listDirectory } from './recovery.js'
import type { SalvagedJob } from './repair-fates.js'
import { Findings, isDamage, openTolerant, readSpots } from './repair-findings.js'
import { Importer, importValues } from './repair-import.js'
import { JournalSalvage } from './repair-journal.js'
import { SeenSalvage } from './repair-seen.js'
import { SegmentSalvage } from './repair-segments.js'
import { pauseSlot } from './small-commits.js'

export interface RepairOptions {
  /** Order inside a priority, for the case that active.json is lost. Default 'fifo'. */
  readonly order?: 'fifo' | 'lifo'
  /** Undocumented on purpose: bounds for tests. */
  readonly tuning?: Partial<Tuning>
}

export class Salvage {
  readonly journal: JournalSalvage
  readonly segments: SegmentSalvage
  readonly seen: SeenSalvage
  private readonly env: Env
  private readonly paths: JobPaths
  private readonly findings: Findings
  private readonly manifest: Manifest | undefined
  private readonly journals: readonly number[]
  private readonly buckets: readonly string[]
  private readonly runs: readonly string[]

  constructor(env: Env, paths: JobPaths, findings: Findings) {
    const { files } = env
    this.env = env
    this.paths = paths
    this.findings = findings
    this.manifest = readManifestTolerant(files, paths, findings)
    const { manifest } = this
    const numbers = listDirectory(files, paths.journal).map(parseJournalName)
    this.journals = numbers.filter((number) => number !== undefined).sort((a, b) => a - b)
    this.buckets = manifest?.buckets ?? bucketsThere(files, paths)
    this.runs = manifest === undefined ? listDirectory(files, paths.seen) : runsOf(manifest).map((run) => run.file)
    const jobId = manifest === undefined ? this.findJobId() : Buffer.from(manifest.jobId, 'hex')
    this.journal = new JournalSalvage(findings, jobId, manifest)
    this.segments = new SegmentSalvage(files, paths, jobId, this.journal.fates, findings)
    this.seen = new SeenSalvage(env, paths.seen, jobId, findings)
  }

  /** Reads everything once; nothing is written yet, so what stops a repair (a newer format) leaves nothing behind. */
  read(): void {
    const { env, paths, manifest } = this
    this.journal.readAll(env.files, paths.journal, this.journals)
    this.segments.survey(this.buckets, manifest)
    this.seen.survey(this.runs, manifest === undefined ? [] : runsOf(manifest))
  }

  private findJobId(): Buffer {
    const { files } = this.env
    const { journal, seen } = this.paths
    const segments = this.buckets.flatMap((bucket) => {
      const directory = bucketDirectory(this.paths, bucket)
      const names = listDirectory(files, directory).filter((name) => parseSegmentName(name) !== undefined)
      return names.map((name) => join(directory, name))
    })
    const runs = this.runs.filter((name) => parseRunName(name) !== undefined)
    return (
      jobIdOf(files, [...this.journals.map((number) => join(journal, journalName(number))), ...segments]) ??
      jobIdOf(
        files,
        runs.map((name) => join(seen, name)),
      ) ??
      Buffer.alloc(16)
    )
  }

  async writeTo(newDirectory: string, options: RepairOptions): Promise<void> {
    const { journal, manifest } = this
    const kind = manifest?.kind ?? this.guessKind()
    const order = manifest?.order ?? options.order ?? 'fifo'
    if (manifest === undefined) {
      this.findings.guess(
        `Without active.json the job is taken for a ${kind} of order '${order}', and every journal and bucket counts, ` +
          'so finished jobs may come back.',
      )
    }
    const limits = { concurrency: Infinity, delayMs: 0 }
    const { tuning = {} } = options
    const engine = await Engine.open(
      newDirectory,
      resolveOptions(kind, { env: this.env, order, tuning }, () => limits),
    )
    try {
      this.begin(engine)
      await this.writeKeys(engine)
      await this.writeJobs(engine)
      await importValues(engine, journal.fates.values)
      const now = engine.now()
      for (const [name, notBefore] of journal.fates.slots) {
        if (notBefore > now) await pauseSlot(engine.desk, name, notBefore)
      }
      await engine.checkpoint()
    } catch (error) {
      await engine.close().catch(() => {})
      throw error
    }
    await engine.close()
  }

  private guessKind(): StoreKind {
    const { journal, segments, seen } = this
    return journal.fates.hasFingerprints || segments.hasFingerprints || seen.hasRuns ? 'frontier' : 'queue'
  }

  private async writeKeys(engine: Engine): Promise<void> {
    const importer = new Importer(engine)
    const key = Buffer.alloc(16)
    for (const words of this.seen.keys(this.journal.fates.keys)) {
      for (const [i, word] of words.entries()) writeWord(key, i * 4, word)
      importer.key(key, 0)
      if (importer.full) await importer.flush()
    }
    await importer.flush()
  }

  private async writeJobs(engine: Engine): Promise<void> {
    const importer = new Importer(engine)
    const header = emptyJobHeader()
    const { journal, seen } = this
    // An undamaged seen-set is exact, and some jobs are not in it on purpose. Once keys are gone, it is better that what
    // waits here counts as seen.
    const keysAreGone = seen.incomplete || journal.incomplete
    const write = (job: SalvagedJob): void => {
      importer.job(job)
      if (!keysAreGone) return
      const { flags, fingerprintAt } = readJobHeader(job.buffer, job.start, job.end, header)
      if (flags & JOB_HAS_FINGERPRINT && !journal.fates.forgot(job.buffer, fingerprintAt)) {
        importer.key(job.buffer, fingerprintAt)
      }
    }
    for (const job of this.segments.jobs()) {
      write(job)
      if (importer.full) await importer.flush()
    }
    for (const job of journal.fates.jobs()) {
      write(job)
      if (importer.full) await importer.flush()
    }
    await importer.flush()
  }

  /**
   * Ids go on where they were, so that none is used twice; counters too. Both live in the manifest of a checkpoint, so they
   * are set before the first one begins.
   */
  private begin(engine: Engine): void {
    const { journal, segments, manifest } = this
    const { state } = engine
    state.nextId = Math.max(manifest?.nextId ?? 1, journal.fates.nextId, segments.maxId + 1)
    Object.assign(state.counters, journal.fates.counters)
    // Counted duplicates ride along with the next batch: now, or it might be one behind the checkpoint that counts them.
    engine.committer.flush(true)
  }
}

function readManifestTolerant(files: FileSystem, paths: JobPaths, findings: Findings): Manifest | undefined {
  try {
    const manifest = readManifest(files, paths)
    if (manifest === undefined) findings.problem(paths.active, 'missing')
    return manifest
  } catch (error) {
    if (!isDamage(error)) throw error
    findings.problem(paths.active, (error as Error).message)
    return undefined
  }
}

const runsOf = (manifest: Manifest): readonly SeenRunInfo[] => manifest.seen.runs as SeenRunInfo[]

function bucketsThere(files: FileSystem, paths: JobPaths): string[] {
  const names = listDirectory(files, paths.queue).filter(
    (name) => name === DELAYED_BUCKET || parseBucketName(name) !== undefined,
  )
  return files.exists(bucketDirectory(paths, DEAD_BUCKET)) ? [...names, DEAD_BUCKET] : names
}

/** Of the first file whose header is good. */
function jobIdOf(files: FileSystem, candidates: readonly string[]): Buffer | undefined {
  const unheard = new Findings()
  for (const path of candidates) {
    const handle = openTolerant(files, path, unheard)
    if (handle === undefined) continue
    const bytes = Buffer.alloc(RUN_HEADER_BYTES)
    try {
      readSpots(handle, bytes, 0, unheard)
    } finally {
      handle.close()
    }
    const reads = [
      decodeFileHeader(bytes, JOURNAL_MAGIC),
      decodeFileHeader(bytes, SEGMENT_MAGIC),
      decodeRunHeader(bytes),
    ]
    for (const read of reads) if (read.kind === 'header') return Buffer.from(read.header.jobId)
  }
  return undefined
}
