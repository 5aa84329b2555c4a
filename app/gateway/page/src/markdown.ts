/** Markdown as models write it, into nodes. No HTML is ever parsed, and links go to the web or to mail alone. */

import { button, element } from './dom'
import { formula } from './formula'
import { footnotes, takeNote, type Notes } from './footnotes'
import { highlighted } from './highlight'
import { DEEPEST, inline } from './inline'

function codeBlock(text: string, language: string): Node {
  const caption = element('figcaption', {}, language || 'code')
  if (navigator.clipboard) {
    const copy = button('Copy', () => void navigator.clipboard.writeText(text).then(() => (copy.textContent = 'Copied')))
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
const RULE = /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/

/** A longer line is none: the expression's time grows with the square of its blanks. */
function isRule(line: string): boolean {
  return line.length <= LONGEST_RULE && RULE.test(line)
}

const TASK = /^\[([ xX])\]\s+(.*)$/

function item(text: string): HTMLElement {
  const [, mark, task] = TASK.exec(text) ?? []
  if (mark === undefined) return element('li', {}, ...inline(text))
  const box = element('input', { type: 'checkbox', disabled: true, checked: mark !== ' ' })
  return element('li', { className: 'task' }, element('label', {}, box, element('span', {}, ...inline(task ?? ''))))
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
    else made.append(item((lines.shift(), match[3] ?? '')))
  }
  return made
}

function cells(line: string): string[] {
  const row = line.trim().replace(/^\||(?<!\\)\|$/g, '')
  return row.split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll('\\|', '|'))
}

function alignment(rule: string): string {
  if (!rule.endsWith(':')) return rule.startsWith(':') ? 'left' : ''
  return rule.startsWith(':') ? 'center' : 'right'
}

function table(lines: string[]): Node {
  const alignments = cells(lines[1] ?? '').map(alignment)
  const cell = (name: 'th' | 'td', text: string, at: number): Node => {
    const made = element(name, {}, ...inline(text))
    made.style.textAlign = alignments[at] ?? ''
    return made
  }
  const row = (name: 'th' | 'td', line: string): Node =>
    element('tr', {}, ...cells(line).map((text, at) => cell(name, text, at)))
  const head = element('thead', {}, row('th', lines.shift() ?? ''))
  lines.shift()
  const body = element('tbody')
  while (lines[0]?.includes('|')) body.append(row('td', lines.shift() ?? ''))
  return element('div', { className: 'table', tabIndex: 0 }, element('table', {}, head, body))
}

/** Whether a table begins here: the rule under its head has as many columns. */
function isTable(lines: string[]): boolean {
  const [head = '', rule = ''] = lines
  return head.includes('|') && isRule(rule) && cells(head).length === cells(rule).length
}

function fenced(lines: string[], language: string): Node {
  const body: string[] = []
  lines.shift()
  while (lines.length && !/^\s*```\s*$/.test(lines[0] ?? '')) body.push(lines.shift() ?? '')
  lines.shift()
  return codeBlock(body.join('\n'), language)
}

const FORMULA = { $$: '$$', '\\[': '\\]' }
const LONGEST_FORMULA = 60

/** How many lines the formula has that begins here; none without its end, as while it is being written. */
function formulaLines(lines: string[]): number {
  const first = (lines[0] ?? '').trim()
  const end = FORMULA[first.slice(0, 2) as keyof typeof FORMULA]
  if (!end) return 0
  const at = [first.slice(2), ...lines.slice(1, LONGEST_FORMULA)].findIndex((line) => line.includes(end))
  const last = at === 0 ? first.slice(2) : (lines[at] ?? '').trim()
  return last.indexOf(end) === last.length - 2 ? at + 1 : 0
}

function formulaBlock(lines: string[]): Node {
  const written = lines.splice(0, formulaLines(lines)).join('\n').trim()
  return element('p', {}, formula(written.slice(2, -2).trim(), written, true))
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
  const notes: Notes = new Map()
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
    else if (isTable(lines)) block(table(lines))
    else if (formulaLines(lines)) block(formulaBlock(lines))
    else if (!depth && takeNote(lines, notes)) close()
    else {
      lines.shift()
      if (heading) block(element(heading[1] === '#' || heading[1] === '##' ? 'h2' : 'h3', {}, ...inline(heading[2] ?? '')))
      else if (/^\s*([-*_])(\s*\1){2,}\s*$/.test(line)) block(element('hr'))
      else if (!line.trim()) close()
      else paragraph.push(line)
    }
  }
  close()
  if (!depth) footnotes(made, notes)
  return made
}

const SPOKEN = 'h2, h3, p, li, th, td, pre'

/** The text as it is read aloud: without marks, a line for each part. */
export function spoken(text: string): string {
  const parts = [...markdown(text.trim()).querySelectorAll(SPOKEN)].filter((part) => !part.querySelector(SPOKEN))
  return parts.map((part) => part.textContent?.trim()).filter(Boolean).join('\n')
}
