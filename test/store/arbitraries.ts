/** Any job and any record, for property tests. */
import fc from 'fast-check'
import type { JobMeaning, RecordMeaning, RequestMeaning } from '../../fixtures/formats/journal-fixture.js'
import { JOB_HAS_FINGERPRINT, JOB_SEEN, JOB_START } from '../../src/store/format.js'

const text = fc.string({ unit: 'grapheme', maxLength: 20 })
const number = fc.oneof(fc.nat(300), fc.maxSafeNat())
const hex = (bytes: number): fc.Arbitrary<string> =>
  fc.uint8Array({ minLength: bytes, maxLength: bytes }).map((some) => Buffer.from(some).toString('hex'))
const anyHex = fc.uint8Array({ maxLength: 60 }).map((some) => Buffer.from(some).toString('hex'))

const request: fc.Arbitrary<RequestMeaning> = fc
  .record(
    {
      url: text,
      method: fc.constantFrom('GET', 'POST', 'HEAD'),
      body: anyHex,
      headers: fc.dictionary(fc.string(), fc.string(), { noNullPrototype: true }),
      meta: fc.dictionary(fc.string(), fc.oneof(fc.boolean(), fc.nat(), text, fc.constant(null)), {
        noNullPrototype: true,
      }),
    },
    { requiredKeys: ['url', 'method'], noNullPrototype: true },
  )
  // A key of this name is not data but the prototype, for which the codec is not to blame.
  .filter(({ headers, meta }) => !Object.hasOwn(headers ?? {}, '__proto__') && !Object.hasOwn(meta ?? {}, '__proto__'))

export const jobOf: fc.Arbitrary<JobMeaning> = fc
  .record({
    start: fc.boolean(),
    seen: fc.boolean(),
    id: number,
    priority: fc.oneof(fc.integer({ min: -100, max: 100 }), fc.maxSafeInteger()),
    addedAt: number,
    slot: text,
    fingerprint: fc.option(hex(16), { nil: undefined }),
    request,
  })
  .map(({ start, seen, fingerprint, ...job }) => ({
    flags: (start ? JOB_START : 0) | (seen ? JOB_SEEN : 0) | (fingerprint === undefined ? 0 : JOB_HAS_FINGERPRINT),
    ...job,
    ...(fingerprint !== undefined && { fingerprint }),
  }))

const home = fc.oneof(
  fc.constant({ segment: 0, ordinal: 0 }),
  fc.record({ segment: number.map((n) => Math.max(1, n)), ordinal: number }),
)

const record = (
  type: RecordMeaning['type'],
  fields: Record<string, fc.Arbitrary<unknown>>,
  at: fc.Arbitrary<object> = fc.constant({}),
): fc.Arbitrary<RecordMeaning> =>
  fc.tuple(fc.record(fields), at).map(([some, place]) => ({ type, ...place, ...some }) as unknown as RecordMeaning)

export const recordOf: fc.Arbitrary<RecordMeaning> = fc.oneof(
  record('add', { due: number, job: jobOf }),
  record('carry', { state: fc.nat(3), attempt: number, failures: number, due: number, reason: text, job: jobOf }, home),
  record('take', { id: number, attempt: number }, home),
  record('ack', { id: number }, home),
  record('requeue', { id: number }, home),
  record('drop', { id: number }, home),
  record('retry', { id: number, attempt: number, failures: number, due: number, reason: text }, home),
  record('bury', { id: number, attempt: number, failures: number, reason: text }, home),
  record('release', { id: number, attempt: number, expired: fc.boolean() }, home),
  record('seen', { fingerprint: hex(16) }),
  record('forget', { fingerprint: hex(16) }),
  record('set', { key: text, value: anyHex }),
  record('unset', { key: text }),
  record('slot', { name: text, notBefore: number }),
  record('open', { recovered: number }),
  record('duplicates', { count: number }),
  record('close', {}),
)
