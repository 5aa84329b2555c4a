// `node hung.mjs GATEWAY`: writes a line after five tokens, behind which the gateway hangs, and the whole text in the end.

import { Parley } from 'parley-client'

const parley = new Parley({ url: process.argv[2], user: 'nina', silentMs: 500 })
const following = await parley.ask({ prompt: 'hello', max_tokens: 60 })
for await (const update of following) if (update.answer.tokens.length === 5) console.log('five')
console.log(JSON.stringify([following.requestId, following.answer.text]))
