/** The page: puts its parts together. */

import { caller, conversations, me, Refusal } from './api'
import { byId, element } from './dom'
import { random } from './ids'
import { SearchView } from './search'
import { forget, onNews, remember, remembered, running } from './store'
import './style.css'
import { Talk } from './talk'

const talk = new Talk()
const prompt = byId<HTMLTextAreaElement>('prompt')
const user = byId<HTMLInputElement>('user')
const search = new SearchView(
  (hit) => void open(hit.conversation_id, hit.request_id),
  () => talk.conversationId,
)

const fresh = (): string => random(8)

async function open(conversationId: string, requestId?: string): Promise<void> {
  remember(`conversation.${caller.user}`, conversationId)
  byId('side').classList.remove('open')
  const before = document.activeElement
  await talk.open(conversationId).catch(talk.refuse)
  if (requestId) talk.show(requestId)
  await list()
  // Whoever has begun to type elsewhere meanwhile goes on there.
  if (document.activeElement === before || document.activeElement === document.body) prompt.focus()
}

async function list(): Promise<void> {
  const known = await conversations().catch(() => [])
  const titles = new Map(known.map((one) => [one.conversation_id, one.title]))
  for (const one of running()) if (!titles.has(one.conversationId)) titles.set(one.conversationId, one.prompt)
  // An answer that has just ended may not be in the history yet.
  if (talk.title && !titles.has(talk.conversationId)) titles.set(talk.conversationId, talk.title)
  const rows = [...titles].map(([conversationId, title]) => {
    const button = element('button', { type: 'button', className: 'quiet', textContent: title, title })
    if (conversationId === talk.conversationId) button.setAttribute('aria-current', 'page')
    button.addEventListener('click', () => (search.toggle(false), void open(conversationId)))
    return element('li', {}, button)
  })
  byId('conversations').replaceChildren(...rows)
}

async function send(): Promise<void> {
  const text = prompt.value.trim()
  if (!text) return
  prompt.value = ''
  fit()
  try {
    await talk.ask(text)
    await list()
  } catch (error) {
    prompt.value = text
    talk.refuse(error)
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
    await login()
    return enter()
  }
  user.value = caller.user
  user.readOnly = !caller.development
  byId('logout').hidden = caller.development
  prompt.disabled = user.disabled = false
  await open(remembered(`conversation.${caller.user}`) || fresh())
}

function login(): Promise<void> {
  const dialog = byId<HTMLDialogElement>('login')
  dialog.showModal()
  return new Promise((resolve) => {
    dialog.addEventListener(
      'close',
      () => {
        caller.key = byId<HTMLInputElement>('key').value.trim()
        sessionStorage.setItem('parley.key', caller.key)
        resolve()
      },
      { once: true },
    )
  })
}

/** The key and the prompts of running requests leave this browser; a reload drops what is on the screen. */
function logout(): void {
  sessionStorage.removeItem('parley.key')
  forget()
  location.reload()
}

function theme(chosen: string): void {
  if (chosen) document.documentElement.dataset.theme = chosen
}

byId('ask').addEventListener('submit', (event) => (event.preventDefault(), void send()))
byId('stop').addEventListener('click', () => void talk.stop().catch(talk.refuse))
byId('new').addEventListener('click', () => (search.toggle(false), void open(fresh())))
byId('logout').addEventListener('click', logout)
byId('find').addEventListener('click', () => search.toggle(true))
byId('theme').addEventListener('click', () => {
  const isDark = getComputedStyle(document.documentElement).colorScheme === 'dark'
  remember('theme', isDark ? 'light' : 'dark')
  theme(isDark ? 'light' : 'dark')
})
byId('menu').addEventListener('click', () => byId('menu').setAttribute('aria-expanded', String(byId('side').classList.toggle('open'))))
user.addEventListener('change', () => {
  caller.user = user.value.trim()
  remember('user', caller.user)
  void enter().catch(talk.refuse)
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
    if (byId('search').hidden) void talk.stop().catch(talk.refuse)
    else search.toggle(false)
  } else if ((event.ctrlKey || event.metaKey) && event.key === 'k') (event.preventDefault(), search.toggle())
  else if (event.altKey && event.code === 'KeyN') (event.preventDefault(), byId('new').click())
})
onNews((news) => {
  if (news.kind === 'asked') talk.join(news.running)
  void list()
})
talk.onEnd = () => void list()

theme(remembered('theme'))
caller.user = remembered('user')
caller.key = sessionStorage.getItem('parley.key') ?? ''
void enter().catch(talk.refuse)
