/** Where the golden files are, and how a directory of them gets onto a disk. */
import { readdirSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import type { SimFileSystem } from '../../src/env/sim-file-system.js'

export const V1 = fileURLToPath(new URL('../../fixtures/formats/v1/', import.meta.url))

export const golden = (name: string): Buffer => readFileSync(V1 + name)
export const goldenText = (name: string): string => readFileSync(V1 + name, 'utf8')
export const goldenJson = <T>(name: string): T => JSON.parse(goldenText(name)) as T

/** Paths of all files in a golden directory, relative to it. */
export function goldenFiles(name: string): string[] {
  return readdirSync(V1 + name, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => `${entry.parentPath}/${entry.name}`.slice(V1.length + name.length + 1))
    .sort()
}

/** Puts a golden directory onto a simulated disk. */
export function putGolden(files: SimFileSystem, name: string, directory: string): void {
  for (const file of goldenFiles(name)) files.setContents(`${directory}/${file}`, golden(`${name}/${file}`))
}

/** As JSON has it: without what is undefined. */
export const asJson = (value: unknown): unknown => JSON.parse(JSON.stringify(value))
