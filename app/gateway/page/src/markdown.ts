/** Markdown as models write it, into nodes. No HTML is ever parsed, and links go to the web or to mail alone. */

import { element } from './dom'
import { highlighted } from './highlight'

/** Every part has a greatest length: a mark without its end is searched for that far, not to the end of the answer. */
const INLINE =
  /(`{1,4})([^`\n].{0,1999}?)\1|\*\*(?=\S)(.{1,2000}?)\*\*|\*(?=\S)([^*]{1,2000}?)\*|\[([^\][]{1,500})\]\(([^)\s]{1,2000})\)|(https?:\/\/[^\s<>()]{0,1999}[^\s<>().,;:!?])/

/** A label may hide where a link leads, and an address what it carries there, so the host is shown beside the label. */
function link(label: string, target: string): Node {
  if (!/^(https?:|mailto:)/i.test(target)) return document.createTextNode(label)
  const made = element('a', { href: target, target: '_blank', rel: 'noopener noreferrer nofollow', title: target }, label)
  if (made instanceof HTMLAnchorElement && made.host && !label.includes(made.host)) made.append(` (${made.host})`)
  return made
}

/** An answer may nest without end, and the browser's stack does not: what is deeper is shown as it was written. */
const DEEPEST = 20

function inline(text: string, depth = 0): Node[] {
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
  const [all, , code, strong, emphasis, label, target, address] = match
  if (code !== undefined) return element('code', {}, code)
  if (strong !== undefined) return element('strong', {}, ...inline(strong, depth + 1))
  if (emphasis !== undefined) return element('em', {}, ...inline(emphasis, depth + 1))
  if (label !== undefined && target !== undefined) return link(label, target)
  return link(address ?? all, address ?? '')
}

function codeBlock(text: string, language: string): Node {
  const caption = element('figcaption', {}, language || 'code')
  if (navigator.clipboard) {
    const copy = element('button', { type: 'button', className: 'quiet copy', textContent: 'Copy' })
    copy.addEventListener('click', () => {
      void navigator.clipboard.writeText(text).then(() => (copy.textContent = 'Copied'))
    })
    caption.append(copy)
  }
  return element('figure', {}, caption, element('pre', { tabIndex: 0 }, element('code', {}, ...highlighted(text))))
}

/** An answer that is one JSON value, as `response_format` gives it. */
function json(text: string): string | null {
  if (!/^\s*[[{]/.test(text)) return null
  try {
    return JSON.stringify(JSON.parse(text), null, 2)
  } catch {
    return null
  }
}

const ITEM = /^(\s*)([-*+]|\d+[.)])\s+(.*)$/
const LONGEST_RULE = 500
const RULE = /^\s*\|?\s*:?-{2,}:?\s*(\|\s*:?-{2,}:?\s*)*\|?\s*$/

/** A longer line is none: the expression's time grows with the square of its blanks. */
function isRule(line: string): boolean {
  return line.length <= LONGEST_RULE && RULE.test(line)
}

/** The lines of one block are taken from the front of `lines`. */
function list(lines: string[], level = 0): Node {
  const [, indent = '', mark = ''] = ITEM.exec(lines[0] ?? '') ?? []
  const made = element(/\d/.test(mark) ? 'ol' : 'ul')
  if (made instanceof HTMLOListElement) made.start = parseInt(mark, 10)
  for (let match = ITEM.exec(lines[0] ?? ''); match; match = ITEM.exec(lines[0] ?? '')) {
    const depth = (match[1] ?? '').length
    if (depth < indent.length) break
    if (depth > indent.length + 1 && level < DEEPEST) (made.lastElementChild ?? made).append(list(lines, level + 1))
    else made.append(element('li', {}, ...inline((lines.shift(), match[3] ?? ''))))
  }
  return made
}

function cells(line: string): string[] {
  return line.trim().replace(/^\||\|$/g, '').split('|').map((cell) => cell.trim())
}

function table(lines: string[]): Node {
  const row = (name: 'th' | 'td', line: string): Node =>
    element('tr', {}, ...cells(line).map((cell) => element(name, {}, ...inline(cell))))
  const head = element('thead', {}, row('th', lines.shift() ?? ''))
  lines.shift()
  const body = element('tbody')
  while (lines[0]?.includes('|')) body.append(row('td', lines.shift() ?? ''))
  return element('div', { className: 'table', tabIndex: 0 }, element('table', {}, head, body))
}

function fenced(lines: string[], language: string): Node {
  const body: string[] = []
  lines.shift()
  while (lines.length && !/^\s*```\s*$/.test(lines[0] ?? '')) body.push(lines.shift() ?? '')
  lines.shift()
  return codeBlock(body.join('\n'), language)
}

function quote(lines: string[], depth: number): Node {
  const body: string[] = []
  while (/^>/.test(lines[0] ?? '')) body.push((lines.shift() ?? '').replace(/^>\s?/, ''))
  return element('blockquote', {}, markdown(body.join('\n'), depth + 1))
}

export function markdown(text: string, depth = 0): DocumentFragment {
  const made = document.createDocumentFragment()
  const value = json(text)
  if (value !== null) {
    made.append(codeBlock(value, 'json'))
    return made
  }
  const lines = text.split('\n')
  let paragraph: string[] = []
  const close = (): void => {
    if (paragraph.length) made.append(element('p', {}, ...inline(paragraph.join('\n'))))
    paragraph = []
  }
  const block = (node: Node): void => (close(), void made.append(node))
  while (lines.length) {
    const line = lines[0] ?? ''
    const fence = /^\s*```(\w*)/.exec(line)
    const heading = /^(#{1,6})\s+(.*)/.exec(line)
    if (fence) block(fenced(lines, fence[1] ?? ''))
    else if (ITEM.test(line)) block(list(lines))
    else if (/^>/.test(line) && depth < DEEPEST) block(quote(lines, depth))
    else if (line.includes('|') && isRule(lines[1] ?? '')) block(table(lines))
    else {
      lines.shift()
      if (heading) block(element(heading[1] === '#' || heading[1] === '##' ? 'h2' : 'h3', {}, ...inline(heading[2] ?? '')))
      else if (/^\s*([-*_])(\s*\1){2,}\s*$/.test(line)) block(element('hr'))
      else if (!line.trim()) close()
      else paragraph.push(line)
    }
  }
  close()
  return made
}
