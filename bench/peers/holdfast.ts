/**
 * Holdfast itself, through its public names only: `openQueue` where the work is a queue, `openFrontier` where URLs are
 * crawled. Its jobs are leased and acked, which does more than the peers' pops: a job whose process dies comes back.
 */
import { type Frontier, openFrontier, openQueue, type Queue, type Visit } from '../public.js'
import type { BenchRequest } from '../workload.js'
import { absent, type Driver, type OpenOptions, type Peer } from './driver.js'

type Payload = BenchRequest

const priorityOf = ({ priority }: BenchRequest): { priority: number } => ({ priority })

/** One commit for the batch: what is asked for in one turn goes to disk as one frame. */
class QueueDriver implements Driver {
  private readonly queue: Queue<Payload>

  constructor(queue: Queue<Payload>) {
    this.queue = queue
  }

  async push(batch: readonly BenchRequest[]): Promise<void> {
    await this.queue.pushAll(batch as BenchRequest[], priorityOf)
  }

  async pushOne(request: BenchRequest): Promise<void> {
    await this.queue.push(request, request)
  }

  async pop(max: number): Promise<BenchRequest[]> {
    const jobs = await this.queue.take({ max })
    await this.queue.ackAll(jobs)
    return jobs.map((job) => job.payload)
  }

  offer = (): never => absent('the queue of holdfast', 'offer')
  takeOne = this.offer
  finish = this.offer

  async settle(): Promise<void> {}

  close(): Promise<void> {
    return this.queue.close()
  }
}

class FrontierDriver implements Driver {
  private readonly frontier: Frontier
  private visit: Visit | undefined

  constructor(frontier: Frontier) {
    this.frontier = frontier
  }

  async push(batch: readonly BenchRequest[]): Promise<void> {
    await this.frontier.add(batch as BenchRequest[], { dontFilter: true })
  }

  async pushOne(request: BenchRequest): Promise<void> {
    await this.frontier.add(request, { dontFilter: true })
  }

  async pop(max: number): Promise<BenchRequest[]> {
    const visits = await this.frontier.take({ max })
    await this.frontier.ackAll(visits)
    return visits.map(requestOf)
  }

  async offer(batch: readonly BenchRequest[]): Promise<number> {
    return (await this.frontier.add(batch as BenchRequest[])).added
  }

  async takeOne(): Promise<BenchRequest | undefined> {
    const [visit] = await this.frontier.take()
    this.visit = visit
    return visit === undefined ? undefined : requestOf(visit)
  }

  async finish(links: readonly BenchRequest[]): Promise<number> {
    return (await (this.visit as Visit).ack({ add: links as BenchRequest[] })).added
  }

  async settle(): Promise<void> {}

  close(): Promise<void> {
    return this.frontier.close()
  }
}

function requestOf({ url, priority, meta }: Visit): BenchRequest {
  return { url, priority, meta: meta as BenchRequest['meta'] }
}

/** A warning means that a promise was not kept as usual: no figure may be printed over it. */
function refuseWarnings(store: Frontier | Queue<Payload>): void {
  store.on('warning', ({ code, message }) => {
    throw new Error(`holdfast warned ${code}: ${message}`)
  })
}

async function open({ directory, durability, layout }: OpenOptions): Promise<Driver> {
  if (layout === 'queue') {
    const queue = await openQueue<Payload>(directory, { durability })
    refuseWarnings(queue)
    return new QueueDriver(queue)
  }
  const frontier = await openFrontier(directory, { durability })
  refuseWarnings(frontier)
  return new FrontierDriver(frontier)
}

export const holdfast: Peer = {
  name: 'holdfast',
  order: 'priority',
  share: 1,
  setting: 'defaults, durability process / power; push in one turn, take + ack in one commit; ack with the links found',
  lacks: () => undefined,
  load: async () => open,
}
