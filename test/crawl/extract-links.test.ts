import { describe, expect, test } from 'vitest'
import {
  extractLinks,
  LINK_CHARS_MAX,
  LINKS_MAX,
  LinkExtractor,
  resolveLink,
  saysNofollow,
} from '../../src/crawl/extract-links.js'

const PAGE = 'http://site.example/dir/page.html?q=1'

const linksOf = (html: string, url = PAGE): string[] => extractLinks(html, url).links

describe('links', () => {
  test.each([
    ['absolute', '<a href="http://other.example/x">', 'http://other.example/x'],
    ['https', '<a href="https://other.example/">', 'https://other.example/'],
    ['relative', '<a href="x.html">', 'http://site.example/dir/x.html'],
    ['up', '<a href="../x.html">', 'http://site.example/x.html'],
    ['up too far', '<a href="../../../x.html">', 'http://site.example/x.html'],
    ['from the root', '<a href="/x">', 'http://site.example/x'],
    ['without scheme', '<a href="//other.example/x">', 'http://other.example/x'],
    ['query only', '<a href="?q=2">', 'http://site.example/dir/page.html?q=2'],
    ['fragment only', '<a href="#part">', PAGE],
    ['empty', '<a href="">', PAGE],
    ['with a fragment', '<a href="x#part">', 'http://site.example/dir/x'],
    ['spaces around', '<a href=" \n x.html\t">', 'http://site.example/dir/x.html'],
    ['newline inside', '<a href="x\n.html">', 'http://site.example/dir/x.html'],
    ['space inside', '<a href="a b.html">', 'http://site.example/dir/a%20b.html'],
    ['entity', '<a href="x?a=1&amp;b=2">', 'http://site.example/dir/x?a=1&b=2'],
    ['bare ampersand', '<a href="x?a=1&b=2">', 'http://site.example/dir/x?a=1&b=2'],
    ['non-ASCII', '<a href="/é?ü">', 'http://site.example/%C3%A9?%C3%BC'],
    ['international host', '<a href="http://bücher.example/">', 'http://xn--bcher-kva.example/'],
    ['default port', '<a href="http://site.example:80/x">', 'http://site.example/x'],
    ['other port', '<a href="http://site.example:81/x">', 'http://site.example:81/x'],
    ['upper case', '<A HREF="HTTP://Site.Example/X">', 'http://site.example/X'],
    ['unquoted', '<a href=x.html>', 'http://site.example/dir/x.html'],
    ['single quotes', "<a href='x.html'>", 'http://site.example/dir/x.html'],
    ['backslashes', '<a href="\\x\\y">', 'http://site.example/x/y'],
    ['area', '<map><area href="x.html"></map>', 'http://site.example/dir/x.html'],
    ['rel=nofollow', '<a rel="nofollow" href="x.html">', 'http://site.example/dir/x.html'],
    ['in noscript', '<noscript><a href="x.html"></a></noscript>', 'http://site.example/dir/x.html'],
    ['unclosed tags before', '<p><b><a href="x.html">', 'http://site.example/dir/x.html'],
  ])('%s', (_name, html, expected) => {
    expect(linksOf(html)).toEqual([expected])
  })

  test.each([
    ['mail', '<a href="mailto:a@b.example">'],
    ['script', '<a href="javascript:void(0)">'],
    ['data', '<a href="data:text/html,x">'],
    ['ftp', '<a href="ftp://site.example/x">'],
    ['telephone', '<a href="tel:+1">'],
    ['not a URL', '<a href="http://[">'],
    ['no host', '<a href="http://">'],
    ['no href', '<a name="x">'],
    ['a link element', '<link href="style.css">'],
    ['an image', '<img src="x.png">'],
    ['a comment', '<!-- <a href="x.html"> -->'],
    ['script text', '<script>"<a href=x.html>"</script>'],
    ['style text', '<style>/* <a href=x.html> */</style>'],
    ['text area', '<textarea><a href="x.html"></textarea>'],
    ['a tag that is cut short', '<a href="x.html'],
  ])('%s is none', (_name, html) => {
    expect(linksOf(html)).toEqual([])
  })

  test('keep their order, and each is there once', () => {
    const html = '<a href="b"><a href="a"><a href="./b"><a href="b#x"><a href="c"><a href="a">'
    expect(linksOf(html)).toEqual(['b', 'a', 'c'].map((name) => `http://site.example/dir/${name}`))
  })

  test('a page may be written in pieces that cut tags and entities', () => {
    const html = '<title>A &amp; B</title><a href="x?a=1&amp;b=2">x</a><a href="y">'
    const whole = extractLinks(html, PAGE)
    for (let cut = 1; cut < html.length; cut++) {
      const extractor = new LinkExtractor(PAGE)
      extractor.write(html.slice(0, cut))
      extractor.write(html.slice(cut))
      expect(extractor.end()).toEqual(whole)
    }
  })
})

describe('base', () => {
  test('counts for links before it too', () => {
    expect(linksOf('<a href="x"><base href="/other/"><a href="y">')).toEqual([
      'http://site.example/other/x',
      'http://site.example/other/y',
    ])
  })

  test('is itself relative to the page', () => {
    expect(linksOf('<base href="sub/"><a href="x">')).toEqual(['http://site.example/dir/sub/x'])
  })

  test('the first with an href counts', () => {
    expect(linksOf('<base target="_top"><base href="/a/"><base href="/b/"><a href="x">')).toEqual([
      'http://site.example/a/x',
    ])
  })

  test('on another host takes links there', () => {
    expect(linksOf('<base href="https://cdn.example/z/"><a href="x">')).toEqual(['https://cdn.example/z/x'])
  })

  test.each(['http://[', 'javascript:0', `/${'a'.repeat(LINK_CHARS_MAX)}/`])('%.20s is no base', (base) => {
    expect(linksOf(`<base href="${base}"><a href="x">`)).toEqual(['http://site.example/dir/x'])
  })
})

describe('nofollow', () => {
  test.each(['nofollow', 'noindex, nofollow', 'none', 'NoFollow'])('robots meta %s hides all links', (content) => {
    const page = extractLinks(`<title>T</title><a href="x"><meta name="Robots" content="${content}"><a href="y">`, PAGE)
    expect(page).toEqual({ title: 'T', links: [] })
  })

  test.each(['noindex', 'index, follow', '', 'unfollow'])('robots meta "%s" hides none', (content) => {
    expect(linksOf(`<meta name="robots" content="${content}"><a href="x">`)).toHaveLength(1)
  })

  test('another meta with that word hides none', () => {
    expect(linksOf('<meta name="description" content="nofollow"><a href="x">')).toHaveLength(1)
  })

  test('a header for another robot is not for us', () => {
    expect(saysNofollow('otherbot: nofollow')).toBe(false)
    expect(saysNofollow('noindex,NOFOLLOW')).toBe(true)
    expect(saysNofollow(undefined)).toBe(false)
  })
})

describe('title', () => {
  test.each([
    ['<title>One</title>', 'One'],
    ['<title>\n  One \t two\n</title>', 'One two'],
    ['<title>A &amp; B &#8212; C</title>', 'A & B — C'],
    ['<title>One</title><title>Two</title>', 'One'],
    ['<svg><title>Drawing</title></svg><title>Page</title>', 'Page'],
    ['<title>a <b>bold</b> title</title>', 'a <b>bold</b> title'],
    ['<title>Never closed', 'Never closed'],
    ['<title></title>', null],
    ['<h1>No title</h1>', null],
    ['', null],
  ])('%s', (html, expected) => {
    expect(extractLinks(html, PAGE).title).toBe(expected)
  })
})

describe('bounds', () => {
  test('the number of links', () => {
    const html = Array.from({ length: LINKS_MAX + 5 }, (_, index) => `<a href="${index}">`).join('')
    expect(linksOf(html)).toHaveLength(LINKS_MAX)
  })

  test('the length of one link', () => {
    expect(resolveLink(`/${'a'.repeat(LINK_CHARS_MAX)}`, PAGE)).toBeUndefined()
    expect(linksOf(`<a href="${'a'.repeat(LINK_CHARS_MAX + 1)}"><a href="b">`)).toHaveLength(1)
  })

  test('the length of all links, though a short base makes each of them long', () => {
    const base = `/${'b'.repeat(8000)}/`
    const html = `<base href="${base}">${Array.from({ length: 3000 }, (_, index) => `<a href="${index}">`).join('')}`
    const links = linksOf(html)
    expect(links.length).toBeGreaterThan(1000)
    expect(links.length).toBeLessThan(1100)
  })
})
