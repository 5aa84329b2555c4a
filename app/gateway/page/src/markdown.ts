/** Markdown as models write it, into nodes. No HTML is ever parsed, and links go to the web or to mail alone. */

import { element } from './dom'

const INLINE =
  /(`+)(.+?)\1|\*\*(?=\S)(.+?)\*\*|\*(?=\S)([^*]+?)\*|\[([^\]]+)\]\(([^)\s]+)\)|(https?:\/\/[^\s<>()]+[^\s<>().,;:!?])/

function link(label: string, target: string): Node {
  if (!/^(https?:|mailto:)/i.test(target)) return document.createTextNode(label)
  return element('a', { href: target, target: '_blank', rel: 'noopener noreferrer nofollow' }, label)
}

function inline(text: string): Node[] {
  const match = INLINE.exec(text)
  if (!match) return text ? [document.createTextNode(text)] : []
  const [all, , code, strong, emphasis, label, target, address] = match
  let node: Node
  if (code !== undefined) node = element('code', {}, code)
  else if (strong !== undefined) node = element('strong', {}, ...inline(strong))
  else if (emphasis !== undefined) node = element('em', {}, ...inline(emphasis))
  else if (label !== undefined && target !== undefined) node = link(label, target)
  else node = link(address ?? all, address ?? '')
  return [
    document.createTextNode(text.slice(0, match.index)),
    node,
    ...inline(text.slice(match.index + all.length)),
  ]
}

function codeBlock(lines: string[], language: string): Node {
  const text = lines.join('\n')
  const copy = element('button', { type: 'button', className: 'quiet copy', textContent: 'Copy' })
  copy.addEventListener('click', () => {
    void navigator.clipboard.writeText(text).then(() => (copy.textContent = 'Copied'))
  })
  return element('figure', {}, element('figcaption', {}, language || 'code', copy), element('pre', {}, element('code', {}, text)))
}

export function markdown(text: string): DocumentFragment {
  const made = document.createDocumentFragment()
  const lines = text.split('\n')
  let paragraph: string[] = []
  const close = (): void => {
    if (paragraph.length) made.append(element('p', {}, ...inline(paragraph.join('\n'))))
    paragraph = []
  }
  for (let at = 0; at < lines.length; at += 1) {
    const line = lines[at] ?? ''
    const fence = /^\s*```(\w*)/.exec(line)
    const heading = /^(#{1,6})\s+(.*)/.exec(line)
    const item = /^\s*([-*+]|\d+[.)])\s+/.exec(line)
    if (fence) {
      close()
      const body: string[] = []
      while (++at < lines.length && !/^\s*```\s*$/.test(lines[at] ?? '')) body.push(lines[at] ?? '')
      made.append(codeBlock(body, fence[1] ?? ''))
    } else if (heading) {
      close()
      made.append(element('h3', {}, ...inline(heading[2] ?? '')))
    } else if (item) {
      close()
      const list = element(/\d/.test(item[1] ?? '') ? 'ol' : 'ul')
      for (; at < lines.length && /^\s*([-*+]|\d+[.)])\s+/.test(lines[at] ?? ''); at += 1) {
        list.append(element('li', {}, ...inline((lines[at] ?? '').replace(/^\s*([-*+]|\d+[.)])\s+/, ''))))
      }
      at -= 1
      made.append(list)
    } else if (/^>\s?/.test(line)) {
      close()
      made.append(element('blockquote', {}, ...inline(line.replace(/^>\s?/, ''))))
    } else if (!line.trim()) close()
    else paragraph.push(line)
  }
  close()
  return made
}
