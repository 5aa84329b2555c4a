/** The gateway, as the page calls it. */

/** A call of a tool; `result` is its result, if known. */
export interface Call {
  id: string
  name: string
  arguments: string
  result?: string
}

export interface Turn {
  request_id: string
  prompt: string
  answer: string
  finish_reason: string
  usage: { completion_tokens: number }
  model_version: string
  created_at: number
  tool_calls?: Call[] | null
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
}

export interface Me {
  user_id: string
  development: boolean
  tools: object[]
}

export class Refusal extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message)
  }
}

/** Who asks: a name in development, a key elsewhere. `tools` are those that answers may call. */
export const caller = { user: '', key: '', development: true, tools: [] as object[] }

export function request(path: string, options: RequestInit = {}): Promise<Response> {
  const address = new URL(path, location.origin)
  if (caller.development && caller.user) address.searchParams.set('user_id', caller.user)
  const headers = new Headers(options.headers)
  if (caller.key) headers.set('Authorization', `Bearer ${caller.key}`)
  return fetch(address, { ...options, headers })
}

async function call<T>(path: string, options: RequestInit = {}): Promise<T> {
  const reply = await request(path, options)
  const body = await reply.json()
  if (!reply.ok) throw new Refusal(reply.status, body.error?.message ?? reply.statusText)
  return body as T
}

const id = encodeURIComponent

export const me = (): Promise<Me> => call('/v1/me')

export const ask = (body: object): Promise<{ request_id: string }> =>
  call('/v1/requests', {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify(body),
  })

export const cancel = (requestId: string): Promise<unknown> =>
  call(`/v1/requests/${id(requestId)}`, { method: 'DELETE' })

export const turnsOf = async (conversationId: string): Promise<Turn[]> =>
  (await call<{ turns: Turn[] }>(`/v1/conversations/${id(conversationId)}`)).turns

export const conversations = async (): Promise<Conversation[]> =>
  (await call<{ conversations: Conversation[] }>('/v1/conversations')).conversations

export const search = async (filters: Record<string, string>): Promise<Hit[]> =>
  (await call<{ hits: Hit[] }>(`/v1/search?${new URLSearchParams(filters)}`)).hits
