/** Every bound and default, with its reason; relations between them are asserted when the module loads. */
import { assert } from './assert.js'

const KiB = 1024
const MiB = 1024 * KiB

/** Version of everything on disk. A newer one is refused, never mistaken for damage. */
export const FORMAT = 1

/** One job's encoded payload. A page's links and metadata are far below; a blob belongs in a file of its own. */
export const JOB_PAYLOAD_BYTES_MAX = 16 * MiB
/** One frame of the journal: bounds what a damaged length could make us read. One atomic step must fit in it. */
export const FRAME_PAYLOAD_BYTES_MAX = 64 * MiB
/** A batch is written at once when it has grown to this, so that memory for one frame stays small. */
export const BATCH_FLUSH_BYTES = 1 * MiB
/** Batches are encoded into chunks of this size, which then hold the jobs in memory: one encode, no copy. */
export const CHUNK_BYTES = 256 * KiB
/** What one job in memory costs beside its bytes, counted against `memoryBytes`: one that waits, one that is out. */
export const NODE_OVERHEAD_BYTES = 24
export const ENTRY_OVERHEAD_BYTES = 160
/** A journal is rotated, and a checkpoint begun, above this: bounds replay to under a second. */
export const JOURNAL_BYTES_MAX = 32 * MiB
/**
 * What is zeroed ahead of the frames in durability `power`: a sync of space the file has already costs the device half of
 * one that must also record a new length. More would make the one write in a few thousand that zeroes a longer pause.
 */
export const JOURNAL_AHEAD_BYTES = 1 * MiB
/** A frame longer than this share of what is zeroed ahead is not worth writing twice. */
export const JOURNAL_AHEAD_FRAME_SHARE = 1 / 8
/** While syncs take less than this they are made on the calling thread: a trip through the thread pool costs as much. */
export const SYNC_ON_THREAD_MS = 0.5
/** Default bound of live jobs held in memory. */
export const MEMORY_BYTES_DEFAULT = 64 * MiB
/** A bucket with fewer bytes than this in memory is carried into the new journal, not made into a tiny segment. */
export const CARRY_BUCKET_BYTES = 64 * KiB
/** All that one checkpoint may carry: bounds the pause that writing it makes. */
export const CARRY_TOTAL_BYTES = 2 * MiB
/** A sealed segment is cut near this size, so that its space comes back while a large bucket drains. */
export const SEGMENT_BYTES = 16 * MiB
/** Records are read from a segment in blocks of about this size. */
export const SEGMENT_BLOCK_BYTES = 16 * KiB
/** Blocks kept decoded at once, over all segments. */
export const BLOCK_CACHE_COUNT = 64
/**
 * What a lane reads ahead from a segment in one go. Hosts are served in turn, so the next record of a lane is wanted only
 * after many others: without this every take would read a block.
 */
export const READ_AHEAD_BYTES = 4 * KiB
/** All that lanes may have read ahead; the lane served longest ago gives its part back first. */
export const READ_AHEAD_TOTAL_BYTES = 16 * MiB
/** Descriptors kept open for segments and runs, over all buckets: works under `ulimit -n 256`. */
export const OPEN_FILES_MAX = 64
/** A segment with less live than this share of its records is thin: its last jobs move forward, and it goes. */
export const SEGMENT_THIN_SHARE = 0.5
/** Bytes moved forward from thin segments in one commit: bounds the pause. */
export const MOVE_SLICE_BYTES = 256 * KiB
/** Given up when the disk is full, so that finishing work needs no room it cannot get. */
export const RESERVE_BYTES = 1 * MiB
/** The user's durable key/values, all together: they are rewritten at each checkpoint. */
export const STATE_BYTES_MAX = 1 * MiB

/** What power loss can take in durability `process`. */
export const SYNC_EVERY_MS_DEFAULT = 1000
/** A hand-out is on disk this soon at the latest, so that a job that kills its process is noticed. */
export const TAKE_MARK_MS = 5
/** A turn of the event loop in which commits follow each other ends after this, so that timers and syncs get theirs. */
export const TURN_MS_MAX = 3
/** How long a lease lasts when nobody renews it. `crawl` and `work` renew theirs. */
export const LEASE_MS_DEFAULT = 5 * 60_000
/** Hand-outs, crashes included, before a job goes to the dead letters. */
export const MAX_ATTEMPTS_DEFAULT = 10
/** Backoff of `crawl` and `work`: doubles from the first to the last. */
export const BACKOFF_MS_FIRST = 1000
export const BACKOFF_MS_MAX = 10 * 60_000
/** The lock is looked at again before a write when the last look is older than this. */
export const LOCK_VERIFY_MS = 500
/** A lock of another host is taken over when it was not refreshed for this long. */
export const LOCK_STALE_MS = 10_000

/** Default bound of all that the seen-set holds in memory. Filters of 60 million fingerprints fit; it is exact beyond. */
export const SEEN_MEMORY_BYTES_DEFAULT = 128 * MiB
/** With less, tables and merging would leave no room for anything that makes it quick. */
export const SEEN_MEMORY_BYTES_MIN = 8 * MiB
/** Requests accepted from an (async) iterable in one commit. */
export const ADD_CHUNK_COUNT = 1000
/** Levels of nesting in a payload; deeper is taken for a mistake and would overflow the stack. */
export const PAYLOAD_DEPTH_MAX = 200

assert(JOB_PAYLOAD_BYTES_MAX + 64 * KiB < FRAME_PAYLOAD_BYTES_MAX, 'a job fits a frame')
assert(BATCH_FLUSH_BYTES < FRAME_PAYLOAD_BYTES_MAX, 'a batch is flushed before it outgrows a frame')
assert(READ_AHEAD_BYTES < SEGMENT_BLOCK_BYTES, 'one read ahead comes from at most two blocks')
assert(SEGMENT_BLOCK_BYTES < SEGMENT_BYTES, 'a block fits a segment')
assert(CARRY_BUCKET_BYTES < CARRY_TOTAL_BYTES, 'one small bucket fits what may be carried')
assert(CARRY_TOTAL_BYTES < JOURNAL_BYTES_MAX, 'carrying does not fill the new journal')
