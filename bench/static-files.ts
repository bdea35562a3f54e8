/** A directory as a web site: what each path answers, and a server for it. Walk and server share these answers. */
import { createReadStream, readFileSync, statSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { extname, join } from 'node:path'
import { closeServer, listen } from '../fixtures/site/serve.js'

export type Answer =
  | { readonly kind: 'file'; readonly file: string; readonly contentType: string; readonly bytes: number }
  | { readonly kind: 'redirect'; readonly location: string }
  | { readonly kind: 'absent' }

const CONTENT_TYPES: Record<string, string> = {
  '.html': 'text/html',
  '.htm': 'text/html',
  '.xhtml': 'application/xhtml+xml',
  '.txt': 'text/plain',
  '.css': 'text/css',
  '.js': 'text/javascript',
  '.json': 'application/json',
  '.png': 'image/png',
  '.gif': 'image/gif',
  '.jpg': 'image/jpeg',
  '.svg': 'image/svg+xml',
  '.ico': 'image/x-icon',
  '.pdf': 'application/pdf',
}

/** `pathname` as in a URL: percent-encoded. WHATWG URLs have no `..` left, so what is below `root` stays there. */
export function answerFor(root: string, pathname: string): Answer {
  let decoded: string
  try {
    decoded = decodeURIComponent(pathname)
  } catch {
    return { kind: 'absent' }
  }
  if (decoded.includes('\0') || decoded.split('/').includes('..')) return { kind: 'absent' }
  const file = join(root, decoded)
  const found = statSync(file, { throwIfNoEntry: false })
  if (found?.isDirectory()) {
    if (!pathname.endsWith('/')) return { kind: 'redirect', location: `${pathname}/` }
    return fileAnswer(join(file, 'index.html'))
  }
  return decoded.endsWith('/') ? { kind: 'absent' } : fileAnswer(file)
}

function fileAnswer(file: string): Answer {
  const found = statSync(file, { throwIfNoEntry: false })
  if (found?.isFile() !== true) return { kind: 'absent' }
  const contentType = CONTENT_TYPES[extname(file).toLowerCase()] ?? 'application/octet-stream'
  return { kind: 'file', file, contentType, bytes: found.size }
}

export const readHtml = (answer: Answer): string | undefined =>
  answer.kind === 'file' && /html/.test(answer.contentType) ? readFileSync(answer.file, 'utf8') : undefined

export async function serveFiles(
  root: string,
  onAsked: (path: string) => void,
): Promise<{ readonly origin: string; close(): Promise<void> }> {
  const server = createServer((request, response) => {
    const { pathname, search } = new URL(request.url ?? '/', 'http://localhost')
    const answer = answerFor(root, pathname)
    if (answer.kind === 'redirect') {
      response.writeHead(301, { location: answer.location }).end()
    } else if (answer.kind === 'absent') {
      response.writeHead(404, { 'content-type': 'text/html' }).end('<title>Not found</title>')
    } else {
      response.writeHead(200, { 'content-type': answer.contentType, 'content-length': answer.bytes })
      createReadStream(answer.file).pipe(response)
    }
    onAsked(pathname + search)
  })
  await listen(server)
  return {
    origin: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    close: () => closeServer(server),
  }
}
