/** What stands in a line of Markdown: emphasis, code, mathematics, links, marks of footnotes. */

import { element } from './dom'
import { formula, isMoney } from './formula'

/** Every part has a greatest length: a mark without its end is searched for that far, not to the end of the answer. */
const PARTS = [
  /(?<ticks>`{1,4})(?<code>[^`\n].{0,1999}?)\k<ticks>/,
  /\\(?<dollar>\$)/,
  /\$\$(?<block>[^$]{1,2000})\$\$/,
  /\\\[(?<bracketed>[^]{1,2000}?)\\\]/,
  /(?<![\w$])\$(?<math>[^\s$](?:[^$\n]{0,998}[^\s$\\])?)\$(?![\w$])/,
  /\\\((?<rounded>[^]{1,2000}?)\\\)/,
  /\*\*(?=\S)(?<strong>.{1,2000}?)\*\*/,
  /\*(?=\S)(?<emphasis>[^*]{1,2000}?)\*/,
  /~~(?=\S)(?<struck>.{1,2000}?)~~/,
  /\[\^(?<note>[^\]\s]{1,50})\]/,
  /(?<picture>!?)\[(?<label>[^\][]{0,500})\]\((?<target>[^)\s]{1,2000})(?:\s"[^"\n]{0,500}")?\)/,
  /(?<address>https?:\/\/[^\s<>()]{0,1999}[^\s<>().,;:!?])/,
  /(?<line><br ?\/?>)/,
]
const INLINE = new RegExp(PARTS.map((part) => part.source).join('|'))

/** A label may hide where a link leads, and an address what it carries there, so the host is shown beside the label. */
function link(label: string, target: string): Node {
  if (!/^(https?:|mailto:)/i.test(target)) return document.createTextNode(label)
  const made = element('a', { href: target, target: '_blank', rel: 'noopener noreferrer nofollow', title: target }, label)
  if (made instanceof HTMLAnchorElement && made.host && !label.includes(made.host)) made.append(` (${made.host})`)
  return made
}

/** An answer may nest without end, and the browser's stack does not: what is deeper is shown as it was written. */
export const DEEPEST = 20

export function inline(text: string, depth = 0): Node[] {
  const made: Node[] = []
  let rest = text
  for (let match = INLINE.exec(rest); match && depth < DEEPEST; match = INLINE.exec(rest)) {
    if (match.index) made.push(document.createTextNode(rest.slice(0, match.index)))
    made.push(marked(match[0], match.groups ?? {}, depth))
    rest = rest.slice(match.index + match[0].length)
  }
  if (rest) made.push(document.createTextNode(rest))
  return made
}

function marked(all: string, part: Record<string, string | undefined>, depth: number): Node {
  const block = part.block ?? part.bracketed
  const math = part.math ?? part.rounded
  if (part.code !== undefined) return element('code', {}, part.code)
  if (part.dollar) return document.createTextNode(part.dollar)
  if (block) return formula(block, all, true)
  if (math) return part.math && isMoney(math) ? document.createTextNode(all) : formula(math, all, false)
  if (part.strong) return element('strong', {}, ...inline(part.strong, depth + 1))
  if (part.emphasis) return element('em', {}, ...inline(part.emphasis, depth + 1))
  if (part.struck) return element('del', {}, ...inline(part.struck, depth + 1))
  // It is linked once it is known whether the answer has such a note.
  if (part.note) return element('sup', { className: 'ref', textContent: all })
  // Nothing of another server is loaded into the page, so a picture is a link to it.
  if (part.target) return link(part.label || (part.picture ? 'picture' : part.target), part.target)
  if (part.line) return element('br')
  return link(part.address ?? all, part.address ?? '')
}
