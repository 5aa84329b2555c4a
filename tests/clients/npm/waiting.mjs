// Vercel's AI SDK, whose answer waits: what its caller gets. Arguments: the gateway's address, the user.

import { createOpenAICompatible } from '@ai-sdk/openai-compatible'
import { generateText, streamText, tool } from 'ai'
import { z } from 'zod'

const [address, user] = process.argv.slice(2)
const parley = createOpenAICompatible({ name: 'parley', baseURL: `${address}/v1`, apiKey: 'any', queryParams: { user_id: user } })
const tools = { look_up: tool({ description: 'Look up.', inputSchema: z.object({ word: z.string() }) }) }
const asked = {
  model: parley('demo'),
  prompt: 'hello',
  maxOutputTokens: 2,
  tools,
  providerOptions: { parley: { tool_mode: 'kafka' } },
}

const errors = []
const stream = streamText({ ...asked, onError: ({ error }) => errors.push(error.message ?? error) })
let text = ''
for await (const piece of stream.textStream) text += piece
console.log(JSON.stringify({ way: 'stream', text, errors: errors.map(String) }))

try {
  await generateText({ ...asked, maxRetries: 0 })
  console.log(JSON.stringify({ way: 'whole', errors: [] }))
} catch (error) {
  console.log(JSON.stringify({ way: 'whole', status: error.statusCode, errors: [error.message] }))
}
