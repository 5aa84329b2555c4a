/** The gateway, as the page calls it. */

import { rootOf } from './ids'

/** A call of a tool; `result` is its result, if known. */
export interface Call {
  id: string
  name: string
  arguments: string
  result?: string
}

export interface Turn {
  conversation_id: string
  request_id: string
  prompt: string
  answer: string
  finish_reason: string
  usage: { prompt_tokens?: number; completion_tokens: number }
  model_version: string
  created_at: number
  tool_calls?: Call[] | null
  reasoning?: string | null
  timing?: { requested_at: number; first_token_at: number | null; finished_at: number | null } | null
}

export interface Conversation {
  conversation_id: string
  title: string
  turns: number
  last_at: number
}

export interface Hit {
  request_id: string
  conversation_id: string
  role: 'user' | 'assistant'
  text: string
  created_at: number
  similarity: number
  /** The latest turn in whose favour this one is found only if it is asked for. */
  replaced_by?: Place | null
}

/** Where a turn is. */
export interface Place {
  request_id: string
  conversation_id: string
}

export interface Me {
  user_id: string
  development: boolean
  tools: object[]
}

export class Refusal extends Error {
  constructor(
    readonly status: number,
    readonly code = '',
    readonly retryAfterS: number | null = null,
    message = '',
  ) {
    super(message || `${status} ${code}`)
  }
}

/** No answer came: the gateway, or the network before it, is away. */
export class Unreachable extends Error {}

/** Who asks: a name in development, a key elsewhere. `tools` are those that answers may call, `models` those that may
 * be named.
 */
export const caller = { user: '', key: '', development: true, tools: [] as object[], models: [] as string[] }

/** `changed` is called after each request that has or has not reached the gateway. */
export const reach = { changed: (_isReached: boolean): void => undefined }

export async function request(path: string, options: RequestInit = {}): Promise<Response> {
  const address = new URL(path, location.origin)
  if (caller.development && caller.user) address.searchParams.set('user_id', caller.user)
  const headers = new Headers(options.headers)
  if (caller.key) headers.set('Authorization', `Bearer ${caller.key}`)
  try {
    const reply = await fetch(address, { ...options, headers })
    reach.changed(true)
    return reply
  } catch (error) {
    if (options.signal?.aborted) throw error
    reach.changed(false)
    throw new Unreachable()
  }
}

/** What a reply that is no success says; a proxy's has no JSON. */
export async function refusal(reply: Response): Promise<Refusal> {
  const body = (await reply.json().catch(() => ({}))) as { error?: { code?: string; message?: string } }
  return new Refusal(reply.status, body.error?.code, Number(reply.headers.get('Retry-After')) || null, body.error?.message)
}

async function call<T>(path: string, options: RequestInit = {}): Promise<T> {
  const reply = await request(path, options)
  if (!reply.ok) throw await refusal(reply)
  return (await reply.json()) as T
}

const id = encodeURIComponent

export const me = (): Promise<Me> => call('/v1/me')

export const ask = (body: object): Promise<{ request_id: string }> =>
  call('/v1/requests', {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify(body),
  })

export const models = async (): Promise<string[]> =>
  (await call<{ data: { id: string }[] }>('/v1/models')).data.map((one) => one.id)

export const cancel = (requestId: string): Promise<unknown> =>
  call(`/v1/requests/${id(requestId)}`, { method: 'DELETE' })

/** What tools have answered to the calls of a request, as long as the log keeps it. */
export const resultsOf = async (requestId: string): Promise<{ tool_call_id: string; content: string }[]> =>
  (await call<{ results: { tool_call_id: string; content: string }[] }>(`/v1/requests/${id(requestId)}/tool-results`)).results

/** All entries of a list that comes a page at a time. */
async function pages<Name extends string, One>(path: string, name: Name): Promise<One[]> {
  const all: One[] = []
  for (let query = ''; ; ) {
    const page = await call<Record<Name, One[]> & { has_more?: boolean; last_id?: string | null }>(path + query)
    all.push(...page[name])
    if (!page.has_more || !page.last_id) return all
    query = `?${new URLSearchParams({ after: page.last_id })}`
  }
}

async function turnsOf(conversation_id: string): Promise<Turn[]> {
  const turns = await pages<'turns', Turn>(`/v1/conversations/${id(conversation_id)}`, 'turns')
  return turns.map((turn) => ({ ...turn, conversation_id }))
}

export const conversations = (): Promise<Conversation[]> => pages<'conversations', Conversation>('/v1/conversations', 'conversations')

/** The conversations that began as copies of this one, or of each other. */
async function forksOf(root: string): Promise<string[]> {
  const ids = (await conversations()).map((one) => one.conversation_id)
  return ids.filter((one) => one !== root && rootOf(one) === root)
}

/** When its question was sent, Unix milliseconds. */
export const askedAt = (turn: Turn): number => turn.timing?.requested_at ?? turn.created_at

/** The turns of all versions, as they were asked: one that is added to an answer ends before that. */
export async function versionsOf(root: string): Promise<Turn[]> {
  const [own, forks] = await Promise.all([turnsOf(root), forksOf(root)])
  const turns = await Promise.all(forks.map(turnsOf))
  return [own, ...turns].flat().sort((one, other) => askedAt(one) - askedAt(other))
}

/** All versions of it. */
export async function deleteConversation(root: string): Promise<void> {
  for (const one of [...(await forksOf(root)), root]) await call(`/v1/conversations/${id(one)}`, { method: 'DELETE' })
}

export const erase = (): Promise<unknown> => call(`/v1/users/${id(caller.user)}`, { method: 'DELETE' })

export const search = async (filters: Record<string, string>): Promise<Hit[]> =>
  (await call<{ hits: Hit[] }>(`/v1/search?${new URLSearchParams(filters)}`)).hits
