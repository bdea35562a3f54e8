import { expect, test } from 'vitest'
import { decodeText } from '../../src/crawl/decode-text.js'

const latin1 = (text: string): Buffer => Buffer.from(text, 'latin1')

test.each<[string, Buffer, string | undefined, string]>([
  ['UTF-8 without a word', Buffer.from('é'), 'text/html', 'é'],
  ['header', latin1('\xe9'), 'text/html; charset=ISO-8859-1', 'é'],
  ['quoted header', latin1('\xe9'), 'text/html; Charset="latin1"', 'é'],
  ['meta', latin1('<meta charset=windows-1252>\x80'), 'text/html', '<meta charset=windows-1252>€'],
  [
    'old meta',
    latin1('<meta http-equiv="x" content="text/html; charset=latin1">\xe9'),
    undefined,
    '<meta http-equiv="x" content="text/html; charset=latin1">é',
  ],
  ['header before meta', Buffer.from('<meta charset=latin1>é'), 'text/html; charset=utf-8', '<meta charset=latin1>é'],
  ['byte order mark before all', Buffer.from('\ufeffé'), 'text/html; charset=latin1', 'é'],
  ['UTF-16', Buffer.from('\ufeffé', 'utf16le'), undefined, 'é'],
  ['meta that says UTF-16', Buffer.from('<meta charset="utf-16">é'), undefined, '<meta charset="utf-16">é'],
  ['Shift_JIS', Buffer.from([0x83, 0x65]), 'text/html; charset=shift_jis', 'テ'],
  ['unknown name', Buffer.from('é'), 'text/html; charset=nonsense', 'é'],
  ['not UTF-8 after all', latin1('caf\xe9 '), undefined, 'café '],
  ['nothing', Buffer.alloc(0), undefined, ''],
])('%s', (_name, body, contentType, expected) => {
  expect(decodeText(body, contentType)).toBe(expected)
})

test('a body cut inside a character is still UTF-8', () => {
  expect(decodeText(Buffer.from('né').subarray(0, 2), undefined)).toBe('n')
})
