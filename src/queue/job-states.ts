/** Every state a job can be in and every legal step between them, once. The engine, the docs and the model test obey it. */

export type JobState = 'ready' | 'delayed' | 'leased' | 'dead' | 'done'

export interface Transition {
  readonly verb: string
  readonly from: JobState | 'new'
  readonly to: JobState
}

export const TRANSITIONS: readonly Transition[] = [
  { verb: 'add', from: 'new', to: 'ready' },
  { verb: 'add later', from: 'new', to: 'delayed' },
  { verb: 'due', from: 'delayed', to: 'ready' },
  { verb: 'take', from: 'ready', to: 'leased' },
  { verb: 'ack', from: 'leased', to: 'done' },
  { verb: 'release', from: 'leased', to: 'ready' },
  { verb: 'retry', from: 'leased', to: 'ready' },
  { verb: 'retry later', from: 'leased', to: 'delayed' },
  { verb: 'bury', from: 'leased', to: 'dead' },
  { verb: 'expire', from: 'leased', to: 'ready' },
  { verb: 'crash', from: 'leased', to: 'ready' },
  { verb: 'out of attempts', from: 'leased', to: 'dead' },
  { verb: 'requeue', from: 'dead', to: 'ready' },
  { verb: 'drop', from: 'dead', to: 'done' },
]
