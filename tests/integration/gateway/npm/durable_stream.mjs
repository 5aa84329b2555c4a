// Durable Streams' own client against an answer: `node durable_stream.mjs URL MODE [OFFSET]`, MODE sse, long-poll or none.
// It prints the events with the offset behind each batch; with `break` as a fourth argument it leaves at the first text.
import { stream } from '@durable-streams/client'

const [url, mode, offset, leaves] = process.argv.slice(2)
const live = mode === 'none' ? false : mode
const read = await stream({ url, live, offset: offset || '-1', warnOnHttp: false })
const batches = []
if (live) {
  await new Promise((done, failed) => {
    const unsubscribe = read.subscribeJson(async ({ items, offset, streamClosed }) => {
      batches.push({ items, offset })
      if (leaves && items.some((item) => item.text)) {
        unsubscribe()
        read.cancel()
        done()
      }
      if (streamClosed) done()
    })
    read.closed.catch(failed)
  })
} else batches.push({ items: await read.json(), offset: read.offset })
console.log(JSON.stringify({ batches, closed: read.streamClosed, offset: batches.at(-1).offset }))
process.exit(0)
