/** The page for desks: the calls that wait for them, and what was decided. */

import { caller, Refusal, Unreachable } from './api'
import { ApprovalCard, lineOf } from './approval'
import { approvals, type Approval, type Approvals, type Past } from './approvals'
import './base.css'
import './desk.css'
import { byId, element } from './dom'
import { label, parsed, plain, shownValue } from './fields'
import { login, UNKNOWN_KEY } from './login'
import { remember, remembered } from './store'
import { ofFailure } from './words'

const AGAIN_MS = 1000
const TICK_MS = 20_000
const MOST_PAST = 50
const MOST_ABOUT = 160
const SETTLE_MS = 800
const TOLD_MS = 6000
const OF_NO_DESK = 'This key is of no desk. Ask whoever runs this service for the key of an approver.'

const cards = new Map<string, ApprovalCard>()
/** What was decided here: the list may still have it. */
const over = new Set<string>()
const list = byId('cards')
let leaving = new AbortController()
let settling = 0
let telling = 0

/** A line for all: for readers of screens, and at the foot of the window for a while, as the list of decisions may be far below. */
function tell(text: string, isShown = true): void {
  byId('heard').textContent = text
  if (!isShown) return
  byId('heard').classList.remove('hidden')
  clearTimeout(telling)
  telling = setTimeout(() => byId('heard').classList.add('hidden'), TOLD_MS)
}

/** Once cards have moved, the second half of a double click, or one on its way, would decide what lies there now. */
function settle(): void {
  list.classList.add('moving')
  clearTimeout(settling)
  settling = setTimeout(() => list.classList.remove('moving'), SETTLE_MS)
}

function count(): void {
  const open = cards.size
  byId('open-title').textContent = open ? `${open} ${open === 1 ? 'call waits' : 'calls wait'}` : 'Nothing waits. New calls come up here by themselves.'
  document.title = open ? `(${open}) Approvals – Parley` : 'Approvals – Parley'
}

/** Its card leaves the list, and how it is over stands below. */
function close(one: Approval, past: Past | null, isOwn: boolean, changed?: Record<string, unknown>): void {
  const card = cards.get(one.wait_id)
  if (!card) return
  const hadFocus = card.node.contains(document.activeElement)
  const next = [...cards.values()]
  const after = next[next.indexOf(card) + 1] ?? next[next.indexOf(card) - 1]
  cards.delete(one.wait_id)
  over.add(one.wait_id)
  card.node.remove()
  settle()
  count()
  if (hadFocus) (after ?? { focus: () => byId('open').focus() }).focus()
  const theirs = past?.arguments ? parsed(past.arguments) : undefined
  const values = Object.entries(changed ?? theirs ?? parsed(one.arguments)).map(([name, value]) => `${label(name).toLowerCase()} ${shownValue(value)}`).join(', ')
  const about = values.length > MOST_ABOUT ? `${values.slice(0, MOST_ABOUT)}…` : values
  const title = `${label(one.name)}${past?.decision === 'edited' && !changed && !theirs ? ' (as asked)' : ''}`
  const line = lineOf(past, isOwn)
  const whose = `for ${plain(one.user_id)}`
  byId('decided').prepend(element('li', {}, element('b', {}, about ? `${title}: ${about}` : title), ` ${whose}. ${line}`))
  while (byId('decided').children.length > MOST_PAST) byId('decided').lastChild?.remove()
  byId('past').hidden = false
  tell(`${label(one.name)} ${whose}: ${line} ${byId('open-title').textContent}.`)
}

function show(found: Approvals, isFirst: boolean): void {
  const known = new Set(cards.keys())
  const decided = new Map(found.decided.map((one) => [one.wait_id, one]))
  const open = new Set(found.approvals.map((one) => one.wait_id))
  for (const [waitId, card] of [...cards]) {
    const past = decided.get(waitId)
    // One that is not listed because there are too many may be open.
    if (past || (!open.has(waitId) && !found.has_more)) close(card.approval, past ?? null, false)
  }
  for (const one of found.approvals) {
    if (cards.has(one.wait_id) || over.has(one.wait_id)) continue
    const asker = `for ${plain(one.user_id)}${found.you.desks?.length === 1 ? '' : ` · desk: ${one.by}`}`
    const card = new ApprovalCard(one, asker, (past, isOwn, changed) => close(one, past, isOwn, changed))
    cards.set(one.wait_id, card)
    list.append(card.node)
  }
  const fresh = [...cards.keys()].filter((one) => !known.has(one)).length
  byId('more').hidden = !found.has_more
  count()
  if (fresh) tell(`${fresh} new ${fresh === 1 ? 'call waits' : 'calls wait'} for a decision.`, !isFirst)
}

function greet({ you }: Approvals): void {
  caller.development = you.may_name
  byId('named').hidden = !you.may_name
  byId('who').hidden = you.may_name
  byId('who').textContent = `You are ${you.name} (${you.desks?.length === 1 ? 'desk' : 'desks'}: ${you.desks?.join(', ') ?? 'all'})`
  byId('logout').hidden = !caller.key
  if (you.may_name && !caller.user) byId<HTMLInputElement>('name').placeholder = you.name
}

function banner(text: string): void {
  byId('banner').textContent = text
  byId('banner').hidden = !text
}

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms))

/** Ask for the list again and again; the reply comes when it is another one. */
async function follow(): Promise<void> {
  let version = ''
  for (;;) {
    try {
      const found = await approvals(version ? { version, wait_s: '25' } : {}, leaving.signal)
      if (!version) greet(found)
      banner('')
      show(found, !version)
      version = found.version
    } catch (error) {
      if (leaving.signal.aborted) {
        // Another name: the list is the same, and its reader another one.
        leaving = new AbortController()
        continue
      }
      if (error instanceof Refusal && [401, 403].includes(error.status)) {
        version = ''
        await login(error.status === 403 ? OF_NO_DESK : caller.key ? UNKNOWN_KEY : '')
        continue
      }
      banner(error instanceof Refusal || error instanceof Unreachable ? ofFailure(error) : 'Something went wrong. Reload the page.')
      await pause(error instanceof Refusal && error.retryAfterS ? error.retryAfterS * 1000 : AGAIN_MS)
    }
  }
}

function theme(chosen: string): void {
  if (chosen) document.documentElement.dataset.theme = chosen
}

byId('theme').addEventListener('click', () => {
  const isDark = getComputedStyle(document.documentElement).colorScheme === 'dark'
  remember('theme', isDark ? 'light' : 'dark')
  theme(isDark ? 'light' : 'dark')
})
byId('name').addEventListener('change', () => {
  caller.user = byId<HTMLInputElement>('name').value.trim()
  remember('approver', caller.user)
  leaving.abort()
})
byId('logout').addEventListener('click', () => {
  sessionStorage.removeItem('parley.key')
  location.reload()
})
// Who goes on clicking has not seen yet that they have moved.
addEventListener('pointerdown', () => list.classList.contains('moving') && settle())
setInterval(() => cards.forEach((card) => card.tick()), TICK_MS)

theme(remembered('theme'))
caller.user = byId<HTMLInputElement>('name').value = remembered('approver')
caller.key = sessionStorage.getItem('parley.key') ?? ''
void follow()
