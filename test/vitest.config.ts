import { defineConfig } from 'vitest/config'

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    testTimeout: 60_000,
    hookTimeout: 60_000,
    // Child processes and exhaustive simulations share two cores.
    maxWorkers: 2,
  },
})
