/** What a reload must not lose, and what the other tabs learn: the requests that are under way. */

import { caller } from './api'

export interface Running {
  requestId: string
  conversationId: string
  prompt: string
  askedAt: number
}

export type News = { kind: 'asked'; user: string; running: Running } | { kind: 'ended'; user: string }

const channel = new BroadcastChannel('parley')
const key = (): string => `parley.running.${caller.user}`

export function remembered(name: string): string {
  return localStorage.getItem(`parley.${name}`) ?? ''
}

export function remember(name: string, value: string): void {
  localStorage.setItem(`parley.${name}`, value)
}

export function running(): Running[] {
  try {
    return JSON.parse(localStorage.getItem(key()) ?? '[]') as Running[]
  } catch {
    return []
  }
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

/** Nothing of the user stays in this browser. */
export function forget(): void {
  localStorage.removeItem(key())
  for (const name of ['user', `conversation.${caller.user}`]) localStorage.removeItem(`parley.${name}`)
}

export function onNews(deliver: (news: News) => void): void {
  channel.addEventListener('message', (message: MessageEvent<News>) => {
    if (message.data.user === caller.user) deliver(message.data)
  })
}
