// A page's code for a chat that is one POST: `API=http://host/v1 node posted_stream.mjs PROMPT`.
const headers = { 'content-type': 'application/json', accept: 'text/event-stream' }
const body = JSON.stringify({ prompt: process.argv[2], max_tokens: 6 })
const reply = await fetch(`${process.env.API}/requests`, { method: 'POST', headers, body })
const decoder = new TextDecoder()
let rest = ''
let text = ''
for await (const chunk of reply.body) {
  const lines = (rest + decoder.decode(chunk, { stream: true })).split('\n')
  rest = lines.pop()
  for (const line of lines) if (line.startsWith('data: ')) text += JSON.parse(line.slice(6)).text ?? ''
}
console.log(JSON.stringify({ text }))
