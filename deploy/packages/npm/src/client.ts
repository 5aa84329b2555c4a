import { AnswerFailedError } from './errors.js'
import { checkFields } from './fields.js'
import { Http, type Options } from './http.js'
import { newRequestId } from './ids.js'
import { Answer, ReaderRule, type ToolCall, type Update } from './reader.js'
import { DEFAULT_CONVERSATION, forkOf, inOnePlace, replacedWith, rootOf, versionId, type Turn } from './versions.js'

export interface Message {
  role: 'system' | 'developer' | 'user' | 'assistant' | 'tool'
  content?: string | null
  tool_calls?: { id: string; type: 'function'; function: { name: string; arguments: string } }[]
  tool_call_id?: string
  reasoning_content?: string
}

/** What becomes of earlier requests of the conversation; `queue` is the default. */
export type WhileBusy = 'queue' | 'reject' | 'interrupt' | 'rollback' | 'steer'

/** Where a conversation without turns begins as a copy: behind a request, or with `index` within its answer. */
export interface Fork {
  request_id: string
  conversation_id?: string
  index?: number
  tokens?: number[]
  text?: string
}

/** A record of `requests`: `prompt` continues the conversation that Parley keeps, `messages` are the whole context. */
export interface Ask {
  prompt?: string
  messages?: Message[]
  conversation_id?: string
  request_id?: string
  model?: string
  max_tokens?: number
  temperature?: number
  while_busy?: WhileBusy
  from?: Fork
  replaces?: string[]
  [field: string]: unknown
}

/** Further fields of a request that begins as a copy; `conversation` is that of the earlier one. */
export interface Version extends Ask {
  conversation?: string
}

export interface Hit {
  text: string
  role: 'user' | 'assistant'
  request_id: string
  conversation_id: string
  score: number
  [field: string]: unknown
}

/** An answer as it comes. Who leaves the iteration leaves the answer to go on; `Parley.cancel` ends it. */
export class Following implements AsyncIterable<Update> {
  answer: Answer
  readonly #events: () => AsyncGenerator<Parameters<Answer['take']>[0]>

  constructor(
    readonly requestId: string,
    events: () => AsyncGenerator<Parameters<Answer['take']>[0]>,
    conversationId = DEFAULT_CONVERSATION,
  ) {
    this.answer = new Answer('', requestId, conversationId)
    this.#events = events
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Update> {
    const rule = new ReaderRule()
    for await (const event of this.#events()) {
      const update = rule.read(0, null, event)
      if (update === null) continue
      this.answer = update.answer
      yield update
      if (this.answer.end) break
    }
    const error = this.answer.end?.error
    if (error) throw new AnswerFailedError(error.code, error.message)
  }

  /** The whole answer. */
  async result(): Promise<Answer> {
    for await (const _ of this);
    return this.answer
  }
}

export class Parley {
  readonly #http: Http

  constructor(options: Options = {}) {
    this.#http = new Http(options)
  }

  /**
   * Send a request; its answer is generated whether or not anybody follows it. It is sent again under the same id
   * until a gateway has it, and is asked once. Throws a `TypeError` for a field that a request does not know.
   */
  async ask(ask: string | Ask, { signal }: { signal?: AbortSignal } = {}): Promise<Following> {
    const given: Ask = typeof ask === 'string' ? { prompt: ask } : ask
    checkFields(Object.keys(given).filter((name) => given[name] !== undefined))
    const requestId = given.request_id ?? newRequestId()
    await this.#http.ask({ ...given, request_id: requestId }, signal)
    return new Following(requestId, () => this.#http.events(requestId, 0, signal), given.conversation_id)
  }

  /** Ask behind a request, in a conversation that begins as a copy up to it and is `answer.conversationId`. */
  async fork(requestId: string, prompt: string, { conversation = DEFAULT_CONVERSATION, ...fields }: Version = {}): Promise<Following> {
    const from = { conversation_id: conversation, request_id: requestId }
    return this.ask({ ...fields, prompt, conversation_id: forkOf(conversation), from })
  }

  /**
   * Another question in the place of an earlier one of the `conversation`; it goes on in `answer.conversationId`. What
   * followed is replaced, too: searches find it no more.
   */
  async edit(requestId: string, prompt: string, version: Version = {}): Promise<Following> {
    return this.#askInstead('edit', requestId, 0, { prompt }, version)
  }

  /** Another answer, as `edit`; one that begins with `index` tokens of the earlier one. */
  async regenerate(requestId: string, { index = 0, ...version }: Version & { index?: number } = {}): Promise<Following> {
    return this.#askInstead('again', requestId, index, {}, version)
  }

  async #askInstead(kind: 'again' | 'edit', of: string, index: number, asked: Ask, version: Version): Promise<Following> {
    const { conversation = DEFAULT_CONVERSATION, ...fields } = version
    return this.ask({
      ...fields,
      ...asked,
      conversation_id: forkOf(conversation),
      request_id: fields.request_id ?? versionId(kind, of),
      from: { conversation_id: conversation, request_id: of, index },
      replaces: fields.replaces ?? replacedWith(await this.#turns(conversation), of),
    })
  }

  /** The turns in the place of this one, oldest first, each with the conversation in which it goes on. */
  async versions(requestId: string, { conversation = DEFAULT_CONVERSATION }: { conversation?: string } = {}): Promise<Turn[]> {
    const root = rootOf(conversation)
    const known = await this.#http.pages<Turn>('/v1/conversations', 'conversations')
    const forks = known.map((one) => one.conversation_id).filter((one) => one !== root && rootOf(one) === root)
    const turns = await Promise.all([root, ...forks].map((one) => this.#turns(one)))
    return inOnePlace(turns.flat(), requestId)
  }

  async #turns(conversation_id: string): Promise<Turn[]> {
    const turns = await this.#http.pages<Turn>(`/v1/conversations/${encodeURIComponent(conversation_id)}`, 'turns')
    return turns.map((turn) => ({ ...turn, conversation_id }))
  }

  /** The answer to an earlier request, behind the index `after`. */
  follow(requestId: string, { after = 0, signal }: { after?: number; signal?: AbortSignal } = {}): Following {
    return new Following(requestId, () => this.#http.events(requestId, after, signal))
  }

  /** End the answer; the text so far is kept. */
  async cancel(requestId: string): Promise<void> {
    await this.#http.json('DELETE', `/v1/requests/${encodeURIComponent(requestId)}`)
  }

  /** The user's turns that fit the query by meaning or by words, the best first. */
  async search(query: string, filters: Record<string, string | number | boolean> = {}): Promise<Hit[]> {
    const parameters = new URLSearchParams({ q: query })
    for (const [name, value] of Object.entries(filters)) parameters.set(name, String(value))
    return (await this.#http.json<{ hits: Hit[] }>('GET', `/v1/search?${parameters}`)).hits
  }

  /** The answer so far, without waiting; null if there is no such request. */
  async peek(requestId: string): Promise<{ status: string; text: string; conversation_id: string; tool_calls: ToolCall[] | null } | null> {
    try {
      return await this.#http.json('GET', `/v1/requests/${encodeURIComponent(requestId)}`)
    } catch (error) {
      if ((error as { status?: number }).status === 404) return null
      throw error
    }
  }
}
