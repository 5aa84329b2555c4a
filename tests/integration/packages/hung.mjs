// `node hung.mjs GATEWAY`: writes the request's id after five tokens, behind which the gateway hangs or is another one,
// and id and text in the end.

import { Parley } from 'parley-client'

const parley = new Parley({ url: process.argv[2], user: 'nina', silentMs: 500 })
const following = await parley.ask({ prompt: 'hello', max_tokens: 100_000 })
let told = false // an event has several tokens at times
for await (const update of following) {
  if (!told && update.answer.tokens.length >= 5) console.log(following.requestId)
  told ||= update.answer.tokens.length >= 5
}
console.log(JSON.stringify([following.requestId, following.answer.text]))
