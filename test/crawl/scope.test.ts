import { describe, expect, test } from 'vitest'
import { domainOf, Scope } from '../../src/crawl/scope.js'

describe('host', () => {
  const scope = new Scope('host', ['http://site.example/a/b', 'http://two.example:8080/'])

  test.each([
    ['http://site.example/', true],
    ['https://site.example/x', true],
    ['http://two.example:8080/x', true],
    ['http://two.example/', false],
    ['http://www.site.example/', false],
    ['http://site.example.evil.example/', false],
    ['http://evil.example/site.example/', false],
    ['http://site.example@evil.example/', false],
  ])('%s: %s', (url, expected) => {
    expect(scope.includes(url)).toBe(expected)
  })
})

describe('domain', () => {
  const scope = new Scope('domain', ['https://docs.site.example/', 'http://127.0.0.1:3000/', 'http://localhost/'])

  test.each([
    ['http://site.example/', true],
    ['http://a.b.site.example:81/', true],
    ['http://othersite.example/', false],
    ['http://127.0.0.1/', true],
    ['http://127.0.0.2/', false],
    ['http://1.0.0.1/', false],
    ['http://localhost:9/', true],
    ['http://a.localhost/', false],
  ])('%s: %s', (url, expected) => {
    expect(scope.includes(url)).toBe(expected)
  })

  test('is the last two labels, or the whole of what has none', () => {
    expect(domainOf('a.b.co.uk')).toBe('co.uk')
    expect(domainOf('site.example.')).toBe('site.example')
    expect(domainOf('[::1]')).toBe('[::1]')
    expect(domainOf('10.1.2.3')).toBe('10.1.2.3')
    expect(domainOf('intranet')).toBe('intranet')
  })
})

describe('prefix', () => {
  const scope = new Scope('prefix', ['http://site.example/docs/index.html', 'http://two.example/a/b/'])

  test.each([
    ['http://site.example/docs/', true],
    ['http://site.example/docs/x/y?z', true],
    ['http://site.example/docs', false],
    ['http://site.example/docs2/', false],
    ['http://site.example/', false],
    ['https://site.example/docs/', false],
    ['http://two.example/a/b/c', true],
    ['http://two.example/a/', false],
  ])('%s: %s', (url, expected) => {
    expect(scope.includes(url)).toBe(expected)
  })
})

test('any is any', () => {
  expect(new Scope('any', []).includes('https://elsewhere.example/')).toBe(true)
})

test('an admitted URL counts as a seed', () => {
  const scope = new Scope('host', ['http://site.example/'])
  expect(scope.includes('https://www.site.example/')).toBe(false)
  scope.admit('https://www.site.example/')
  expect(scope.includes('https://www.site.example/x')).toBe(true)
})

test('every seed is inside its own scope', () => {
  const seeds = ['http://a.example', 'https://a.b.example:8443/x/y.html?q', 'http://[::1]:80/z', 'http://1.2.3.4/']
  for (const kind of ['host', 'domain', 'prefix', 'any'] as const) {
    for (const seed of seeds) expect(new Scope(kind, [seed]).includes(seed)).toBe(true)
  }
})
