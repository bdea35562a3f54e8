/**
 * What the segments still hold. Which count, and which of their records are used up, is what info.json says; where that is
 * gone too, every segment counts whole. Read twice: a first time to find damage and jobs that lie in several segments,
 * a second time to hand the jobs out, so that a large frontier needs not fit in memory.
 */
import { DecodeError } from '../bytes/byte-reader.js'
import type { FileSystem } from '../env/file-system.js'
import { ConsumedSet, readBucketInfo, type SegmentInfo } from '../store/bucket-info.js'
import {
  bucketDirectory,
  DEAD_BUCKET,
  DELAYED_BUCKET,
  INFO_FILE,
  type JobPaths,
  join,
  parseSegmentName,
} from '../store/file-names.js'
import {
  CARRY_DEAD,
  CARRY_DELAYED,
  CARRY_READY,
  decodeFileHeader,
  FILE_HEADER_BYTES,
  JOB_HAS_FINGERPRINT,
  SEGMENT_MAGIC,
} from '../store/format.js'
import { emptyJobHeader, readJobHeader } from '../store/job-record.js'
import type { Manifest } from '../store/manifest.js'
import { listDirectory } from './recovery.js'
import type { Fates, SalvagedJob } from './repair-fates.js'
import { Findings, isDamage, openTolerant, readSpots } from './repair-findings.js'
import { IdSet } from './repair-id-set.js'
import { type FoundRecord, newSummary, readSegment, type SegmentSummary } from './repair-segment-file.js'

interface Source {
  readonly path: string
  /** Of its jobs, as long as the journals do not say otherwise. */
  readonly state: number
  readonly info: SegmentInfo | undefined
  /** Segment id; 0 when neither info.json nor the header tells. */
  readonly id: number
  /** undefined: nothing is known to be used up. */
  readonly consumed: ConsumedSet | undefined
}

export class SegmentSalvage {
  maxId = 0
  hasFingerprints = false
  private readonly files: FileSystem
  private readonly paths: JobPaths
  private readonly jobId: Buffer
  private readonly fates: Fates
  private readonly findings: Findings
  /** Oldest first: of two copies of a job the later one counts. */
  private readonly sources: Source[] = []
  /** For jobs with several copies: which source has the newest. */
  private readonly newest = new Map<number, number>()
  private readonly header = emptyJobHeader()

  constructor(files: FileSystem, paths: JobPaths, jobId: Buffer, fates: Fates, findings: Findings) {
    this.files = files
    this.paths = paths
    this.jobId = jobId
    this.fates = fates
    this.findings = findings
  }

  /** Chooses the segments of these buckets and reads them all once. Without a manifest each bucket's newest state counts. */
  survey(buckets: readonly string[], manifest: Manifest | undefined): void {
    for (const bucket of buckets) this.choose(bucket, manifest)
    this.sources.sort((a, b) => a.id - b.id)
    const ids = new IdSet()
    for (const [index, source] of this.sources.entries()) {
      const summary = newSummary()
      const ordinals = new IdSet()
      for (const record of this.records(source, this.findings, summary)) {
        const { id, flags } = this.header
        if (id > this.maxId) this.maxId = id
        if (flags & JOB_HAS_FINGERPRINT) this.hasFingerprints = true
        if (!ids.add(id)) this.newest.set(id, index)
        ordinals.add(record.ordinal)
      }
      // Without a manifest a missing segment may be one of a checkpoint that failed: then the journal has its jobs.
      if (!summary.missing || manifest !== undefined) this.countLost(source, ordinals, summary)
    }
    this.countUnknown(ids)
  }

  /** Every job that is left in the segments, as it stands. */
  *jobs(): Generator<SalvagedJob> {
    const { header, fates } = this
    // What is wrong with the files was told by the survey.
    const unheard = new Findings()
    for (const [index, source] of this.sources.entries()) {
      for (const record of this.records(source, unheard, newSummary())) {
        if ((this.newest.get(header.id) ?? index) !== index) continue
        const fate = fates.byId.get(header.id)
        // A journal that has the job itself has it as it stood last.
        if (fate?.ended || fate?.buffer !== undefined) continue
        // Used up here, and yet a later record speaks of it: it was carried into a part of the journal that is lost.
        if (fate === undefined && source.consumed?.has(record.ordinal)) continue
        const state = fate?.state ?? source.state
        yield {
          state,
          attempt: fate?.attempt ?? record.attempt,
          failures: fate?.failures ?? record.failures,
          due: state === CARRY_READY ? 0 : (fate?.due ?? record.due),
          reason: fate?.reason ?? record.reason,
          buffer: record.buffer,
          start: record.start,
          end: record.end,
        }
      }
    }
  }

  // ---- which segments

  private choose(bucket: string, manifest: Manifest | undefined): void {
    const directory = bucketDirectory(this.paths, bucket)
    const state = bucket === DELAYED_BUCKET ? CARRY_DELAYED : bucket === DEAD_BUCKET ? CARRY_DEAD : CARRY_READY
    const infos = this.infos(directory, bucket, manifest)
    if (infos !== undefined) {
      for (const info of infos) this.sources.push(this.described(join(directory, info.file), state, info))
      return
    }
    const names = listDirectory(this.files, directory).filter((name) => parseSegmentName(name) !== undefined)
    for (const name of names) {
      const path = join(directory, name)
      this.sources.push({ path, state, info: undefined, id: this.idOf(path) ?? 0, consumed: undefined })
    }
    if (names.length === 0) return
    this.findings.guess(
      `What is used up in bucket ${bucket} is not known: all its segments count whole, so finished jobs may come back.`,
    )
  }

  /** The segments of the generation that counts, or undefined when info.json does not tell. */
  private infos(directory: string, bucket: string, manifest: Manifest | undefined): readonly SegmentInfo[] | undefined {
    // A checkpoint that failed leaves a bare directory behind.
    if (manifest === undefined && listDirectory(this.files, directory).length === 0) return []
    try {
      // Its newest state without a manifest, even if it was not committed: then the journals still hold what it lacks.
      const generation = manifest?.generation ?? Infinity
      return readBucketInfo(this.files, directory, bucket, generation).state.segments
    } catch (error) {
      if (!isDamage(error)) throw error
      const { message, path } = error as { message: string; path?: string }
      this.findings.problem(path ?? join(directory, INFO_FILE), message)
      return undefined
    }
  }

  private described(path: string, state: number, info: SegmentInfo): Source {
    const id = this.idOf(path)
    if (id !== undefined && id !== info.id) {
      this.findings.problem(path, `is segment ${id}, expected ${info.id}: read whole, as what is used up is not known`)
      return { path, state, info: undefined, id, consumed: undefined }
    }
    let consumed: ConsumedSet | undefined
    try {
      consumed = ConsumedSet.decode(info.consumed, info.records, info.live, path)
    } catch (error) {
      if (!isDamage(error) && !(error instanceof DecodeError)) throw error
      this.findings.problem(path, `what is used up in it cannot be told: ${(error as Error).message}`)
    }
    return { path, state, info, id: info.id, consumed }
  }

  /** The id in the header; undefined when the header tells nothing, which reading the file will say. */
  private idOf(path: string): number | undefined {
    const handle = openTolerant(this.files, path, new Findings())
    if (handle === undefined) return undefined
    const bytes = Buffer.alloc(FILE_HEADER_BYTES)
    try {
      readSpots(handle, bytes, 0, new Findings())
    } finally {
      handle.close()
    }
    const read = decodeFileHeader(bytes, SEGMENT_MAGIC)
    return read.kind === 'header' ? read.header.number : undefined
  }

  // ---- what is in them

  /** Every record that can be read; `this.header` is that of its job. */
  private *records(source: Source, findings: Findings, summary: SegmentSummary): Generator<FoundRecord> {
    const { path, info } = source
    for (const record of readSegment(this.files, path, info, this.jobId, findings, summary)) {
      try {
        readJobHeader(record.buffer, record.start, record.end, this.header)
      } catch (error) {
        if (!(error instanceof DecodeError)) throw error
        summary.wound = findings.problem(path, `record ${record.ordinal} is no job: ${error.message}`)
        continue
      }
      yield record
    }
  }

  /** Records that could not be read, were not used up, and of which no journal speaks. */
  private countLost(source: Source, read: IdSet, summary: SegmentSummary): void {
    const touched = this.fates.touched.get(source.id)
    let lost = 0
    for (let ordinal = 0; ordinal < summary.records; ordinal++) {
      if (!read.has(ordinal) && !source.consumed?.has(ordinal) && !touched?.has(ordinal)) lost++
    }
    if (lost === 0) return
    this.findings.lostRecords += lost
    const message = `${lost} of its jobs ${lost === 1 ? 'is' : 'are'} lost`
    if (summary.wound === undefined) this.findings.problem(source.path, message)
    else summary.wound.message += `; ${message}`
  }

  /** Jobs that the journals speak of and nothing holds. */
  private countUnknown(read: IdSet): void {
    const unknown: number[] = []
    for (const [id, fate] of this.fates.byId) {
      if (!fate.ended && fate.buffer === undefined && !read.has(id)) unknown.push(id)
    }
    if (unknown.length === 0) return
    this.findings.lostRecords += unknown.length
    const some = unknown.slice(0, 10).join(', ')
    const more = unknown.length > 10 ? ', …' : ''
    const message = `it speaks of ${unknown.length} jobs whose content is gone (${some}${more})`
    this.findings.problem(this.paths.journal, message)
  }
}
