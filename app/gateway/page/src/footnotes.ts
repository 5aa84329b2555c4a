/** Footnotes: `[^a]` in the text, and `[^a]: ...` on a line of its own. */

import { element } from './dom'
import { inline } from './inline'

export type Notes = Map<string, string>

const NOTE = /^\[\^([^\]\s]{1,50})\]:\s+(.*)$/
let made = 0

/** Whether a note begins here; it is taken from the front of `lines`, with the lines that are indented under it. */
export function takeNote(lines: string[], notes: Notes): boolean {
  const [, name, text] = NOTE.exec(lines[0] ?? '') ?? []
  if (name === undefined) return false
  const body = [text ?? '']
  lines.shift()
  while (/^\s{2,}\S/.test(lines[0] ?? '')) body.push((lines.shift() ?? '').trim())
  notes.set(name, body.join(' '))
  return true
}

/** Number the marks in the text that have a note, link both ways, and put the notes at the end; other marks stay text. */
export function footnotes(text: DocumentFragment, notes: Notes): void {
  const list = element('ol')
  const places = new Map<string, string>()
  made += notes.size ? 1 : 0
  for (const mark of text.querySelectorAll<HTMLElement>('sup.ref')) {
    const name = mark.textContent?.slice(2, -1) ?? ''
    const note = notes.get(name)
    if (note === undefined) {
      mark.replaceWith(mark.textContent ?? '')
      continue
    }
    const isFirst = !places.has(name)
    if (isFirst) places.set(name, String(places.size + 1))
    const number = places.get(name) ?? ''
    const [here, there] = [`ref-${made}-${number}`, `note-${made}-${number}`]
    const link = element('a', { href: `#${there}`, textContent: number })
    link.setAttribute('aria-label', `Note ${number}`)
    mark.replaceChildren(link)
    if (!isFirst) continue
    mark.id = here
    const back = element('a', { href: `#${here}`, textContent: '↩' })
    back.setAttribute('aria-label', `Back to the text of note ${number}`)
    list.append(element('li', { id: there }, ...inline(note), ' ', back))
  }
  for (const [name, note] of notes) if (!places.has(name)) list.append(element('li', {}, ...inline(note)))
  if (list.children.length) text.append(element('section', { className: 'notes' }, list))
}
