/** What a reload must not lose, and what the other tabs learn: requests that are under way or have failed, titles,
 * removed rows.
 */

import { caller } from './api'
import { rootOf } from './ids'

export interface Running {
  requestId: string
  conversationId: string
  prompt: string
  askedAt: number
  /** What it does to earlier ones of its conversation, if not to wait for them. */
  whileBusy?: 'steer' | 'interrupt' | 'rollback'
  hasTools?: boolean
}

/** A request that ended in an error: the history has no turn of it. */
export interface Failed extends Running {
  code: string
}

export type News =
  | { kind: 'asked'; user: string; running: Running }
  | { kind: 'deleted'; user: string; conversationId: string }
  | { kind: 'ended' | 'listed' | 'erased'; user: string }

/** What this browser says of a conversation. `removedAt`: it is off the list unless it goes on later, Unix milliseconds. */
export interface Listed {
  title?: string
  removedAt?: number
}

const MOST_FAILED = 20

const channel = new BroadcastChannel('parley')
const key = (): string => `parley.running.${caller.user}`
const failedKey = (): string => `parley.failed.${caller.user}`
const listedKey = (): string => `parley.listed.${caller.user}`

export function remembered(name: string): string {
  return localStorage.getItem(`parley.${name}`) ?? ''
}

export function remember(name: string, value: string): void {
  localStorage.setItem(`parley.${name}`, value)
}

function parsed<T>(name: string, otherwise: T): T {
  try {
    return JSON.parse(localStorage.getItem(name) ?? 'null') ?? otherwise
  } catch {
    return otherwise
  }
}

export function running(): Running[] {
  return parsed<Running[]>(key(), [])
}

/** The last ones, oldest first. */
export function failures(): Failed[] {
  return parsed<Failed[]>(failedKey(), [])
}

export function fails(one: Failed): void {
  const others = failures().filter((other) => other.requestId !== one.requestId)
  localStorage.setItem(failedKey(), JSON.stringify([...others, one].slice(-MOST_FAILED)))
}

export function listed(): Record<string, Listed> {
  return parsed<Record<string, Listed>>(listedKey(), {})
}

export function list(conversationId: string, change: Listed): void {
  const all = listed()
  localStorage.setItem(listedKey(), JSON.stringify({ ...all, [conversationId]: { ...all[conversationId], ...change } }))
  channel.postMessage({ kind: 'listed', user: caller.user } satisfies News)
}

/** Before it is sent: a reload at any moment finds it, and one that never arrived ends as not found. */
export function begins(one: Running): void {
  localStorage.setItem(key(), JSON.stringify([...running().filter((r) => r.requestId !== one.requestId), one]))
}

export function begun(one: Running): void {
  channel.postMessage({ kind: 'asked', user: caller.user, running: one } satisfies News)
}

export function ended(requestId: string): void {
  localStorage.setItem(key(), JSON.stringify(running().filter((one) => one.requestId !== requestId)))
  channel.postMessage({ kind: 'ended', user: caller.user } satisfies News)
}

/** The server has deleted a conversation: what this browser has of it goes, here and in the other tabs. */
export function deleted(conversationId: string): void {
  const others = (one: Running): boolean => rootOf(one.conversationId) !== conversationId
  localStorage.setItem(key(), JSON.stringify(running().filter(others)))
  localStorage.setItem(failedKey(), JSON.stringify(failures().filter(others)))
  const { [conversationId]: _, ...rest } = listed()
  localStorage.setItem(listedKey(), JSON.stringify(rest))
  channel.postMessage({ kind: 'deleted', user: caller.user, conversationId } satisfies News)
}

/** All conversations are erased: what this browser has of them goes, here and in the other tabs. */
export function erased(): void {
  for (const name of [key(), failedKey(), listedKey()]) localStorage.removeItem(name)
  channel.postMessage({ kind: 'erased', user: caller.user } satisfies News)
}

/** Nothing of the user stays in this browser. */
export function forget(): void {
  for (const name of [key(), failedKey(), listedKey()]) localStorage.removeItem(name)
  for (const name of ['user', 'model', 'tools', `conversation.${caller.user}`]) localStorage.removeItem(`parley.${name}`)
}

export function onNews(deliver: (news: News) => void): void {
  channel.addEventListener('message', (message: MessageEvent<News>) => {
    if (message.data.user === caller.user) deliver(message.data)
  })
}
