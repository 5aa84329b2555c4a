/** What stands in a line of Markdown: emphasis, code, links, marks of footnotes. */

import { element } from './dom'

/** Every part has a greatest length: a mark without its end is searched for that far, not to the end of the answer. */
const INLINE =
  /(`{1,4})([^`\n].{0,1999}?)\1|\*\*(?=\S)(.{1,2000}?)\*\*|\*(?=\S)([^*]{1,2000}?)\*|~~(?=\S)(.{1,2000}?)~~|\[\^([^\]\s]{1,50})\]|\[([^\][]{1,500})\]\(([^)\s]{1,2000})\)|(https?:\/\/[^\s<>()]{0,1999}[^\s<>().,;:!?])/

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
    made.push(marked(match, depth))
    rest = rest.slice(match.index + match[0].length)
  }
  if (rest) made.push(document.createTextNode(rest))
  return made
}

function marked(match: RegExpExecArray, depth: number): Node {
  const [all, , code, strong, emphasis, struck, note, label, target, address] = match
  if (code !== undefined) return element('code', {}, code)
  if (strong !== undefined) return element('strong', {}, ...inline(strong, depth + 1))
  if (emphasis !== undefined) return element('em', {}, ...inline(emphasis, depth + 1))
  if (struck !== undefined) return element('del', {}, ...inline(struck, depth + 1))
  // It is linked once it is known whether the answer has such a note.
  if (note !== undefined) return element('sup', { className: 'ref', textContent: all })
  if (label !== undefined && target !== undefined) return link(label, target)
  return link(address ?? all, address ?? '')
}
