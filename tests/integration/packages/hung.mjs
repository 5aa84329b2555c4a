// `node hung.mjs GATEWAY`: writes the request's id after five tokens, behind which the gateway hangs or is another one,
// and id and text in the end.

import { Parley } from 'parley-client'

const parley = new Parley({ url: process.argv[2], user: 'nina', silentMs: 500 })
const following = await parley.ask({ prompt: 'hello', max_tokens: 200 })
for await (const update of following) if (update.answer.tokens.length === 5) console.log(following.requestId)
console.log(JSON.stringify([following.requestId, following.answer.text]))
