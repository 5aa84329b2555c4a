/** The list of conversations: latest first, by days, those that are being answered at the top. */

import { conversations, type Conversation } from './api'
import { button, byId, element } from './dom'
import { rootOf } from './ids'
import { failures, listed, running } from './store'

export interface Row {
  id: string
  title: string
  at: number
}

const DAY_MS = 86_400_000

/** The heading under which a time stands. */
function dayOf(at: number): string {
  const days = Math.round((new Date().setHours(0, 0, 0, 0) - new Date(at).setHours(0, 0, 0, 0)) / DAY_MS)
  if (days < 1) return 'Today'
  if (days === 1) return 'Yesterday'
  if (days <= 7) return 'Last 7 days'
  return new Date(at).toLocaleDateString(undefined, { month: 'long', year: 'numeric' })
}

export class ConversationList {
  private known: Conversation[] = []
  private reads = 0

  constructor(
    private readonly current: () => Row,
    private readonly open: (id: string) => void,
    private readonly options: (row: Row) => void,
  ) {}

  /** Another user's rows are none of this one's. */
  clear(): void {
    this.known = []
    this.show()
  }

  /** It is off the list, also while the gateway cannot be asked. */
  drop(id: string): void {
    this.known = this.known.filter((one) => rootOf(one.conversation_id) !== id)
    this.show()
  }

  /** At once with what is known here, and again with what the gateway knows. */
  async refresh(): Promise<void> {
    this.show()
    const read = ++this.reads
    const known = await conversations().catch(() => null)
    if (known === null || read !== this.reads) return
    this.known = known
    this.show()
  }

  titleOf(id: string): string {
    return this.rows().find((row) => row.id === rootOf(id))?.title ?? ''
  }

  private rows(): Row[] {
    const rows = new Map<string, Row>()
    const add = (row: Row): void => {
      const known = rows.get(row.id)
      rows.set(row.id, { ...row, title: known?.title ?? row.title, at: Math.max(known?.at ?? 0, row.at) })
    }
    // All versions of a conversation are one row; the first one gives it its title.
    const known = [...this.known].sort((one, other) => one.conversation_id.length - other.conversation_id.length)
    for (const one of known) add({ id: rootOf(one.conversation_id), title: one.title, at: one.last_at })
    for (const one of [...failures(), ...running()]) add({ id: rootOf(one.conversationId), title: one.prompt, at: one.askedAt })
    // An answer that has just ended may not be in the history yet.
    const current = this.current()
    if (current.title) add(current)
    const own = listed()
    return [...rows.values()]
      .filter((row) => row.at > (own[row.id]?.removedAt ?? 0))
      .map((row) => ({ ...row, title: own[row.id]?.title ?? row.title }))
      .sort((one, other) => other.at - one.at)
  }

  private show(): void {
    const place = byId('conversations')
    const focused = place.contains(document.activeElement) ? document.activeElement?.getAttribute('data-key') : null
    const groups = new Map<string, HTMLElement>()
    for (const row of this.rows()) {
      const day = dayOf(row.at)
      if (!groups.has(day)) groups.set(day, element('ul'))
      groups.get(day)?.append(this.row(row))
    }
    const parts = [...groups].flatMap(([day, rows]) => [element('h2', {}, day), rows])
    place.replaceChildren(...parts)
    // Rows are made anew; the keyboard stays where it was.
    if (focused) place.querySelector<HTMLElement>(`[data-key="${CSS.escape(focused)}"]`)?.focus()
  }

  private row(row: Row): HTMLElement {
    const open = button(row.title, () => this.open(row.id))
    open.title = `${row.title}\n${new Date(row.at).toLocaleString()}`
    open.dataset.key = `open ${row.id}`
    if (row.id === this.current().id) open.setAttribute('aria-current', 'page')
    const more = button('⋯', () => this.options(row), `Options of ${row.title}`)
    more.dataset.key = `options ${row.id}`
    return element('li', {}, open, more)
  }
}
