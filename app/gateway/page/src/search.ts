/** The search view: hits of the history, with the words that were looked for marked. */

import { search, type Hit, type Place } from './api'
import { button, byId, element } from './dom'
import { rootOf } from './ids'
import { listed } from './store'
import { ofFailure } from './words'

const DAY_MS = 86_400_000
const MOST = '20'
const TYPED_MS = 300

// Words that say nothing about what is looked for.
const STOP = new Set(
  `a about after all also am an and any are as at be because been before but by can could did do does for from had has
  have he her his how i if in into is it its just me more most my no not of on only or our out over she should so some
  than that the their them then there these they this to too up us very was we were what when where which who why will
  with would you your`.split(/\s+/),
)

function marked(text: string, query: string): (Node | string)[] {
  const words = (query.match(/[\p{L}\p{N}]{2,}/gu) ?? []).filter((word) => !STOP.has(word.toLowerCase()))
  if (!words.length) return [text]
  const pattern = new RegExp(`(?<![\\p{L}\\p{N}])(${words.join('|')})(?![\\p{L}\\p{N}])`, 'giu')
  return text.split(pattern).map((part, at) => (at % 2 ? element('mark', {}, part) : part))
}

function row(hit: Hit, title: string, query: string, open: (place: Place) => void): HTMLElement {
  const { replaced_by: newer } = hit
  const version = newer ? 'replaced by a later version' : rootOf(hit.conversation_id) === hit.conversation_id ? '' : 'a later version'
  const about = [title, version, hit.role === 'user' ? 'You' : 'Answer', new Date(hit.created_at).toLocaleString(), `${Math.round(hit.similarity * 100)}% near`]
  const found = element(
    'button',
    { type: 'button', className: 'hit' },
    element('small', {}, about.filter(Boolean).join(' · ')),
    element('span', {}, ...marked(hit.text, query)),
  )
  found.addEventListener('click', () => open(hit))
  return element('li', {}, found, ...(newer ? [button('Show the later version', () => open(newer))] : []))
}

export class SearchView {
  private typed: number | undefined
  private searches = 0

  constructor(
    private readonly open: (place: Place) => void,
    private readonly conversation: () => string,
    private readonly titleOf: (conversationId: string) => string,
  ) {
    byId('query').addEventListener('submit', (event) => {
      event.preventDefault()
      void this.run()
    })
    byId('words').addEventListener('input', () => {
      clearTimeout(this.typed)
      this.typed = setTimeout(() => void this.run(), TYPED_MS)
    })
    for (const id of ['role', 'since', 'here', 'replaced']) byId(id).addEventListener('change', () => void this.run())
    byId('close-search').addEventListener('click', () => this.toggle(false))
  }

  toggle(on = byId('search').hidden): void {
    byId('search').hidden = !on
    byId('talk').hidden = on
    byId(on ? 'words' : 'prompt').focus()
  }

  private async run(): Promise<void> {
    clearTimeout(this.typed)
    const query = byId<HTMLInputElement>('words').value.trim()
    const turn = ++this.searches
    if (!query) return this.show('', [])
    byId('found').textContent = 'Searching…'
    try {
      const own = listed()
      const hits = (await search(this.filters(query))).filter((hit) => hit.created_at > (own[rootOf(hit.conversation_id)]?.removedAt ?? -1))
      if (turn !== this.searches) return // another search has begun since
      const open = (place: Place): void => (this.toggle(false), this.open(place))
      const rows = hits.map((hit) => row(hit, this.titleOf(hit.conversation_id), query, open))
      this.show(hits.length > 1 ? `The ${hits.length} nearest, best first` : hits.length ? 'One hit' : 'Nothing was found.', rows)
    } catch (error) {
      if (turn === this.searches) this.show(ofFailure(error), [])
    }
  }

  private filters(query: string): Record<string, string> {
    const role = byId<HTMLSelectElement>('role').value
    const days = byId<HTMLSelectElement>('since').value
    const filters: Record<string, string> = { q: query, limit: MOST }
    if (role) filters.role = role
    if (days) filters.since = String(Date.now() - Number(days) * DAY_MS)
    if (byId<HTMLInputElement>('replaced').checked) filters.include_replaced = 'true'
    if (byId<HTMLInputElement>('here').checked) filters.conversation_id = this.conversation()
    return filters
  }

  private show(told: string, rows: HTMLElement[]): void {
    byId('found').textContent = told
    byId('hits').replaceChildren(...rows)
  }
}
