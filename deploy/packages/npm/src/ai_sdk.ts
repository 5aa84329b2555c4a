/**
 * A `ChatTransport` for the AI SDK, whose streams survive their reader, the gateway and the worker.
 *
 *   const transport = new ParleyChatTransport({ url: 'https://parley.example', key })
 *   useChat({ id: chatId, messages: stored, transport, resume: true })
 *
 * The messages of the page are the whole context of each request, and the chat's id is the conversation. Another answer
 * (`regenerate`) is a copy of the conversation from the worker (`from`), as long as that remembers the question; it
 * replaces the earlier one, and so does an edited message, in searches as on the page. `stop` ends the answer at the
 * worker; with a message right behind it, that one interrupts it (`while_busy`). A page that is loaded again, or another
 * tab, reads the answer from its beginning.
 */

import type { ChatTransport, UIMessage, UIMessageChunk } from 'ai'
import { type Ask, type Following, type Fork, type Message, Parley } from './client.js'
import { AnswerFailedError } from './errors.js'
import type { Options } from './http.js'
import { newRequestId } from './ids.js'
import type { ToolCall, Update } from './reader.js'
import { forkOf, versionId } from './versions.js'

/** Which request of a chat is being answered. The default is the browser's storage, which its tabs share. */
export interface Requests {
  get(chatId: string): string | null | Promise<string | null>
  set(chatId: string, requestId: string | null): void | Promise<void>
}

export interface TransportOptions extends Options {
  /** Further fields of each request, as `model` or `tools` in OpenAI's form. */
  body?: Ask
  requests?: Requests
}

/** A stream that was left is over only if nobody goes on with it at once: a new reader replaces the one before. */
const REPLACED_MS = 200
const ENDS = new Set(['interrupt', 'rollback'])

export class ParleyChatTransport<UI_MESSAGE extends UIMessage = UIMessage> implements ChatTransport<UI_MESSAGE> {
  readonly resumeStreamIsReplay = true
  readonly #parley: Parley
  readonly #body: Ask
  readonly #requests: Requests
  readonly #open = new Map<string, number>()
  /** The requests that answer the messages of the user, in their order, by chat: those that this page has sent. */
  readonly #asked = new Map<string, Map<string, string>>()
  /** The answer that was stopped last and is not cancelled yet, by chat. */
  readonly #stopped = new Map<string, { requestId: string; timer: ReturnType<typeof setTimeout> }>()

  constructor({ body = {}, requests, ...options }: TransportOptions = {}) {
    this.#parley = new Parley(options)
    this.#body = body
    this.#requests = requests ?? defaultRequests()
  }

  sendMessages: ChatTransport<UI_MESSAGE>['sendMessages'] = async ({ trigger, chatId, messages, messageId, abortSignal, body }) => {
    const question = messages.findLast(({ role }) => role === 'user')?.id ?? ''
    const isAgain = trigger === 'regenerate-message'
    const asked = this.#replaced(chatId, question)
    const of = asked[0] ?? (isAgain ? messageId : undefined)
    const from = isAgain && of !== undefined ? await this.#from(of, messages) : null
    const replaces = asked.length || !from ? asked : [from.request_id]
    const about: Ask = { ...this.#body, ...body, ...(replaces.length ? { replaces } : {}) }
    let requestId = from && versionId('again', from.request_id)
    if (from && requestId) {
      await this.#send(chatId, requestId, { ...about, from, conversation_id: forkOf(chatId) }, abortSignal)
      if (!(await this.#begins(requestId, abortSignal))) requestId = null
    }
    requestId ??= await this.#sendWhole(chatId, about, messages, abortSignal)
    this.#askedIn(chatId).set(question, requestId)
    return this.#stream(chatId, requestId, abortSignal)
  }

  /** Send what the page shows. */
  async #sendWhole(chatId: string, about: Ask, messages: UIMessage[], signal?: AbortSignal): Promise<string> {
    const requestId = newRequestId()
    const stopped = this.#stopped.get(chatId)
    const interrupts = stopped !== undefined && !this.#open.has(stopped.requestId)
    const rule: Ask = interrupts ? { while_busy: 'interrupt' } : {}
    const ask: Ask = { ...rule, ...about, messages: messages.flatMap(messagesOf), conversation_id: chatId }
    await this.#send(chatId, requestId, ask, signal)
    if (interrupts && ENDS.has(ask.while_busy ?? '')) clearTimeout(stopped.timer)
    return requestId
  }

  async #send(chatId: string, requestId: string, ask: Ask, signal?: AbortSignal): Promise<void> {
    // Known before it is sent: a page that is loaded again in between finds it.
    await this.#requests.set(chatId, requestId)
    await this.#parley.ask({ ...ask, request_id: requestId }, { signal })
  }

  #askedIn(chatId: string): Map<string, string> {
    const asked = this.#asked.get(chatId) ?? new Map<string, string>()
    this.#asked.set(chatId, asked)
    return asked
  }

  /** The requests that have answered this message before, and those behind it: it takes their place. */
  #replaced(chatId: string, question: string): string[] {
    const asked = this.#askedIn(chatId)
    const at = [...asked.keys()].indexOf(question)
    const later = at < 0 ? [] : [...asked].slice(at)
    for (const [id] of later) asked.delete(id)
    return later.map(([, requestId]) => requestId)
  }

  /** Where another answer to a request begins; instructions are not remembered, so with some it begins nowhere. */
  async #from(of: string, messages: UIMessage[]): Promise<Fork | null> {
    if (messages.some(({ role }) => role === 'system')) return null
    const known = await this.#parley.peek(of).catch(() => null)
    return known && { conversation_id: known.conversation_id, request_id: of, index: 0 }
  }

  /** Whether the worker still remembers the question. */
  async #begins(requestId: string, signal?: AbortSignal): Promise<boolean> {
    try {
      for await (const { event } of this.#parley.follow(requestId, { signal })) {
        if (event.type !== 'notice') return event.error?.code !== 'invalid_request'
      }
    } catch (error) {
      // Who has stopped it has its stream, which ends it at the worker.
      if (!(error instanceof AnswerFailedError) && !signal?.aborted) throw error
    }
    return true
  }

  reconnectToStream: ChatTransport<UI_MESSAGE>['reconnectToStream'] = async ({ chatId, abortSignal }) => {
    const requestId = await this.#requests.get(chatId)
    if (requestId === null || (await this.#parley.peek(requestId)) === null) return null
    return this.#stream(chatId, requestId, abortSignal)
  }

  #stream(chatId: string, requestId: string, stop?: AbortSignal): ReadableStream<UIMessageChunk> {
    const leaving = new AbortController()
    this.#open.set(requestId, (this.#open.get(requestId) ?? 0) + 1)
    const left = () => {
      if (leaving.signal.aborted) return
      leaving.abort()
      const others = (this.#open.get(requestId) ?? 1) - 1
      if (others > 0) this.#open.set(requestId, others)
      else this.#open.delete(requestId)
    }
    const stopped = () => {
      left()
      const timer = setTimeout(() => {
        this.#stopped.delete(chatId)
        if (!this.#open.has(requestId)) void this.#parley.cancel(requestId).catch(() => {})
      }, REPLACED_MS)
      this.#stopped.set(chatId, { requestId, timer })
    }
    if (stop?.aborted) stopped()
    stop?.addEventListener('abort', stopped, { once: true })
    const over = async () => {
      stop?.removeEventListener('abort', stopped)
      left()
      if ((await this.#requests.get(chatId)) === requestId) await this.#requests.set(chatId, null)
    }
    const chunks = chunksOf(this.#parley.follow(requestId, { signal: leaving.signal }))
    return new ReadableStream<UIMessageChunk>({
      async pull(controller) {
        try {
          const { value, done } = await chunks.next()
          if (!done) return controller.enqueue(value)
          await over()
          controller.close()
        } catch (error) {
          if (leaving.signal.aborted) return controller.close()
          left()
          controller.error(error)
        }
      },
      async cancel() {
        left()
        await chunks.return(undefined)
      },
    })
  }
}

/** A part is open while events of its kind come, and each kind begins a part of its own. */
class Parts {
  #kind: 'text' | 'reasoning' | null = null
  #number = 0; // a generator method follows

  *delta(kind: 'text' | 'reasoning', delta: string): Generator<UIMessageChunk> {
    if (this.#kind !== kind) {
      yield* this.close()
      this.#kind = kind
      yield { type: `${kind}-start`, id: String(++this.#number) }
    }
    yield { type: `${kind}-delta`, id: String(this.#number), delta }
  }

  *close(): Generator<UIMessageChunk> {
    if (this.#kind) yield { type: `${this.#kind}-end`, id: String(this.#number) }
    this.#kind = null
  }
}

async function* chunksOf(following: Following): AsyncGenerator<UIMessageChunk, undefined> {
  const parts = new Parts()
  yield { type: 'start', messageId: following.requestId }
  yield { type: 'start-step' }
  try {
    for await (const update of following) yield* chunksOfUpdate(parts, update)
  } catch (error) {
    if (!(error instanceof AnswerFailedError)) throw error
    yield { type: 'error', errorText: error.message }
    return
  }
  yield { type: 'finish-step' }
  yield { type: 'finish', messageMetadata: { finishReason: following.answer.end?.finish_reason } }
}

function* chunksOfUpdate(parts: Parts, { event, cut }: Update): Generator<UIMessageChunk> {
  // The SDK's messages only grow: what was taken back, they can only show as an error.
  if (cut !== null) throw new AnswerFailedError('retracted', 'a part of the answer was taken back: load it again')
  if (event.reasoning) yield* parts.delta('reasoning', event.reasoning)
  if (event.text) yield* parts.delta('text', event.text)
  const { calls = [], results = [] } = event.notice?.details ?? {}
  if (event.notice?.code === 'tool_calls') yield* callsOf(parts, calls)
  if (event.notice?.code === 'tool_results') {
    for (const { tool_call_id: toolCallId, content } of results) {
      yield { type: 'tool-output-available', toolCallId, output: parsed(content), dynamic: true }
    }
  }
  if (event.type === 'done') {
    yield* callsOf(parts, event.tool_calls ?? [])
    yield* parts.close()
  }
}

function* callsOf(parts: Parts, calls: ToolCall[]): Generator<UIMessageChunk> {
  yield* parts.close()
  for (const { id, name, arguments: given } of calls) {
    yield { type: 'tool-input-available', toolCallId: id, toolName: name, input: parsed(given), dynamic: true }
  }
}

/** A message of the page as messages of a request: its text with its calls, then their results. */
function messagesOf(message: UIMessage): Message[] {
  const texts: string[] = []
  const calls: NonNullable<Message['tool_calls']> = []
  const results: Message[] = []
  for (const part of message.parts) {
    if (part.type === 'text') texts.push(part.text)
    if (part.type === 'file') throw new TypeError('Parley takes no files')
    if (!('toolCallId' in part)) continue
    const name = part.type === 'dynamic-tool' ? part.toolName : part.type.replace(/^tool-/, '')
    if (part.state !== 'output-available' && part.state !== 'output-error') continue
    const output = part.state === 'output-available' ? part.output : { error: part.errorText }
    const given = JSON.stringify(part.input ?? {})
    calls.push({ id: part.toolCallId, type: 'function', function: { name, arguments: given } })
    results.push({ role: 'tool', tool_call_id: part.toolCallId, content: textOf(output) })
  }
  const content = texts.join('')
  if (!calls.length) return content || message.role !== 'assistant' ? [{ role: message.role, content }] : []
  // What follows the results is the answer that has read them.
  return [{ role: 'assistant', tool_calls: calls }, ...results, ...(content ? [{ role: message.role, content }] : [])]
}

const textOf = (value: unknown): string => (typeof value === 'string' ? value : JSON.stringify(value ?? null))

function parsed(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return text
  }
}

function defaultRequests(): Requests {
  const name = (chatId: string) => `parley:${chatId}`
  if (typeof localStorage !== 'undefined') {
    return {
      get: (chatId) => localStorage.getItem(name(chatId)),
      set: (chatId, id) => (id === null ? localStorage.removeItem(name(chatId)) : localStorage.setItem(name(chatId), id)),
    }
  }
  const kept = new Map<string, string>()
  return {
    get: (chatId) => kept.get(chatId) ?? null,
    set: (chatId, id) => void (id === null ? kept.delete(chatId) : kept.set(chatId, id)),
  }
}
