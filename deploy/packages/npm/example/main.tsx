/**
 * A chat whose answers survive a reload, a second tab and the death of a worker. What is sent while an answer is
 * written comes after it, now, or instead of its question.
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
  const [when, setWhen] = useState('after')
  const [queued, setQueued] = useState<{ text: string; when: string }[]>([])
  const { messages, status } = chat
  const isBusy = status === 'submitted' || status === 'streaming'
  const [isSending, setSending] = useState(false)

  // An answer that is being written is not kept: it is read again from its beginning.
  useEffect(() => {
    if (status !== 'streaming') localStorage.setItem(kept, JSON.stringify(messages))
  }, [messages, status])

  // The messages of the page are the context: what comes after an answer is sent when that is there.
  useEffect(() => {
    const [next, ...others] = queued
    if (isBusy || isSending || next === undefined) return
    setSending(true)
    setQueued(others)
    const isInstead = next.when === 'instead'
    if (isInstead) chat.setMessages((all) => all.slice(0, all.findLastIndex(({ role }) => role === 'user')))
    const options = isInstead ? { body: { while_busy: 'rollback' } } : {}
    void chat.sendMessage({ text: next.text }, options).finally(() => setSending(false))
  }, [chat, isBusy, isSending, queued])

  const submit = (event: FormEvent) => {
    event.preventDefault()
    setQueued(when === 'after' ? [...queued, { text, when }] : [{ text, when }])
    if (isBusy && when !== 'after') void chat.stop()
    setText('')
    setWhen('after')
  }
  return (
    <>
      {messages.map(({ id, role, parts }) => (
        <article key={id} id={id} data-role={role}>
          {parts.map((part, at) => (part.type === 'text' ? <span key={at}>{part.text}</span> : null))}
        </article>
      ))}
      {queued.map((waiting, at) => (
        <article key={at} data-role="queued">
          {waiting.text} <button onClick={() => setQueued(queued.filter((_, other) => other !== at))}>Withdraw</button>
        </article>
      ))}
      <form onSubmit={submit}>
        <input aria-label="Message" value={text} onChange={(event) => setText(event.target.value)} />
        {isBusy && (
          <select aria-label="When" value={when} onChange={(event) => setWhen(event.target.value)}>
            <option value="after">After this answer</option>
            <option value="now">Now</option>
            <option value="instead">Instead</option>
          </select>
        )}
        <button>Send</button>
        <button type="button" onClick={() => void chat.stop()}>Stop</button>
        <button type="button" onClick={() => void chat.regenerate()}>Regenerate</button>
      </form>
      <p role="status">{chat.error?.message ?? status}</p>
    </>
  )
}

createRoot(document.getElementById('root')!).render(<StrictMode><Chat /></StrictMode>)
