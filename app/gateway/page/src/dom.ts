/** Elements without strings of HTML: what users and models say is only ever text. */

export function element<K extends keyof HTMLElementTagNameMap>(
  name: K,
  properties: Partial<HTMLElementTagNameMap[K]> = {},
  ...children: (Node | string)[]
): HTMLElementTagNameMap[K] {
  const made = Object.assign(document.createElement(name), properties)
  for (const child of children) made.append(child)
  return made
}

export function button(label: string, act: () => void, name = ''): HTMLButtonElement {
  const made = element('button', { type: 'button', className: 'quiet', textContent: label })
  if (name) made.setAttribute('aria-label', name)
  made.addEventListener('click', act)
  return made
}

export function byId<T extends HTMLElement = HTMLElement>(id: string): T {
  const found = document.getElementById(id)
  if (!found) throw new Error(`the page has no #${id}`)
  return found as T
}
