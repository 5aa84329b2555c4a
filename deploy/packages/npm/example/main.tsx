/**
 * A chat whose answers survive a reload, a second tab and the death of a worker. What is sent while an answer is
 * written comes after it, now, or instead of its question. A question that is edited and an answer that is made anew
 * have versions, and what is asked goes behind the one that is seen.
 *
 * `?gateway=http://127.0.0.1:8080&user=nina&chat=one`; a gateway of another origin names this one in
 * PARLEY_GATEWAY_ORIGINS. What is finished is kept in the browser, as an application would keep it in its database.
 */

import { useChat } from '@ai-sdk/react'
import type { UIMessage } from 'ai'
import { type FormEvent, Fragment, StrictMode, useEffect, useState } from 'react'
import { createRoot } from 'react-dom/client'
import { Parley, type Turn } from 'parley-client'
import { ParleyChatTransport } from 'parley-client/ai-sdk'
import { Versions } from './versions.js'

const given = new URLSearchParams(location.search)
const chatId = given.get('chat') ?? 'example'
const kept = `messages:${chatId}`
const caller = { url: given.get('gateway') ?? '', user: given.get('user') ?? undefined }
const transport = new ParleyChatTransport(caller)
const parley = new Parley(caller)
/** The messages behind each answer that is not the last. */
const behind = JSON.parse(localStorage.getItem(`behind:${chatId}`) ?? '{}') as Record<string, UIMessage[]>

function leave(messages: UIMessage[], at: number): void {
  const left = messages[at]
  if (left) behind[left.id] = messages.slice(at + 1)
  localStorage.setItem(`behind:${chatId}`, JSON.stringify(behind))
}

function Chat() {
  const stored = JSON.parse(localStorage.getItem(kept) ?? '[]') as UIMessage[]
  const [initial] = useState(stored)
  const chat = useChat({ id: chatId, messages: initial, transport, resume: true })
  const [text, setText] = useState('')
  const [when, setWhen] = useState('after')
  const [queued, setQueued] = useState<{ text: string; when: string }[]>([])
  const { messages, status } = chat
  const [edited, setEdited] = useState<string>()
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

  /** Another version of this question and its answer, with what was asked behind it. */
  const show = (at: number, { request_id, prompt, answer }: Turn) => {
    leave(messages, at)
    const text = (text: string): UIMessage['parts'] => [{ type: 'text', text }]
    const question = { ...messages[at - 1]!, parts: text(prompt) }
    const other: UIMessage = { id: request_id, role: 'assistant', parts: text(answer) }
    chat.setMessages([...messages.slice(0, at - 1), question, other, ...(behind[request_id] ?? [])])
  }
  /** Another version in the place of the answer at this message: it replaces that one and those behind it. */
  const insteadOf = (at: number) => {
    leave(messages, at)
    return { body: { replaces: messages.slice(at).flatMap(({ id, role }) => (role === 'assistant' ? [id] : [])) } }
  }
  const regenerate = (at: number) => void chat.regenerate({ messageId: messages[at]!.id, ...insteadOf(at) })
  const edit = ({ id, parts }: UIMessage) => {
    setEdited(id)
    setText(parts.map((part) => (part.type === 'text' ? part.text : '')).join(''))
  }

  const submit = (event: FormEvent) => {
    event.preventDefault()
    if (edited !== undefined) {
      void chat.sendMessage({ text, messageId: edited }, insteadOf(messages.findIndex(({ id }) => id === edited) + 1))
      setEdited(undefined)
      setText('')
      return
    }
    setQueued(when === 'after' ? [...queued, { text, when }] : [{ text, when }])
    if (isBusy && when !== 'after') void chat.stop()
    setText('')
    setWhen('after')
  }
  return (
    <>
      {messages.map((message, at) => (
        <Fragment key={message.id}>
          <article id={message.id} data-role={message.role}>
            {message.parts.map((part, at) => (part.type === 'text' ? <span key={at}>{part.text}</span> : null))}
          </article>
          {isBusy ? null : message.role === 'user' ? (
            <button onClick={() => edit(message)}>Edit</button>
          ) : (
            <>
              <button onClick={() => regenerate(at)}>Regenerate</button>
              <Versions parley={parley} chatId={chatId} seen={message.id} show={(version) => show(at, version)} />
            </>
          )}
        </Fragment>
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
      </form>
      <p role="status">{chat.error?.message ?? status}</p>
    </>
  )
}

createRoot(document.getElementById('root')!).render(<StrictMode><Chat /></StrictMode>)
