/**
 * Host names in ASCII by IDNA 2003 (RFC 3490, 3491, 3492), which is what Python does and `new URL` does not (it follows
 * UTS 46): fingerprints must not depend on the platform's table.
 */

export function isAscii(text: string): boolean {
  return !/[^\x00-\x7f]/.test(text)
}

export function partition(text: string, separator: string): [before: string, after: string] {
  const at = text.indexOf(separator)
  return at < 0 ? [text, ''] : [text.slice(0, at), text.slice(at + 1)]
}

/** Code points that no host may hold: tables C.1.2 to C.9 of RFC 3454, beyond ASCII. */
const PROHIBITED = rangesOf(
  '3k.w io.1 po 1e 31t b2 1ki.f p.7 1c.4 7.5 329.b 5 x6o.6in y9.v 7k 6y.6 15dg.7 96s.1 1ekf.1 1ekf.1 1ekf.1 ' +
    '1ekf.1 1ekf.1 1ekf.1 1ekf.1 1ekf.1 1ekf.1 1ekf.1 1ekf.1 1ekf.1 2 v.2n 1egv.2t4x',
)
/** Letters written right to left, and left to right, in Unicode 3.2: tables D.1 and D.2. */
const RIGHT_TO_LEFT = rangesOf(
  '14u 2 3 d.q 6.4 13 4 2.p 6.a z.2 2.2s 8 8.1 k.4 2.d 3 2.q 2c.11 c 4ta 179q 2.9 2.c 2.4 2 2.1 2.1 2.2z ' +
    'y.a2 j.1r 3.1h 15.c 38.4 2.3q',
)
const LEFT_TO_RIGHT = rangesOf(
  '1t.p 7.p 1c b 5 6.m 2.u 2.88 2.h t.2l 3.8 3.6 f.1 f.4 a 3w c 2.2 2 2.j 2.17 2.11 b.3m 8.1w 2.11 3.1 7.f ' +
    'y.11 3.6 2.12 2 oq 2.1g 4.3 9.3 4 8.9 3.c i.1 2.7 3.1 3.l 2.6 2 4.3 5.2 7.1 3.1 b 5.1 2.2 5.b 3.6 b.5 5.1 ' +
    '3.l 2.6 2.1 2.1 2.1 5.2 p.3 2 8.9 3.2 f 2.6 2 2.2 2.l 2.6 2.1 2.4 4.3 9 2.1 4 g 6.9 j.1 2.7 3.1 3.l 2.6 ' +
    '2.1 3.3 4.1 2 7.1 3.1 b 5.1 2.2 5.a j 2.5 4.2 2.3 4.1 2 2.1 4.1 4.2 4.7 2.2 5.1 2.1 4.2 2.2 b g.b f.2 2.7 ' +
    '2.2 2.m 2.9 2.4 8.3 s.1 5.9 j.1 2.7 2.2 2.m 2.9 2.4 5 2.4 3.1 2.1 a.1 8 2.1 5.9 j.1 2.7 2.2 2.m 2.f 5.2 ' +
    '6.2 2.2 b 9.1 5.9 j.1 2.h 4.n 2.8 2 3.6 9.2 7.7 j.2 d.1b 2.1 d.6 9.c 12.1 2 3.1 2 3 7.3 2.6 2.2 2 2 3.1 ' +
    '2.3 2.1 a 3.4 2 a.9 3.1 z.n 3.q 2 2 6.9 2.x l 6 3.3 1f.7 2.5 3 1d.x 2.4 2.1 2 5 7 8.n 21.11 b.14 3 5.2h ' +
    '6.1v 6.29 7.6 2.1q 2 2.3 3.6 2 2.3 3.12 2 2.3 3.u 2 2.3 3.6 2 2.3 3.6 2.6 2.m 2.u 2 2.3 3.6 2.12 2.i 7.r ' +
    '10.2c d.hh b.p 6.28 g.c 2.3 f.h 4.1 a.h f.c 2.2 g.1i 8.7 2.1 c.6 2 4.9 13.9 7.2f 9.14 120.4b 5.2h 7.l 3.5 ' +
    '3.11 3.5 3.7 2 2 2 2.u 3.1g 2.6 2 4.2 2.6 4.3 3.5 5.c 6.2 2.6 i 2r e 3n 5 3.9 2 4.4 7 2 2 2.3 2.2 2.6 4.2 ' +
    '6.4 n.z c3.1w r 7b.25 270.2 q.8 8.4 3.4 5.2d 7.2 2.2h 2.3 6.13 5.2l 2.13 1l.18 4.z t.r 4.1d g.b 5.1a 2.3a ' +
    '5.2q 3.u 2.52t 23.g4l 2j.wc 1h0.8mb 2l.6r1 3.1m 46.6 d.4 sq.p 7.p c.2g 4.5 3.5 3.5 3.2 mc.u 2.3 d.q 52.11 ' +
    '3.11 148j.6t b.12 4.1o 4.8 h.1 8.t 5.1b f7.2c 2.1y 2.1 3 3.1 3.3 2.b 2 2.3 2.1 2.1s 2.3 3.7 2.6 2.r 2.3 ' +
    '2.4 2 4.6 2.9d 5.81 7xz.wye g16.f1 gvz7.1ekd 3.1ekd',
)
/**
 * Code points that some newer Unicode than the oracle's folds, decomposes or reorders: IDNA 2003 knows Unicode 3.2,
 * Python 3.11 lower-cases by 14, and the JavaScript engine has its own. They are left alone, so that a fingerprint does
 * not depend on the version of Node (up to Unicode 17; a script that arrives later may need a line here).
 */
const LEFT_ALONE = rangesOf(
  '8h 1gm v0 d7 fi 1xv.e 3.b b9.9 4j.2 2.a 2.h 2.r e z.10 k1.c 4f.1 k.2 1j 25v.1 6q xa.1 12.3 9 18.2 26.3 1c ' +
    '3c.3 2s.1 w mn1.1 5v 2j.1 2 4 2 6 2 l.3 4.1 o3.3 a fk5.1 1o.2 3.2x mv.9 1a.1 1hd 9 8 a bh.4 2.15 2.8 ' +
    '13q.l 4.4 b1.5 n6 8x.3 6 3 2.1 13.8 2 3 2.3 2.4 2 f.1 1ha.7 pl.1 2 1d.6 4.4 o 44m 7.e 8uh.h 2es 4.3 8m.o ' +
    'ila.z 1jc df.1 85.1 1np.1p y v1.3 73.1 6s 3 8.1 6 1e3.3 2.q 2.1 2 3 2.9 2.3 2 2 7 5 2 2 2.2 2.1 2 3 2 2 2 ' +
    '2 2.1 2 3.3 2.6 2.3 2.3 2 2.9 2.g 6.2 2.4 2.g g5.a 6.u 2.v r.2 10 34.2 e.17 5.8 8.1 1wf.9',
)
/** Ideographs whose decomposition was a mistake in Unicode 3.2, which IDNA 2003 keeps. */
const OLD_DECOMPOSITIONS: Record<string, string> = {
  '\u{2F868}': '\u{2136A}',
  '\u{2F874}': '\u{5F33}',
  '\u{2F91F}': '\u{43AB}',
  '\u{2F95F}': '\u{7AAE}',
  '\u{2F9BF}': '\u{4D57}',
}
/** Soft hyphens, joiners and variation selectors: dropped. */
// biome-ignore lint/suspicious/noMisleadingCharacterClass: the combining characters are meant one by one.
const DROPPED = /[\u00AD\u034F\u1806\u180B-\u180D\u200B-\u200D\u2060\uFE00-\uFE0F\uFEFF]/gu
/** Longest label of a host name. */
const LABEL_CHARS_MAX = 63

/** The host in ASCII; as it was when IDNA has no form for it (an empty or too long label, a prohibited character). */
export function hostToAscii(host: string): string {
  if (isAscii(host)) return host
  const labels = host.split(/[.\u3002\uFF0E\uFF61]/)
  const end = labels.at(-1) === '' ? '.' : ''
  if (end !== '') labels.pop()
  const ascii: string[] = []
  for (const label of labels) {
    const encoded = labelToAscii(label)
    if (encoded === undefined) return host
    ascii.push(encoded)
  }
  return ascii.join('.') + end
}

function labelToAscii(label: string): string | undefined {
  const prepared = isAscii(label) ? label : prepareLabel(label)
  if (prepared === undefined) return undefined
  let ascii = prepared
  if (!isAscii(prepared)) {
    if (prepared.startsWith('xn--')) return undefined
    const codePoints = Array.from(prepared, (char) => char.codePointAt(0)!)
    // Each code point takes at least one char, so this loses nothing and bounds the work on a hostile label.
    if (codePoints.length > LABEL_CHARS_MAX) return undefined
    ascii = `xn--${punycode(codePoints)}`
  }
  return ascii.length > 0 && ascii.length <= LABEL_CHARS_MAX ? ascii : undefined
}

/** Nameprep (RFC 3491): undefined when the label holds something prohibited, or mixes directions. */
function prepareLabel(label: string): string | undefined {
  const mapped = label.replace(DROPPED, '').replace(/./gsu, (char) => fold(normalise(fold(char))))
  const prepared = normalise(mapped)
  const codePoints = Array.from(prepared, (char) => char.codePointAt(0)!)
  if (codePoints.some((code) => holds(PROHIBITED, code))) return undefined
  if (codePoints.some((code) => holds(RIGHT_TO_LEFT, code))) {
    if (codePoints.some((code) => holds(LEFT_TO_RIGHT, code))) return undefined
    if (!holds(RIGHT_TO_LEFT, codePoints[0]!) || !holds(RIGHT_TO_LEFT, codePoints.at(-1)!)) return undefined
  }
  return prepared
}

/** Case folding of one code point, or of what it was normalised to. */
function fold(text: string): string {
  return changeOldText(text, (run) => run.replace(/./gsu, (char) => char.toUpperCase().toLowerCase()))
}

export function lowerCase(text: string): string {
  return changeOldText(text, (run) => run.toLowerCase())
}

/** NFKC as of Unicode 3.2. */
function normalise(text: string): string {
  return changeOldText(text, (run) =>
    run.replace(/[\u{2F868}-\u{2F9BF}]/gu, (char) => OLD_DECOMPOSITIONS[char] ?? char).normalize('NFKC'),
  )
}

/** Changes the runs of text between code points that are left alone; those do not join with their neighbours. */
function changeOldText(text: string, change: (run: string) => string): string {
  if (isAscii(text)) return change(text)
  let done = ''
  let run = ''
  for (const char of text) {
    if (holds(LEFT_ALONE, char.codePointAt(0)!)) {
      done += change(run) + char
      run = ''
    } else {
      run += char
    }
  }
  return done + change(run)
}

/** RFC 3492, with its names for the constants: base 36, tmin 1, tmax 26, skew 38, damp 700, start at 128 and bias 72. */
function punycode(codePoints: readonly number[]): string {
  const basic = codePoints.filter((code) => code < 128)
  let out = String.fromCharCode(...basic)
  if (basic.length > 0) out += '-'
  let handled = basic.length
  let next = 128
  let delta = 0
  let bias = 72
  while (handled < codePoints.length) {
    const least = Math.min(...codePoints.filter((code) => code >= next))
    delta += (least - next) * (handled + 1)
    next = least
    for (const code of codePoints) {
      if (code < next) delta++
      if (code !== next) continue
      let rest = delta
      for (let k = 36; ; k += 36) {
        const threshold = Math.min(Math.max(k - bias, 1), 26)
        if (rest < threshold) break
        out += punycodeDigit(threshold + ((rest - threshold) % (36 - threshold)))
        rest = Math.floor((rest - threshold) / (36 - threshold))
      }
      out += punycodeDigit(rest)
      bias = adaptBias(delta, handled + 1, handled === basic.length)
      delta = 0
      handled++
    }
    delta++
    next++
  }
  return out
}

function punycodeDigit(digit: number): string {
  return 'abcdefghijklmnopqrstuvwxyz0123456789'[digit]!
}

function adaptBias(delta: number, count: number, first: boolean): number {
  let rest = Math.floor(delta / (first ? 700 : 2))
  rest += Math.floor(rest / count)
  let k = 0
  for (; rest > 455; k += 36) rest = Math.floor(rest / 35)
  return k + Math.floor((36 * rest) / (rest + 38))
}

/** Tables are first and last code points, flattened. Written as base-36 steps: `from last end`, then `.length - 1`. */
function rangesOf(text: string): Uint32Array {
  let at = 0
  return Uint32Array.from(
    text.split(' ').flatMap((range) => {
      const [step, more] = partition(range, '.')
      const first = at + Number.parseInt(step, 36)
      at = first + (more === '' ? 0 : Number.parseInt(more, 36))
      return [first, at]
    }),
  )
}

function holds(ranges: Uint32Array, code: number): boolean {
  let low = 0
  let high = ranges.length / 2
  while (low < high) {
    const middle = (low + high) >> 1
    if (ranges[2 * middle + 1]! < code) low = middle + 1
    else high = middle
  }
  return low < ranges.length / 2 && ranges[2 * low]! <= code
}
