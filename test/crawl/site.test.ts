/** The generated site that demo and tests crawl: it must be the same each time, and hold what it promises. */
import { expect, test } from 'vitest'
import { generateSite, type Resource } from '../../fixtures/site/generate.js'
import { reachable } from '../../fixtures/site/walk.js'
import { extractLinks } from '../../src/crawl/extract-links.js'

test('follows from its seed', () => {
  expect(generateSite({ seed: 3, pages: 200 })).toEqual(generateSite({ seed: 3, pages: 200 }))
  expect(generateSite({ seed: 3, pages: 200 })).not.toEqual(generateSite({ seed: 4, pages: 200 }))
})

test('has what real sites have, all of it within reach', () => {
  const site = generateSite({ seed: 3, pages: 2000 })
  const found = reachable(site)
  const reached = (test: (resource: Resource) => boolean): number =>
    [...found].filter((path) => site.resources.has(path) && test(site.resources.get(path) as Resource)).length
  expect(reached(({ kind }) => kind === 'page')).toBeGreaterThan(1500)
  expect(reached(({ kind }) => kind === 'redirect')).toBeGreaterThan(10)
  expect(reached(({ kind }) => kind === 'file')).toBeGreaterThan(10)
  expect(reached((resource) => resource.kind === 'page' && resource.slow)).toBeGreaterThan(10)
  expect(reached((resource) => resource.kind === 'page' && resource.base !== undefined)).toBeGreaterThan(10)
  expect([...found].filter((path) => site.deadLinks.has(path)).length).toBeGreaterThan(10)
  expect([...found].filter((path) => path.startsWith('/private/')).length).toBeGreaterThan(10)
})

test('its pages say in HTML what its graph says', () => {
  const site = generateSite({ seed: 3, pages: 500 })
  for (const resource of site.resources.values()) {
    if (resource.kind !== 'page') continue
    const { title, links } = extractLinks(resource.html, `http://site.example${resource.path}`)
    const local = links.filter((link) => link.startsWith('http://site.example/')).map((link) => new URL(link).pathname)
    // `#top` is a link to the page itself.
    expect(new Set([...local, resource.path])).toEqual(new Set([...resource.targets, resource.path]))
    expect(title).toBe(resource.title)
  }
})
