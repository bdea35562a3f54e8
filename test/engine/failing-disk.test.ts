/** I/O errors and damage: what is refused, what closes the store, what is put aside, and that nothing is lost by it. */
import { describe, expect, test } from 'vitest'
import type { JobFields } from '../../src/engine/adder.js'
import type { Engine } from '../../src/engine/engine.js'
import type { SimFileSystem } from '../../src/env/sim-file-system.js'
import { HoldfastError } from '../../src/errors.js'
import { type Frontier, openFrontier } from '../../src/frontier/frontier.js'
import { DIRECTORY, deadLetters, openWorld, pages, QUEUE, refusal, takeUrls, World } from '../frontier/world.js'

/** The sync that follows so many other calls fails. */
function failNextSync(files: SimFileSystem, callsBefore: number): void {
  files.failAt(callsBefore, { kind: 'EIO' })
}

describe('a failed fsync', () => {
  test('refuses everything that waits, closes the store, and a new opening goes on', async () => {
    const world = await openWorld({ durability: 'power' })
    const { frontier, env } = world
    await frontier.add(pages('a', 0, 3))
    const [visit] = await frontier.take()
    // One write, then its sync.
    failNextSync(env.files, 1)
    const calls = await Promise.allSettled([frontier.add(pages('b', 0, 2)), visit.ack(), frontier.setState({ n: 1 })])
    for (const call of calls) expect(call).toMatchObject({ status: 'rejected', reason: { code: 'HOLDFAST_IO' } })
    expect(frontier.closed).toBe(true)
    expect([visit.live, visit.signal.aborted]).toEqual([false, true])
    const later: Promise<unknown>[] = [
      frontier.add('http://c.test/'),
      frontier.take(),
      frontier.setState({}),
      frontier.pauseSlot('a.test', 1),
      frontier.requeue(),
      frontier.checkpoint(),
      visit.ack(),
    ]
    for (const call of later) expect((await refusal(call)).code).toBe('HOLDFAST_IO')
    await frontier.close()
    expect(env.files.openHandles()).toBe(0)
    const again = await world.dieAndReopen('lost')
    expect(await takeUrls(again)).toEqual(pages('a', 0, 3))
    await world.close()
  })

  test('the lock is given back at once', async () => {
    const world = await openWorld({ durability: 'power' })
    failNextSync(world.env.files, 1)
    await refusal(world.frontier.add('http://a.test/'))
    await world.env.clock.settle()
    world.env.files.clearFaults()
    await world.open()
    await world.close()
  })

  test('calls that came while the sync ran are refused as well', async () => {
    const world = await openWorld({ durability: 'power' })
    failNextSync(world.env.files, 1)
    const first = refusal(world.frontier.add('http://a.test/1'))
    await Promise.resolve()
    const second = refusal(world.frontier.add('http://a.test/2'))
    expect([(await first).code, (await second).code]).toEqual(['HOLDFAST_IO', 'HOLDFAST_IO'])
    await world.frontier.close()
  })

  test('in the background it closes the store and says so', async () => {
    const world = await openWorld({ syncEveryMs: 1000 })
    const warnings: string[] = []
    world.frontier.on('warning', (warning) => warnings.push(warning.code))
    await world.frontier.add(pages('a', 0, 3))
    failNextSync(world.env.files, 0)
    await world.env.clock.advance(1000)
    expect([world.frontier.closed, warnings]).toEqual([true, ['failed']])
    expect(await takeUrls(await world.dieAndReopen())).toEqual(pages('a', 0, 3))
    await world.close()
  })

  test('a loop that waits ends with it', async () => {
    const world = await openWorld({ syncEveryMs: 1000 })
    await world.frontier.add('http://a.test/', { notBefore: world.env.clock.now() + 1e6 })
    const loop = (async () => {
      for await (const visit of world.frontier.visits()) throw new Error(visit.url)
    })()
    failNextSync(world.env.files, 0)
    await world.env.clock.advance(1000)
    await loop
    expect(world.frontier.closed).toBe(true)
  })
})

describe('a segment that cannot be read', () => {
  const segmented = async (): Promise<World> => {
    const world = await openWorld({ tuning: { carryBucketBytes: 0, segmentBytes: 1e5 } })
    await world.frontier.add(pages('a', 0, 40))
    await world.frontier.checkpoint()
    return world
  }

  test('take is refused naming the file, nothing is skipped, and it works again', async () => {
    const world = await segmented()
    world.env.files.failReads('q00000')
    const error = await refusal(world.frontier.take({ max: 3 }))
    expect([error.code, error.path]).toEqual(['HOLDFAST_IO', `${QUEUE}/0/q00000`])
    expect(world.frontier.closed).toBe(false)
    expect((await world.frontier.stats()).ready).toBe(40)
    await world.frontier.add('http://b.test/')
    world.env.files.clearFaults()
    expect(await takeUrls(world.frontier)).toHaveLength(41)
    await world.close()
  })

  test('what could be taken before it is handed out', async () => {
    const world = await segmented()
    await world.frontier.add('http://b.test/', { priority: 9 })
    world.env.files.failReads('q00000')
    expect((await world.frontier.take({ max: 5 })).map((visit) => visit.url)).toEqual(['http://b.test/'])
    await refusal(world.frontier.take({ max: 5 }))
    world.env.files.clearFaults()
    expect((await world.frontier.stats()).leased).toBe(1)
    await world.close()
  })

  test('a crawl ends with the error', async () => {
    const world = await segmented()
    world.env.files.failReads('q00000')
    await expect(world.frontier.crawl(() => {})).rejects.toMatchObject({ code: 'HOLDFAST_IO' })
    world.env.files.clearFaults()
    await world.close()
  })

  test('one flipped bit is damage, told with file and offset; nothing is skipped', async () => {
    const world = await segmented()
    world.env.files.corrupt(`${QUEUE}/0/q00000`, 100, 4)
    const error = await refusal(world.frontier.take())
    expect([error.code, error.path, error.offset]).toEqual(['HOLDFAST_CORRUPT', `${QUEUE}/0/q00000`, 64])
    world.env.files.corrupt(`${QUEUE}/0/q00000`, 100, 4)
    expect(await takeUrls(world.frontier)).toEqual(pages('a', 0, 40))
    await world.close()
  })

  test('delayed jobs that cannot be read are told of and come when they can', async () => {
    const world = await openWorld({ tuning: { carryBucketBytes: 0 } })
    await world.frontier.add(pages('a', 0, 5), { notBefore: world.env.clock.now() + 90_000 })
    await world.frontier.checkpoint()
    const warnings: string[] = []
    world.frontier.on('warning', (warning) => warnings.push(warning.code))
    world.env.files.failReads('/delayed/')
    await world.env.clock.advance(100_000)
    expect(warnings).toContain('read-failed')
    expect((await refusal(world.frontier.take())).path).toBe(`${QUEUE}/delayed/q00000`)
    world.env.files.clearFaults()
    expect(await takeUrls(world.frontier)).toEqual(pages('a', 0, 5))
    await world.close()
  })
})

describe('one job that cannot be decoded', () => {
  /** Puts a job with these bytes as payload beside the others, as a faulty writer would have. */
  async function addRaw(frontier: Frontier, payload: Uint8Array): Promise<void> {
    const fields: JobFields = {
      priority: 0,
      start: false,
      slotText: 'a.test',
      slotStart: 0,
      slotEnd: 6,
      due: 0,
      fingerprint: undefined,
      checkSeen: false,
      recordSeen: false,
    }
    const { engine } = frontier as unknown as { engine: Engine }
    await engine.add((into) => {
      into.begin(fields)
      into.writer.bytes(payload)
      into.end()
    })
  }

  test.each<[string, number[]]>([
    ['nothing', []],
    ['an unknown shape', [200, 1, 2]],
    ['a URL cut short', [0, 50, 104]],
    ['bytes behind the request', [0, 1, 104, 9]],
    ['CBOR cut short', [4, 1, 104, 0x99, 0xff, 0xff]],
    ['CBOR that is no object', [4, 1, 104, 0x01]],
  ])('%s goes to the dead letters with the reason, and the rest goes on', async (_name, payload) => {
    const world = await openWorld({ tuning: { carryBucketBytes: 0 } })
    await world.frontier.add('http://a.test/1')
    await addRaw(world.frontier, Uint8Array.from(payload))
    await world.frontier.add('http://a.test/2')
    await world.frontier.checkpoint()
    const frontier = await world.dieAndReopen()
    const warnings: string[] = []
    frontier.on('warning', (warning) => warnings.push(warning.code))
    expect((await frontier.take({ max: 2 })).map((visit) => visit.url)).toEqual(pages('a', 1, 3))
    await world.env.clock.settle()
    expect(warnings).toEqual(['undecodable'])
    const again = await world.dieAndReopen()
    const [letter] = await deadLetters(again)
    expect(letter).toMatchObject({ id: 2, payload: undefined })
    expect(letter.reason).toMatch(/^undecodable: /)
    expect([...letter.raw]).toEqual(payload)
    expect(await again.dropDead()).toBe(1)
    await world.close()
  })
})

describe('an opening that fails', () => {
  const job = async (): Promise<World> => {
    const world = await openWorld({ tuning: { carryBucketBytes: 0 } })
    await world.frontier.add(pages('a', 0, 40))
    await world.frontier.checkpoint()
    await world.frontier.add(pages('b', 0, 3))
    await world.close()
    world.move()
    return world
  }

  test('too many open files, at each file it reads: told clearly, and the lock is given back', async () => {
    const world = await job()
    const paths = world.env.files.allFiles().filter((path) => !path.endsWith('/reserve'))
    expect(paths.length).toBeGreaterThan(4)
    for (const path of paths) {
      world.env.files.failReads(path, 'EMFILE')
      const error = await refusal(world.open())
      expect([error.code, error.path]).toEqual(['HOLDFAST_IO', path])
      expect(error.message).toMatch(/too many open files/)
      world.env.files.clearFaults()
      expect(world.env.files.openHandles()).toBe(0)
      await world.open()
      await world.close()
    }
  })

  test('any call of a first opening that cannot have a descriptor', async () => {
    for (let k = 0; ; k++) {
      const world = new World({})
      world.env.files.failAt(k, { kind: 'EMFILE' })
      const error = await world.open().catch((reason) => reason)
      if (!world.env.files.hit) break
      if (error instanceof HoldfastError) {
        expect(error.code).toBe('HOLDFAST_IO')
        await world.open()
      }
      await world.frontier.add('http://a.test/')
      await world.close()
    }
  })

  test('on a read-only disk: told clearly, nothing changed, and later it works', async () => {
    const world = await job()
    const before = world.disk()
    world.env.files.readOnly = true
    const error = await refusal(world.open())
    expect(error.code).toBe('HOLDFAST_IO')
    expect(error.message).toMatch(/read-only file system/)
    expect(world.disk()).toEqual(before)
    world.env.files.readOnly = false
    expect((await (await world.open()).stats()).ready).toBe(43)
    await world.close()
  })

  test('the directory is a file', async () => {
    const world = new World({})
    world.env.files.setContents(DIRECTORY, Buffer.from('x'))
    expect((await refusal(world.open())).code).toBe('HOLDFAST_IO')
  })

  test('no directory is a mistake of the caller', async () => {
    const { env } = new World({})
    await expect(openFrontier('', { env })).rejects.toThrow(TypeError)
    expect(env.files.allFiles()).toEqual([])
  })
})
