import { RefusedError, UnreachableError } from './errors.js'
import type { TokenEvent } from './reader.js'

export interface Options {
  /** Of a gateway; by default the one that has served the page. */
  url?: string
  /** An API key or a token; a function is called before each request. */
  key?: string | (() => string | Promise<string>)
  /** Whom the calls are for, without keys or with a tenant's key. */
  user?: string
  /** How long to try again while nothing is heard of the gateway. */
  patienceMs?: number
  /** After so long without a byte a stream is given up, and goes on over a new connection. */
  silentMs?: number
  fetch?: typeof fetch
}

const PAUSE_MS = 100
const LONGEST_PAUSE_MS = 2000
/** A page that waits in silence looks as if it hung. */
const TOLD_AFTER_MS = 5000
/** A gateway sends a comment every 5 seconds while an answer waits; one that misses three hangs. */
const SILENT_MS = 15_000
/** Longer than a gateway waits for anything before it replies. */
const CALL_MS = 60_000
const AGAIN = new Set([429, 500, 502, 503, 504])

/** Calls of a gateway, tried again while it cannot be reached. */
export class Http {
  readonly #options: Options
  readonly #patienceMs: number
  readonly #silentMs: number

  constructor(options: Options) {
    this.#options = options
    this.#patienceMs = options.patienceMs ?? 60_000
    this.#silentMs = options.silentMs ?? SILENT_MS
  }

  /** Send a request, which has its id: under that it can be sent again. */
  async ask(request: Record<string, unknown>, signal?: AbortSignal): Promise<void> {
    await this.#json('POST', '/v1/requests', this.#silentMs, request, signal)
  }

  async json<T>(method: string, path: string, signal?: AbortSignal): Promise<T> {
    return this.#json(method, path, CALL_MS, undefined, signal)
  }

  async #json<T>(method: string, path: string, ms: number, body?: unknown, signal?: AbortSignal): Promise<T> {
    const patience = new Patience(this.#patienceMs)
    for (;;) {
      const silence = new Silence(ms, signal)
      try {
        const reply = await silence.broken(this.#fetch(method, path, silence.signal, body))
        if (!reply.ok) throw await silence.broken(refusal(reply))
        return (await silence.broken(reply.json())) as T
      } catch (error) {
        await patience.wait(error, signal)
      } finally {
        silence.end()
      }
    }
  }

  /** All entries of a list that comes a page at a time. */
  async pages<T>(path: string, name: string): Promise<T[]> {
    const all: T[] = []
    for (let query = ''; ; ) {
      const page = await this.json<Record<string, T[]> & { has_more?: boolean; last_id?: string | null }>('GET', path + query)
      all.push(...(page[name] ?? []))
      if (!page.has_more || !page.last_id) return all
      query = `?${new URLSearchParams({ after: page.last_id })}`
    }
  }

  /** The events of an answer behind the index `after`, over as many streams as it takes; its reader knows the end. */
  async *events(requestId: string, after: number, signal?: AbortSignal): AsyncGenerator<TokenEvent> {
    const path = `/v1/requests/${encodeURIComponent(requestId)}`
    const patience = new Patience(this.#patienceMs)
    let place = after
    let last: Partial<TokenEvent> = {}
    for (;;) {
      const silence = new Silence(this.#silentMs, signal)
      try {
        const reply = await silence.broken(this.#fetch('GET', `${path}/events`, silence.signal, undefined, place))
        if (!reply.ok) throw await silence.broken(refusal(reply))
        if (reply.status === 204) {
          yield await this.#whole(path, place, last, signal)
          return
        }
        for await (const block of blocks(reply, silence)) {
          patience.heard()
          place = block.id ?? place
          if (block.event) yield (last = block.event)
        }
        // A stream without an end: its gateway has stopped, or knows no such request.
        await this.json('GET', path, signal)
        throw new TypeError('the streams end without the end of the answer')
      } catch (error) {
        await patience.wait(error, signal)
      } finally {
        silence.end()
      }
    }
  }

  /**
   * The end of an answer whose tokens are in no log any more, as after a move to other topics: its turn has the text
   * alone, which takes the place of what was read of it.
   */
  async #whole(path: string, place: number, last: Partial<TokenEvent>, signal?: AbortSignal): Promise<TokenEvent> {
    const { status, ...answer } = await this.json<TokenEvent & { status: TokenEvent['type'] }>('GET', path, signal)
    if (answer.index || !answer.text) {
      throw new RefusedError(204, 'invalid_request', `after: the answer has ended before ${place}`, 'after')
    }
    const { request_id, user_id, conversation_id } = { ...answer, ...last }
    return { ...answer, request_id, user_id, conversation_id, type: status, epoch: (last.epoch ?? -1) + 1 }
  }

  async #fetch(method: string, path: string, signal?: AbortSignal, body?: unknown, place = 0): Promise<Response> {
    const { url = '', key, user, fetch: call = fetch } = this.#options
    const headers: Record<string, string> = {}
    if (body !== undefined) headers['content-type'] = 'application/json'
    if (key !== undefined) headers.authorization = `Bearer ${typeof key === 'function' ? await key() : key}`
    if (place) headers['last-event-id'] = String(place)
    const query = user === undefined ? '' : `${path.includes('?') ? '&' : '?'}user_id=${encodeURIComponent(user)}`
    const text = body === undefined ? undefined : JSON.stringify(body)
    return call(url.replace(/\/$/, '') + path + query, { method, headers, body: text, signal })
  }
}

/** Aborts a call whose next bytes do not come within so many milliseconds; a caller that is slow itself has time. */
class Silence {
  readonly #abort = new AbortController()
  readonly #ms: number
  readonly #caller?: AbortSignal
  readonly #leave = (): void => this.#abort.abort(this.#caller?.reason)

  constructor(ms: number, caller?: AbortSignal) {
    this.#ms = ms
    this.#caller = caller
    if (caller?.aborted) this.#leave()
    caller?.addEventListener('abort', this.#leave)
  }

  get signal(): AbortSignal {
    return this.#abort.signal
  }

  /** What comes next. */
  async broken<T>(next: Promise<T>): Promise<T> {
    const hangs = new TypeError(`nothing was heard for ${this.#ms} ms`)
    const timer = setTimeout(() => this.#abort.abort(hangs), this.#ms)
    try {
      return await next
    } catch (error) {
      throw this.signal.reason === hangs ? hangs : error
    } finally {
      clearTimeout(timer)
    }
  }

  end(): void {
    this.#caller?.removeEventListener('abort', this.#leave)
  }
}

class Patience {
  #since = performance.now()
  #pauseMs = PAUSE_MS
  #isTold = false

  constructor(readonly ms: number) {}

  heard(): void {
    this.#since = performance.now()
    this.#pauseMs = PAUSE_MS
  }

  /** Wait before the next try; throws what no further try would mend. */
  async wait(error: unknown, signal?: AbortSignal): Promise<void> {
    signal?.throwIfAborted()
    const isLost = error instanceof TypeError // of fetch, and of a body that breaks off
    if (!isLost && !(error instanceof RefusedError && AGAIN.has(error.status))) throw error
    if (performance.now() - this.#since > this.ms) {
      throw isLost ? new UnreachableError(`nothing was heard for ${this.ms} ms: ${error.message}`) : error
    }
    if (performance.now() - this.#since > TOLD_AFTER_MS && !this.#isTold) {
      this.#isTold = true
      console.warn(`parley-client: nothing was heard for ${TOLD_AFTER_MS} ms: ${error.message}; trying again`)
    }
    await new Promise((resolve) => setTimeout(resolve, this.#pauseMs))
    this.#pauseMs = Math.min(2 * this.#pauseMs, LONGEST_PAUSE_MS)
  }
}

async function refusal(reply: Response): Promise<RefusedError> {
  try {
    const { error } = await reply.json()
    return new RefusedError(reply.status, error.code, error.message, error.param)
  } catch {
    return new RefusedError(reply.status, 'http_error', `HTTP ${reply.status}`)
  }
}

async function* blocks(reply: Response, silence: Silence): AsyncGenerator<{ id?: number; event?: TokenEvent }> {
  if (reply.body === null) return
  const reader = reply.body.getReader()
  const decoder = new TextDecoder()
  let rest = ''
  try {
    for (;;) {
      const { value, done } = await silence.broken(reader.read())
      if (done) return
      const parts = (rest + decoder.decode(value, { stream: true })).split('\n\n')
      rest = parts.pop() ?? ''
      for (const part of parts) yield block(part)
    }
  } finally {
    await reader.cancel().catch(() => {})
  }
}

function block(text: string): { id?: number; event?: TokenEvent } {
  const lines = text.split('\n')
  const id = lines.find((line) => line.startsWith('id:'))
  const data = lines.filter((line) => line.startsWith('data:')).map((line) => line.slice(5))
  return {
    id: id === undefined ? undefined : Number(id.slice(3)),
    event: data.length ? (JSON.parse(data.join('\n')) as TokenEvent) : undefined,
  }
}
