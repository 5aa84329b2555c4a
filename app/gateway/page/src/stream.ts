/** Server-sent events by `fetch`, which can carry a key; a stream that breaks goes on after its last id. */

import type { TokenEvent } from '../../../reader/reader.mjs'
import { Refusal, refusal, request } from './api'

const RETRY_MS = 1000
/** The gateway sends a comment every 5 seconds while an answer waits; one that misses three hangs. */
const SILENT_MS = 15_000

/** `place` is where the stream goes on; it is kept for the next call. */
export async function follow(
  requestId: string,
  take: (event: TokenEvent) => void,
  lost: (isLost: boolean) => void,
  signal: AbortSignal,
  place: { after: string },
): Promise<void> {
  while (!signal.aborted) {
    const silence = new AbortController()
    let timer = setTimeout(() => silence.abort(), SILENT_MS)
    const heard = (): void => {
      clearTimeout(timer)
      timer = setTimeout(() => silence.abort(), SILENT_MS)
    }
    const leave = (): void => silence.abort()
    signal.addEventListener('abort', leave)
    try {
      const headers: HeadersInit = place.after ? { 'Last-Event-ID': place.after } : {}
      const path = `/v1/requests/${encodeURIComponent(requestId)}/events`
      const reply = await request(path, { headers, signal: silence.signal })
      if (!reply.ok || !reply.body) throw await refusal(reply)
      lost(false)
      for await (const block of blocks(reply.body, heard)) {
        place.after = block.id ?? place.after
        take(block.event)
        if (block.event.type === 'done' || block.event.type === 'error') return
      }
    } catch (error) {
      if (signal.aborted) return
      if (error instanceof Refusal && error.status < 500 && error.status !== 429) throw error
    } finally {
      clearTimeout(timer)
      signal.removeEventListener('abort', leave)
    }
    lost(true)
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS))
  }
}

async function* blocks(body: ReadableStream<Uint8Array>, heard: () => void): AsyncGenerator<{ id?: string; event: TokenEvent }> {
  const reader = body.pipeThrough(new TextDecoderStream() as TransformStream<Uint8Array, string>).getReader()
  let rest = ''
  for (;;) {
    const { value, done } = await reader.read()
    if (done) return
    heard()
    const parts = (rest + value).split('\n\n')
    rest = parts.pop() ?? ''
    for (const part of parts) {
      const fields = new Map(part.split('\n').map((line) => [line.split(':', 1)[0], line.replace(/^[^:]*: ?/, '')]))
      const data = fields.get('data')
      if (data !== undefined) yield { id: fields.get('id'), event: JSON.parse(data) as TokenEvent }
    }
  }
}
