// A page's code for a chat that is one GET: `API=http://host/v1 node event_source.mjs PROMPT`.
import { EventSource } from 'eventsource'

const source = new EventSource(`${process.env.API}/chat?query=${encodeURIComponent(process.argv[2])}&max_tokens=6`)
let text = ''
await new Promise((done, failed) => {
  source.onmessage = ({ data }) => {
    const event = JSON.parse(data)
    text += event.text ?? ''
    if (event.type === 'done') done()
  }
  source.onerror = failed
})
source.close()
console.log(JSON.stringify({ text }))
