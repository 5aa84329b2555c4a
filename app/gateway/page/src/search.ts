/** The search view: hits of the history, with the words that were looked for marked. */

import { search, type Hit } from './api'
import { byId, element } from './dom'

const DAY_MS = 86_400_000

function marked(text: string, query: string): (Node | string)[] {
  const words = query.match(/[\p{L}\p{N}]{2,}/gu)
  if (!words) return [text]
  const pattern = new RegExp(`(${words.join('|')})`, 'giu')
  return text.split(pattern).map((part, at) => (at % 2 ? element('mark', {}, part) : part))
}

function row(hit: Hit, query: string, open: (hit: Hit) => void): HTMLElement {
  const button = element(
    'button',
    { type: 'button', className: 'hit' },
    element('small', {}, `${hit.role === 'user' ? 'You' : 'Answer'} · ${new Date(hit.created_at).toLocaleString()} · ${Math.round(hit.similarity * 100)}% near`),
    element('span', {}, ...marked(hit.text, query)),
  )
  button.addEventListener('click', () => open(hit))
  return element('li', {}, button)
}

export class SearchView {
  constructor(
    private readonly open: (hit: Hit) => void,
    private readonly conversation: () => string,
  ) {
    byId('query').addEventListener('submit', (event) => {
      event.preventDefault()
      void this.run()
    })
    for (const id of ['role', 'since', 'here']) byId(id).addEventListener('change', () => void this.run())
    byId('close-search').addEventListener('click', () => this.toggle(false))
  }

  toggle(on = byId('search').hidden): void {
    byId('search').hidden = !on
    byId('talk').hidden = on
    byId(on ? 'words' : 'prompt').focus()
  }

  private async run(): Promise<void> {
    const query = byId<HTMLInputElement>('words').value.trim()
    if (!query) return
    const role = byId<HTMLSelectElement>('role').value
    const days = byId<HTMLSelectElement>('since').value
    const filters: Record<string, string> = { q: query, limit: '30' }
    if (role) filters.role = role
    if (days) filters.since = String(Date.now() - Number(days) * DAY_MS)
    if (byId<HTMLInputElement>('here').checked) filters.conversation_id = this.conversation()
    byId('found').textContent = 'Searching…'
    byId('hits').replaceChildren()
    try {
      const hits = await search(filters)
      byId('found').textContent = hits.length ? `${hits.length} found` : 'Nothing was found.'
      byId('hits').replaceChildren(...hits.map((hit) => row(hit, query, (one) => (this.toggle(false), this.open(one)))))
    } catch (error) {
      byId('found').textContent = error instanceof Error ? error.message : String(error)
    }
  }
}
