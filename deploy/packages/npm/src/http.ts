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
  fetch?: typeof fetch
}

const PAUSE_MS = 100
const LONGEST_PAUSE_MS = 2000
const AGAIN = new Set([429, 500, 502, 503, 504])

/** Calls of a gateway, tried again while it cannot be reached. */
export class Http {
  readonly #options: Options
  readonly #patienceMs: number

  constructor(options: Options) {
    this.#options = options
    this.#patienceMs = options.patienceMs ?? 60_000
  }

  async json<T>(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<T> {
    const patience = new Patience(this.#patienceMs)
    for (;;) {
      try {
        const reply = await this.#fetch(method, path, signal, body)
        if (!reply.ok) throw await refusal(reply)
        return (await reply.json()) as T
      } catch (error) {
        await patience.wait(error, signal)
      }
    }
  }

  /** The events of an answer behind the index `after`, over as many streams as it takes; its reader knows the end. */
  async *events(requestId: string, after: number, signal?: AbortSignal): AsyncGenerator<TokenEvent> {
    const path = `/v1/requests/${encodeURIComponent(requestId)}`
    const patience = new Patience(this.#patienceMs)
    let place = after
    for (;;) {
      try {
        const reply = await this.#fetch('GET', `${path}/events`, signal, undefined, place)
        if (!reply.ok) throw await refusal(reply)
        for await (const block of blocks(reply)) {
          patience.heard()
          place = block.id ?? place
          if (block.event) yield block.event
        }
        // A stream without an end: its gateway has stopped, or knows no such request.
        await this.json('GET', path, undefined, signal)
        throw new TypeError('the streams end without the end of the answer')
      } catch (error) {
        await patience.wait(error, signal)
      }
    }
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

class Patience {
  #since = performance.now()
  #pauseMs = PAUSE_MS

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

async function* blocks(reply: Response): AsyncGenerator<{ id?: number; event?: TokenEvent }> {
  if (reply.body === null) return
  const reader = reply.body.getReader()
  const decoder = new TextDecoder()
  let rest = ''
  try {
    for (;;) {
      const { value, done } = await reader.read()
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
