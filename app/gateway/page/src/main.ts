/** The page: puts its parts together. */

import { caller, me, Refusal } from './api'
import { byId } from './dom'
import { random, rootOf } from './ids'
import { ConversationList } from './list'
import { login, UNKNOWN_KEY } from './login'
import { Options } from './options'
import { Banner } from './reach'
import { SearchView } from './search'
import { forget, onNews, remember, remembered } from './store'
import './base.css'
import './style.css'
import { Talk } from './talk'
import { welcome } from './welcome'
import { chosen } from './when'

const talk = new Talk()
const prompt = byId<HTMLTextAreaElement>('prompt')
const user = byId<HTMLInputElement>('user')
const banner = new Banner(() => void resume().catch(refuse))
const search = new SearchView(
  (place) => choose(rootOf(place.conversation_id), place.request_id),
  () => talk.versionId,
  (id) => list.titleOf(id),
)
const list = new ConversationList(
  () => ({ id: talk.conversationId, title: talk.title, at: talk.askedAt }),
  (id) => (search.toggle(false), choose(id)),
  (row) => options.open(row),
)
const options = new Options(
  (id) => (id === talk.conversationId ? talk.chosen : null),
  () => void list.refresh(),
  (id) => (id === undefined ? list.clear() : list.drop(id), leave(id)),
)

/** The conversation is gone; without an id, all are. */
function leave(id?: string): void {
  if (id === undefined || id === talk.conversationId) choose(fresh())
  else void list.refresh()
}

const fresh = (): string => random(8)

/** What the user asks for hides the list, where that covers the conversation; a page that has begun does not. */
function choose(conversationId: string, requestId?: string): void {
  menu(false)
  void open(conversationId, requestId)
}

async function open(conversationId: string, requestId?: string): Promise<void> {
  remember(`conversation.${caller.user}`, conversationId)
  const before = document.activeElement
  await talk.open(conversationId).catch(refuse)
  if (requestId) talk.show(requestId)
  await list.refresh()
  // Whoever has begun to type or to choose elsewhere meanwhile goes on there.
  if (isMenuOpen()) return
  if (document.activeElement === before || document.activeElement === document.body) prompt.focus()
}

/** What could not be read while the gateway was away. */
async function resume(): Promise<void> {
  if (prompt.disabled) await enter()
  else if (talk.title) await list.refresh()
  else await open(talk.conversationId)
}

function refuse(error: unknown): void {
  // The key has expired, or was taken back.
  if (error instanceof Refusal && error.status === 401) void enter().catch(banner.show)
  else banner.show(error)
}

/** What could not be sent stands before what was typed since. */
let unsent: string[] = []

async function send(): Promise<void> {
  const text = prompt.value.trim()
  if (!text) return
  prompt.value = ''
  unsent = []
  fit()
  try {
    await talk.ask(text, chosen())
    await list.refresh()
  } catch (error) {
    const before = unsent.join('\n')
    const isKept = prompt.value.startsWith(before)
    const typed = isKept ? prompt.value.slice(before.length).trimStart() : prompt.value
    unsent = [...(isKept ? unsent : []), text]
    prompt.value = [...unsent, typed].filter(Boolean).join('\n')
    fit()
    refuse(error)
  }
}

function fit(): void {
  prompt.style.height = 'auto'
  prompt.style.height = `${prompt.scrollHeight}px`
}

let entering = 0

async function enter(): Promise<void> {
  const turn = ++entering
  // Until it is known who asks, nothing can be typed that would be lost.
  prompt.disabled = user.disabled = true
  try {
    const identity = await me()
    if (turn !== entering) return // another user has logged in since
    caller.user = identity.user_id
    caller.development = identity.development
    caller.tools = identity.tools
  } catch (error) {
    if (!(error instanceof Refusal) || error.status !== 401) throw error
    caller.development = false
    await login(caller.key ? UNKNOWN_KEY : '')
    return enter()
  }
  user.value = caller.user
  user.readOnly = !caller.development
  byId('logout').hidden = caller.development
  prompt.disabled = user.disabled = false
  list.clear()
  void welcome((text) => ((prompt.value = text), void send()))
  await open(remembered(`conversation.${caller.user}`) || fresh())
}

/** The key and the prompts of running requests leave this browser; a reload drops what is on the screen. */
function logout(): void {
  sessionStorage.removeItem('parley.key')
  forget()
  location.reload()
}

const isMenuOpen = (): boolean => byId('side').classList.contains('open')

/** Show or hide the list of conversations; a wide screen always shows it. */
function menu(on: boolean): void {
  byId('side').classList.toggle('open', on)
  byId('menu').setAttribute('aria-expanded', String(on))
}

function find(on?: boolean): void {
  menu(false)
  search.toggle(on)
}

function theme(chosen: string): void {
  if (chosen) document.documentElement.dataset.theme = chosen
}

byId('ask').addEventListener('submit', (event) => (event.preventDefault(), void send()))
byId('stop').addEventListener('click', () => void talk.stop().catch(refuse))
byId('new').addEventListener('click', () => (search.toggle(false), choose(fresh())))
byId('logout').addEventListener('click', logout)
byId('find').addEventListener('click', () => find(true))
byId('theme').addEventListener('click', () => {
  const isDark = getComputedStyle(document.documentElement).colorScheme === 'dark'
  remember('theme', isDark ? 'light' : 'dark')
  theme(isDark ? 'light' : 'dark')
})
byId('menu').addEventListener('click', () => menu(!isMenuOpen()))
user.addEventListener('change', () => {
  caller.user = user.value.trim()
  remember('user', caller.user)
  void enter().catch(refuse)
})
prompt.addEventListener('input', fit)
prompt.addEventListener('keydown', (event) => {
  if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
    event.preventDefault()
    void send()
  }
})
document.addEventListener('keydown', (event) => {
  if (event.key === 'Escape') {
    if (document.querySelector('dialog[open]')) return
    if (isMenuOpen()) (menu(false), byId('menu').focus())
    else if (byId('search').hidden) void talk.stop().catch(refuse)
    else search.toggle(false)
  } else if ((event.ctrlKey || event.metaKey) && event.key === 'k') (event.preventDefault(), find())
  else if (event.altKey && event.code === 'KeyN') (event.preventDefault(), byId('new').click())
})
onNews((news) => {
  if (news.kind === 'asked') void talk.loaded.then(() => talk.join(news.running))
  if (news.kind === 'erased') leave()
  else if (news.kind === 'deleted') (list.drop(news.conversationId), leave(news.conversationId))
  else void list.refresh()
})
talk.onEnd = () => void list.refresh()
talk.refuse = refuse

theme(remembered('theme'))
caller.user = remembered('user')
caller.key = sessionStorage.getItem('parley.key') ?? ''
void enter().catch(refuse)
