/**
 * A chat whose answers survive a reload, a second tab and the death of a worker.
 *
 * `?gateway=http://127.0.0.1:8080&user=nina&chat=one`; a gateway of another origin names this one in
 * PARLEY_GATEWAY_ORIGINS. What is finished is kept in the browser, as an application would keep it in its database.
 */

import { useChat } from '@ai-sdk/react'
import type { UIMessage } from 'ai'
import { type FormEvent, StrictMode, useEffect, useState } from 'react'
import { createRoot } from 'react-dom/client'
import { ParleyChatTransport } from 'parley-client/ai-sdk'

const given = new URLSearchParams(location.search)
const chatId = given.get('chat') ?? 'example'
const kept = `messages:${chatId}`
const transport = new ParleyChatTransport({ url: given.get('gateway') ?? '', user: given.get('user') ?? undefined })

function Chat() {
  const stored = JSON.parse(localStorage.getItem(kept) ?? '[]') as UIMessage[]
  const [initial] = useState(stored)
  const chat = useChat({ id: chatId, messages: initial, transport, resume: true })
  const [text, setText] = useState('')
  const { messages, status } = chat

  // An answer that is being written is not kept: it is read again from its beginning.
  useEffect(() => {
    if (status !== 'streaming') localStorage.setItem(kept, JSON.stringify(messages))
  }, [messages, status])

  const submit = (event: FormEvent) => {
    event.preventDefault()
    void chat.sendMessage({ text })
    setText('')
  }
  return (
    <>
      {messages.map(({ id, role, parts }) => (
        <article key={id} id={id} data-role={role}>
          {parts.map((part, at) => (part.type === 'text' ? <span key={at}>{part.text}</span> : null))}
        </article>
      ))}
      <form onSubmit={submit}>
        <input aria-label="Message" value={text} onChange={(event) => setText(event.target.value)} />
        <button>Send</button>
        <button type="button" onClick={() => void chat.stop()}>Stop</button>
        <button type="button" onClick={() => void chat.regenerate()}>Regenerate</button>
      </form>
      <p role="status">{chat.error?.message ?? status}</p>
    </>
  )
}

createRoot(document.getElementById('root')!).render(<StrictMode><Chat /></StrictMode>)
