import { defineConfig } from 'vitest/config'

export default defineConfig({
  test: { include: ['test/soak/**/*.soak.ts'], testTimeout: 3_600_000, maxWorkers: 2 },
})
