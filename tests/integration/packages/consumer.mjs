// A program that has installed the packed package: `node consumer.mjs GATEWAY`. Writes what it saw, as JSON.

import { AnswerFailedError, Parley, ReaderRule, RefusedError, UnreachableError, newRequestId } from 'parley-client'
import { ParleyChatTransport } from 'parley-client/ai-sdk'
import { Answer } from 'parley-client/reader'
import vectors from 'parley-client/vectors.json' with { type: 'json' }

const url = process.argv[2]
const parley = new Parley({ url, user: 'nina' })
const name = (error) => [error.name, error.code ?? null]
const seen = { vectors: vectors.length, rule: typeof ReaderRule, sameAnswer: new Answer('a', 'b').text === '' }

const following = await parley.ask({ prompt: 'hello', max_tokens: 12 })
const pieces = []
for await (const update of following) pieces.push(update.event.text ?? '')
seen.pieces = pieces.length
seen.text = pieces.join('')
seen.requestId = following.requestId
seen.again = (await parley.follow(following.requestId).result()).text
seen.rest = ''
for await (const update of parley.follow(following.requestId, { after: 6 })) seen.rest += update.event.text ?? ''

const endless = await parley.ask({ prompt: 'endless', max_tokens: 100_000 })
let asked = false // an event has several tokens at times
for await (const update of endless) {
  if (!asked && update.answer.tokens.length >= 5) await parley.cancel(endless.requestId)
  asked ||= update.answer.tokens.length >= 5
}
seen.cancelled = endless.answer.end.finish_reason

const id = newRequestId()
await (await parley.ask({ prompt: 'once', max_tokens: 3, request_id: id })).result()
seen.once = (await (await parley.ask({ prompt: 'once', max_tokens: 3, request_id: id })).result()).tokens.length

seen.failed = await (await parley.ask({ prompt: 'hello', previous_request_id: 'no-such-request' })).result().catch(name)
seen.refused = await parley.ask({}).catch(name)
seen.unknown = await parley.follow('no-such-request').result().catch(name)
seen.behind = await parley.follow(following.requestId, { after: 9999 }).result().catch((error) => error.message)
seen.nobody = await new Parley({ url: 'http://127.0.0.1:1', patienceMs: 200 }).ask('hello').catch(name)
seen.classes = [AnswerFailedError, RefusedError, UnreachableError].every((one) => one.prototype instanceof Error)

// Without a browser: the transport alone, stopped and resumed.
const transport = new ParleyChatTransport({ url, user: 'nina', body: { max_tokens: 30 } })
const message = { id: 'm', role: 'user', parts: [{ type: 'text', text: 'hello' }] }
const read = async (stream) => {
  const chunks = []
  for await (const chunk of stream) chunks.push(chunk)
  return chunks
}
const send = (chatId, abortSignal) =>
  transport.sendMessages({ trigger: 'submit-message', chatId, messageId: undefined, messages: [message], abortSignal })
const sent = await send('chat')
const [first, second] = await Promise.all([read(sent), transport.reconnectToStream({ chatId: 'chat' }).then(read)])
const textOf = (chunks) => chunks.map((chunk) => chunk.delta ?? '').join('')
seen.types = [...new Set(first.map((chunk) => chunk.type))]
seen.sameTwice = textOf(first) === textOf(second) && textOf(first).length > 0
seen.over = await transport.reconnectToStream({ chatId: 'chat' })
const tools = new ParleyChatTransport({
  url,
  user: 'nina',
  body: { max_tokens: 4, tools: [{ type: 'function', function: { name: 'look_up', parameters: {} } }] },
})
const called = await read(await tools.sendMessages({ chatId: 'tools', messages: [message] }))
const call = called.find((chunk) => chunk.type === 'tool-input-available')
seen.call = [call.toolName, typeof call.input.word]
const result = { type: 'dynamic-tool', toolName: call.toolName, toolCallId: call.toolCallId, state: 'output-available' }
const told = { id: 'a', role: 'assistant', parts: [{ ...result, input: call.input, output: { found: true } }] }
const after = await read(await transport.sendMessages({ chatId: 'tools', messages: [message, told] }))
seen.afterResult = textOf(after).length > 0
console.log(JSON.stringify(seen))
process.exit(0)
