/** What an opening believes: the manifest and what it names. Whatever does not fit is refused, and nothing is changed. */
import { describe, expect, test } from 'vitest'
import { crc32 } from '../../src/bytes/crc32.js'
import type { SimFileSystem } from '../../src/env/sim-file-system.js'
import { openQueue } from '../../src/frontier/queue.js'
import { HEADER_CRC_SEED } from '../../src/store/format.js'
import { decodeJson, encodeJson } from '../../src/store/json-file.js'
import { DIRECTORY, openWorld, pages, QUEUE, refusal, takeUrls, type World } from '../frontier/world.js'

const ACTIVE = `${QUEUE}/active.json`
const INFO = `${QUEUE}/0/info.json`
const SEGMENT = `${QUEUE}/0/q00000`

/** Closed, with segments, user data and a journal behind the checkpoint. */
async function closedJob(): Promise<World> {
  const world = await openWorld({ tuning: { carryBucketBytes: 0, segmentBytes: 1e5 } })
  await world.frontier.add(pages('a', 0, 30))
  await world.frontier.checkpoint()
  await world.frontier.add(pages('b', 0, 5))
  await world.close()
  world.move()
  return world
}

function edit(files: SimFileSystem, path: string, change: (bytes: Buffer) => Buffer): void {
  files.setContents(path, change(Buffer.from(files.contents(path))))
}

/** Other fields in a file of JSON, with the checksum that belongs to them. */
function editJson(files: SimFileSystem, path: string, fields: object): void {
  edit(files, path, (bytes) => encodeJson({ ...decodeJson(bytes, path), ...fields }))
}

/** Another format number in a header, with the checksum that belongs to it. */
function newerHeader(bytes: Buffer): Buffer {
  bytes.writeUInt32LE(2, 8)
  bytes.writeUInt32LE(crc32(bytes.subarray(0, 60), HEADER_CRC_SEED), 60)
  return bytes
}

async function expectRefused(world: World, code: string, path: string): Promise<void> {
  const before = world.disk()
  const error = await refusal(world.open())
  expect([error.code, error.path]).toEqual([code, path])
  expect(world.disk()).toEqual(before)
  expect(world.env.files.openHandles()).toBe(0)
  // The lock was given back: it is refused for the same reason again.
  expect((await refusal(world.open())).code).toBe(code)
}

describe('a newer format', () => {
  test.each<[string, (files: SimFileSystem) => void]>([
    [ACTIVE, (files) => editJson(files, ACTIVE, { format: 2, more: true })],
    [INFO, (files) => editJson(files, INFO, { format: 2 })],
    [SEGMENT, (files) => edit(files, SEGMENT, newerHeader)],
    [`${QUEUE}/journal/00000002.log`, (files) => edit(files, `${QUEUE}/journal/00000002.log`, newerHeader)],
  ])('in %s is unsupported, not damage', async (path, change) => {
    const world = await closedJob()
    change(world.env.files)
    await expectRefused(world, 'HOLDFAST_UNSUPPORTED_FORMAT', path)
  })
})

describe('another kind or order', () => {
  test('a frontier is no queue', async () => {
    const world = await closedJob()
    const before = world.disk()
    const error = await refusal(openQueue(DIRECTORY, { env: world.env }))
    expect([error.code, error.path]).toEqual(['HOLDFAST_MISMATCH', DIRECTORY])
    expect(world.disk()).toEqual(before)
    await world.open()
    await world.close()
  })

  test('the order is fixed when the directory is made, and kept when it is not said', async () => {
    const world = await closedJob()
    const error = await refusal(world.open({ order: 'lifo' }))
    expect([error.code, error.message]).toEqual(['HOLDFAST_MISMATCH', expect.stringMatching(/'fifo'.*'lifo'/)])
    await world.open({ order: 'fifo' })
    await world.close()

    const lifo = await openWorld({ order: 'lifo' })
    await lifo.frontier.add(pages('a', 0, 3))
    await lifo.frontier.close()
    lifo.move()
    const { order: _, ...silent } = lifo.options
    Object.assign(lifo, { options: silent })
    expect(await takeUrls(await lifo.open())).toEqual(pages('a', 0, 3).toReversed())
    await lifo.close()
  })
})

describe('what is missing or not what it was', () => {
  test('active.json is missing', async () => {
    const world = await closedJob()
    world.env.files.unlink(ACTIVE)
    await expectRefused(world, 'HOLDFAST_CORRUPT', ACTIVE)
  })

  test('active.json is missing and so are the journals, but there are buckets', async () => {
    const world = await closedJob()
    world.env.files.unlink(ACTIVE)
    world.env.files.unlink(`${QUEUE}/journal/00000002.log`)
    await expectRefused(world, 'HOLDFAST_CORRUPT', ACTIVE)
  })

  test.each([
    ['one bit flipped', (bytes: Buffer) => bytes.fill(bytes[40] ^ 1, 40, 41)],
    ['cut short', (bytes: Buffer) => bytes.subarray(0, bytes.length - 5)],
    ['empty', () => Buffer.alloc(0)],
    ['zeros', (bytes: Buffer) => bytes.fill(0)],
  ])('active.json has %s', async (_what, change) => {
    const world = await closedJob()
    edit(world.env.files, ACTIVE, change)
    await expectRefused(world, 'HOLDFAST_CORRUPT', ACTIVE)
  })

  test('a segment is missing', async () => {
    const world = await closedJob()
    world.env.files.unlink(SEGMENT)
    const error = await refusal(world.open())
    expect([error.code, error.path]).toEqual(['HOLDFAST_CORRUPT', SEGMENT])
  })

  test('a segment is shorter, or longer', async () => {
    for (const change of [
      (b: Buffer) => b.subarray(0, b.length - 1),
      (b: Buffer) => Buffer.concat([b, Buffer.alloc(1)]),
    ]) {
      const world = await closedJob()
      edit(world.env.files, SEGMENT, change)
      await expectRefused(world, 'HOLDFAST_CORRUPT', SEGMENT)
    }
  })

  test('a segment is an older one of the same name', async () => {
    const world = await openWorld({ tuning: { carryBucketBytes: 0, segmentBytes: 1e5 } })
    await world.frontier.add(pages('a', 0, 30))
    await world.frontier.checkpoint()
    const old = world.env.files.contents(SEGMENT)
    for (const visit of await world.frontier.take({ max: 30 })) await visit.ack()
    await world.frontier.checkpoint()
    await world.frontier.add(pages('b', 0, 30))
    await world.frontier.checkpoint()
    const now = world.env.files.contents(SEGMENT)
    await world.close()
    world.move()
    expect(old.length).toBe(now.length)
    world.env.files.setContents(SEGMENT, old)
    await expectRefused(world, 'HOLDFAST_CORRUPT', SEGMENT)
  })

  test('a segment of another job', async () => {
    const world = await closedJob()
    const other = await openWorld({ tuning: { carryBucketBytes: 0, segmentBytes: 1e5 } })
    // Not the very same randomness, or it would be the very same job.
    other.env.random.uint32()
    other.move(new (other.env.files.constructor as new () => SimFileSystem)())
    await other.open()
    await other.frontier.add(pages('a', 0, 30))
    await other.frontier.checkpoint()
    world.env.files.setContents(SEGMENT, other.env.files.contents(SEGMENT))
    await expectRefused(world, 'HOLDFAST_CORRUPT', SEGMENT)
    await other.close()
  })

  test('info.json is missing, or of another bucket', async () => {
    const world = await closedJob()
    const info = world.env.files.contents(INFO)
    world.env.files.unlink(INFO)
    await expectRefused(world, 'HOLDFAST_CORRUPT', INFO)
    world.env.files.setContents(INFO, info)
    editJson(world.env.files, INFO, { bucket: '7' })
    await expectRefused(world, 'HOLDFAST_CORRUPT', INFO)
  })

  test('the only journal is missing, or empty', async () => {
    const world = await closedJob()
    const path = `${QUEUE}/journal/00000002.log`
    edit(world.env.files, path, () => Buffer.alloc(0))
    await expectRefused(world, 'HOLDFAST_CORRUPT', path)
    world.env.files.unlink(path)
    await expectRefused(world, 'HOLDFAST_CORRUPT', path)
  })

  test('a journal cut at the edge of a frame after a clean close', async () => {
    const world = await closedJob()
    const path = `${QUEUE}/journal/00000002.log`
    const bytes = world.env.files.contents(path)
    let at = 64
    const edges: number[] = []
    while (at < bytes.length) {
      edges.push(at)
      at += 9 + bytes.readUInt32LE(at)
    }
    expect(edges.length).toBeGreaterThan(2)
    for (const edge of edges) {
      world.env.files.setContents(path, bytes.subarray(0, edge))
      await expectRefused(world, 'HOLDFAST_CORRUPT', path)
    }
  })

  test('a journal in the middle is removed', async () => {
    const world = await openWorld({ tuning: { carryBucketBytes: 0 } })
    await world.frontier.add(pages('a', 0, 30))
    // A checkpoint that fails leaves its journal beside the old one; here twice.
    for (let i = 0; i < 2; i++) {
      world.env.files.failAt(4, { kind: 'EIO', sticky: true })
      await refusal(world.frontier.checkpoint())
      world.env.files.clearFaults()
      await world.frontier.add(pages(`b${i}`, 0, 5))
    }
    await world.close()
    world.move()
    const journals = world.env.files.readDirectory(`${QUEUE}/journal`)
    expect(journals).toHaveLength(3)
    const middle = `${QUEUE}/journal/${journals[1]}`
    world.env.files.unlink(middle)
    await expectRefused(world, 'HOLDFAST_CORRUPT', middle)
  })

  test('a seen-set run is missing', async () => {
    const world = await closedJob()
    const run = world.env.files.allFiles().find((path) => path.includes('/requests.seen/')) as string
    world.env.files.unlink(run)
    await expectRefused(world, 'HOLDFAST_CORRUPT', run)
  })
})

describe('what is not ours', () => {
  test('foreign files beside and between are left alone, and so is their content', async () => {
    const world = await closedJob()
    const foreign = [`${DIRECTORY}/notes.txt`, `${QUEUE}/0/README`, `${QUEUE}/journal/old.bak`, `${QUEUE}/extra/x`]
    for (const path of foreign) world.env.files.setContents(path, Buffer.from(path))
    const frontier = await world.open()
    for (const visit of await frontier.take({ max: 100 })) await visit.ack()
    await frontier.checkpoint()
    await world.close()
    for (const path of foreign) expect(world.env.files.contents(path).toString()).toBe(path)
  })
})
