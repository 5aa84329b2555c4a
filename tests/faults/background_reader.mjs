// Reads background responses with OpenAI's client for JavaScript: its place in each stream comes on standard input, and
// each event leaves on standard output as it comes. The client is the one of tests/integration/gateway/npm.
import { createRequire } from 'node:module'

const [url, packages] = process.argv.slice(2)
const { OpenAI } = createRequire(packages)('openai')
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'any', timeout: 300_000, maxRetries: 5 })

async function read({ number, question, max_output_tokens, query, id, starting_after, events }) {
  const asked = { model: 'default', input: question, max_output_tokens, background: true, stream: true }
  const stream = id
    ? await client.responses.retrieve(id, { stream: true, starting_after, ...query })
    : await client.responses.create(asked, { query })
  let left = events
  for await (const event of stream) {
    process.stdout.write(`${JSON.stringify({ number, event })}\n`)
    if (--left === 0) break
  }
}

let input = ''
for await (const chunk of process.stdin) input += chunk
await Promise.all(JSON.parse(input).map(read))
