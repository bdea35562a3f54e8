/**
 * A whole crawl by Crawlee's CheerioCrawler on its storage on disk, kept from run to run: every link of the host is
 * followed, one JSON line a page.
 *
 * Usage: crawl-crawlee.js URL DIRECTORY OUTPUT
 */
import { appendFileSync } from 'node:fs'
import { peerModule } from './modules.js'

interface Context {
  readonly request: { readonly loadedUrl: string }
  $(selector: string): { text(): string }
  enqueueLinks(options: { strategy: string }): Promise<unknown>
}
interface Cheerio {
  CheerioCrawler: new (options: object, configuration: object) => { run(urls: string[]): Promise<unknown> }
  Configuration: new (options: object) => object
  log: { setLevel(level: number): void }
}
interface Storage {
  MemoryStorage: new (options: object) => object
}

const ERROR_LEVEL = 1
const [url, directory, output] = process.argv.slice(2)
const { CheerioCrawler, Configuration, log } = await peerModule<Cheerio>('@crawlee/cheerio')
const { MemoryStorage } = await peerModule<Storage>('@crawlee/memory-storage')
log.setLevel(ERROR_LEVEL)
const storageClient = new MemoryStorage({ localDataDirectory: directory, persistStorage: true })
const crawler = new CheerioCrawler(
  {
    minConcurrency: 16,
    maxConcurrency: 16,
    requestHandler: async ({ request, $, enqueueLinks }: Context) => {
      appendFileSync(output, `${JSON.stringify({ url: request.loadedUrl, title: $('title').text() })}\n`)
      await enqueueLinks({ strategy: 'same-hostname' })
    },
  },
  new Configuration({ storageClient, purgeOnStart: false, systemInfoV2: true, maxUsedCpuRatio: 1 }),
)
await crawler.run([url])
process.exit()
