// What a program in TypeScript writes; only its types are checked.

import type { ChatTransport, UIMessage } from 'ai'
import { type Hit, Parley, type Update } from 'parley-client'
import { ParleyChatTransport } from 'parley-client/ai-sdk'
import { ReaderRule } from 'parley-client/reader'

const parley = new Parley({ url: 'http://127.0.0.1:8080', key: async () => 'key' })
const following = await parley.ask({ prompt: 'hello', max_tokens: 5, conversation_id: 'c' })
for await (const update of following) {
  const { answer, cut, gap }: Update = update
  console.log(answer.text, cut === null ? 0 : cut, gap, answer.end?.usage?.completion_tokens)
}
const hits: Hit[] = await parley.search('hello', { limit: 3 })
const transport: ChatTransport<UIMessage> = new ParleyChatTransport({ body: { model: 'demo' } })
console.log(hits[0]?.text, transport, new ReaderRule({ remember: 10 }).dropped.late)
// @ts-expect-error a prompt is a text
await parley.ask(7)
