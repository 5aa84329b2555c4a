/**
 * A `ChatTransport` for the AI SDK, whose streams survive their reader, the gateway and the worker.
 *
 *   const transport = new ParleyChatTransport({ url: 'https://parley.example', key })
 *   useChat({ id: chatId, messages: stored, transport, resume: true })
 *
 * The messages of the page are the whole context of each request, and the chat's id is the conversation: so an answer
 * has read what the page shows, whichever versions these are. Another answer (`regenerate`) and an edited message replace
 * what they take the place of, in searches as on the page. `stop` ends the answer at the worker; with a message right
 * behind it, that one interrupts it (`while_busy`). A page that is loaded again, or another tab, reads the answer from
 * its beginning.
 */

import type { ChatTransport, UIMessage, UIMessageChunk } from 'ai'
import { type Ask, type Following, type Message, Parley } from './client.js'
import { AnswerFailedError } from './errors.js'
import type { Options } from './http.js'
import { newRequestId } from './ids.js'
import type { ToolCall, Update } from './reader.js'
import { MOST_REPLACED, versionId } from './versions.js'

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
  /** The requests that answer the messages of the user, in their order, by chat, as far as this page has seen them. */
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
    const kind = trigger === 'regenerate-message' ? 'again' : 'edit'
    const answered = kind === 'again' && messageId !== question ? messageId : undefined
    const { replaces = this.#replaced(chatId, question, answered), ...fields }: Ask = { ...this.#body, ...body }
    const requestId = replaces[0] === undefined ? newRequestId() : versionId(kind, replaces[0])
    const stopped = this.#stopped.get(chatId)
    const interrupts = stopped !== undefined && !this.#open.has(stopped.requestId)
    const ask: Ask = {
      ...(interrupts ? { while_busy: 'interrupt' } : {}),
      ...fields,
      ...(replaces.length ? { replaces } : {}),
      messages: messages.flatMap(messagesOf),
      conversation_id: chatId,
      request_id: requestId,
    }
    // Known before it is sent: a page that is loaded again in between finds it.
    await this.#requests.set(chatId, requestId)
    await this.#parley.ask(ask, { signal: abortSignal })
    if (interrupts && ENDS.has(ask.while_busy ?? '')) clearTimeout(stopped.timer)
    this.#note(chatId, messages, question, requestId)
    return this.#stream(chatId, requestId, abortSignal)
  }

  /** What the page shows, up to this question, which this request answers. */
  #note(chatId: string, messages: UIMessage[], question: string, requestId: string): void {
    const asked = this.#asked.get(chatId) ?? new Map<string, string>()
    this.#asked.set(chatId, asked)
    for (const [at, { role, id }] of messages.entries()) {
      const before = messages[at - 1]
      if (role === 'assistant' && before?.role === 'user') asked.set(before.id, id)
    }
    const known = [...asked.keys()]
    for (const later of asked.has(question) ? known.slice(known.indexOf(question)) : []) asked.delete(later)
    asked.set(question, requestId)
  }

  /** The requests that have answered this message before, the one that is seen first, and those behind it. */
  #replaced(chatId: string, question: string, seen?: string): string[] {
    const asked = [...(this.#asked.get(chatId) ?? [])]
    const at = asked.findIndex(([id]) => id === question)
    const later = at < 0 ? [] : asked.slice(at).map(([, requestId]) => requestId)
    return [...new Set(seen === undefined ? later : [seen, ...later])].slice(0, MOST_REPLACED)
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
