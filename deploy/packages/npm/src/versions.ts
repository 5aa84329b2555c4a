/**
 * Versions of a turn: an edit, or another answer, begins a conversation of its own as a copy (`from`), and names what it
 * replaces. Its name is that of the first one, `~` and eight digits, and its request's id says in whose place it
 * stands: so the chat page shows it among the versions of that turn.
 */

import { newRequestId } from './ids.js'

export const DEFAULT_CONVERSATION = 'default'

/** A turn of the history; `conversation_id` is where it goes on. */
export interface Turn {
  request_id: string
  conversation_id: string
  prompt: string
  answer: string
  created_at: number
  replaces?: string[]
  [field: string]: unknown
}

const MARK = /~[0-9a-f]{8}$/
/** As many as a request may name. */
export const MOST_REPLACED = 100
const LETTERS = { again: 'r', edit: 'e' } as const

/** The first one of all versions of a conversation. */
export const rootOf = (conversation: string): string => conversation.replace(MARK, '')

export function forkOf(conversation: string): string {
  const drawn = crypto.getRandomValues(new Uint8Array(4))
  return `${rootOf(conversation)}~${[...drawn].map((byte) => byte.toString(16).padStart(2, '0')).join('')}`
}

/** An id for a request in the place of the one with the id `of`. */
export function versionId(kind: keyof typeof LETTERS, of: string): string {
  const tail = of.split('.', 1)[0]!.slice(-12)
  return /^[A-Za-z0-9:_-]+$/.test(tail) ? `${newRequestId()}.${LETTERS[kind]}-${tail}` : newRequestId()
}

/** The request and those behind it in its conversation, as far as they are known. */
export function replacedWith(turns: Turn[], requestId: string): string[] {
  const ids = turns.map((turn) => turn.request_id)
  const at = ids.indexOf(requestId)
  return [requestId, ...(at < 0 ? [] : ids.slice(at + 1))].slice(0, MOST_REPLACED)
}

/** The turns in the place of this one, oldest first: a version names first in whose place it stands. */
export function inOnePlace(turns: Turn[], requestId: string): Turn[] {
  const before = new Map(turns.flatMap(({ request_id, replaces }) => (replaces?.[0] ? [[request_id, replaces[0]]] : [])))
  const place = (id: string, seen: string[] = []): string => {
    const next = before.get(id)
    return next === undefined || seen.includes(id) ? id : place(next, [...seen, id])
  }
  const wanted = place(requestId)
  return turns.filter((turn) => place(turn.request_id) === wanted).sort((one, other) => one.created_at - other.created_at)
}
