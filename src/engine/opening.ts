/** From a directory to a loaded state and a journal that goes on: R2 to R8, with everything let go when one of them fails. */
import { HoldfastError } from '../errors.js'
import { jobPaths } from '../store/file-names.js'
import type { EngineOptions } from './engine-options.js'
import { createJob, findManifest, loadState, repairTail } from './recovery.js'
import { StoreState } from './store-state.js'

export async function openJob(root: string, options: EngineOptions) {
  const { env } = options
  const build = (lifo: boolean): StoreState =>
    new StoreState({
      env,
      paths: jobPaths(root),
      kind: options.kind,
      lifo,
      limitsOf: options.limitsOf,
      maxAttempts: options.maxAttempts,
      seenMemoryBytes: options.seenMemoryBytes,
    })
  const probe = build(options.order === 'lifo')
  const found = findManifest(probe)
  if (found !== undefined && options.order !== undefined && found.order !== options.order) {
    throw new HoldfastError(
      'HOLDFAST_MISMATCH',
      `${root} was made with order '${found.order}', this open asks for '${options.order}'`,
      { path: root },
    )
  }
  const manifest = found ?? (await createJob(probe))
  const state = build(manifest.order === 'lifo')
  try {
    const loaded = loadState(state, manifest)
    const journal = repairTail(state, loaded)
    return { state, journal, created: found === undefined, ...loaded }
  } catch (error) {
    state.handles.close()
    state.seen?.close()
    throw error
  }
}
