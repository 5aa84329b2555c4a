// A chat of the AI SDK itself, whose transport is the packed package's: `node ai_chat.mjs GATEWAY`. Writes what its
// buttons have sent, as JSON.

import { AbstractChat } from 'ai'
import { Parley } from 'parley-client'
import { ParleyChatTransport } from 'parley-client/ai-sdk'

const url = process.argv[2]
const sent = []
const watched = (address, options = {}) => {
  if (options.method === 'POST') sent.push(JSON.parse(options.body))
  return fetch(address, options)
}

class Chat extends AbstractChat {
  constructor(id, body, messages = []) {
    const state = {
      messages,
      status: 'ready',
      error: undefined,
      pushMessage: (message) => void (state.messages = [...state.messages, message]),
      popMessage: () => void (state.messages = state.messages.slice(0, -1)),
      replaceMessage: (at, message) => void (state.messages = state.messages.map((one, other) => (other === at ? message : one))),
      snapshot: (thing) => structuredClone(thing),
    }
    super({ id, state, transport: new ParleyChatTransport({ url, user: 'aida', body: { max_tokens: 6, ...body }, fetch: watched }) })
  }
}

const textOf = (message) => message.parts.map((part) => (part.type === 'text' ? part.text : '')).join('')
const shown = (chat) => chat.messages.map((one) => [one.role, one.role === 'user' ? textOf(one) : one.id])
const last = () => {
  const { from, replaces, while_busy, messages, conversation_id, request_id } = sent.at(-1)
  return { from, replaces, while_busy, messages: messages?.length, conversation_id, request_id }
}
const steps = {}
const step = (name, chat) => (steps[name] = { sent: last(), shown: shown(chat), error: chat.error?.message })

const chat = new Chat('ai-chat')
await chat.sendMessage({ text: 'one' })
await chat.sendMessage({ text: 'two' })
step('asked', chat)
const firstAnswer = chat.messages[1]
await chat.regenerate()
step('again', chat)
await chat.regenerate({ messageId: chat.messages[1].id })
step('first again', chat)
await chat.sendMessage({ text: 'uno', messageId: chat.messages[0].id })
step('edited', chat)
chat.messages = [{ ...chat.messages[0], parts: [{ type: 'text', text: 'one' }] }, firstAnswer]
await chat.sendMessage({ text: 'three' })
step('behind the first one', chat)
await chat.regenerate({ messageId: firstAnswer.id })
step('the first one again', chat)
const reloaded = new Chat('ai-chat', {}, chat.messages)
await reloaded.regenerate({ messageId: reloaded.messages[1].id })
step('again after a reload', reloaded)
await new Chat('ai-chat', {}, reloaded.messages).regenerate()
step('without an id after a reload', reloaded)
const versions = await new Parley({ url, user: 'aida' }).versions(steps['edited'].shown[1][1], { conversation: 'ai-chat' })
steps.versions = versions.map((one) => one.request_id)

const forgetful = new Chat('ai-forgotten', { store: false })
await forgetful.sendMessage({ text: 'one' })
await forgetful.regenerate()
step('forgotten', forgetful)
const instructed = new Chat('ai-system', {}, [{ id: 's', role: 'system', parts: [{ type: 'text', text: 'Be brief.' }] }])
await instructed.sendMessage({ text: 'one' })
await instructed.regenerate()
step('with instructions', instructed)

const stopped = new Chat('ai-stopped', { max_tokens: 100_000 })
const first = stopped.sendMessage({ text: 'endless' })
while (!stopped.lastMessage || textOf(stopped.lastMessage).split(' ').length < 4) await new Promise((resolve) => setTimeout(resolve, 20))
await stopped.stop()
await first
const second = stopped.sendMessage({ text: 'this instead' })
while (stopped.messages.length < 4) await new Promise((resolve) => setTimeout(resolve, 20))
step('interrupts', stopped)
await stopped.stop()
await second
steps.interrupted = (await new Parley({ url, user: 'aida' }).follow(sent.at(-2).request_id).result()).end.finish_reason
await new Parley({ url, user: 'aida' }).follow(sent.at(-1).request_id).result() // a stop is a cancel a moment later
console.log(JSON.stringify(steps))
process.exit(0)
