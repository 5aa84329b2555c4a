// A chat page's code with kafkajs: it asks by records of {id, prompt, max_tokens} without a key, and puts each token of
// {id, token, index} where its index says. `KAFKA=... ASKS=topic TOKENS=topic node page_over_kafka.mjs`.
import { Kafka, logLevel } from 'kafkajs'

const { KAFKA, ASKS, TOKENS } = process.env
const asked = [
  { id: '1', prompt: 'Hi', max_tokens: 8 },
  { id: '2', prompt: 'Tell me a story', max_tokens: 24 },
]
const kafka = new Kafka({ clientId: 'page', brokers: [KAFKA], logLevel: logLevel.NOTHING })
const producer = kafka.producer()
const consumer = kafka.consumer({ groupId: `page-${process.pid}` })
await Promise.all([producer.connect(), consumer.connect()])
await producer.send({ topic: ASKS, messages: asked.map((one) => ({ value: JSON.stringify(one) })) })

await consumer.subscribe({ topic: TOKENS, fromBeginning: true })
const buffers = {}
const ended = new Set()
await new Promise((done) =>
  consumer.run({
    eachMessage: async ({ message }) => {
      const { id, token, index, timestamp, end } = JSON.parse(message.value.toString())
      buffers[id] ??= []
      if (token) buffers[id][index] = token
      if (!Number.isInteger(timestamp)) throw new Error('no timestamp')
      if (end) ended.add(id)
      if (ended.size === asked.length) done()
    },
  }),
)
console.log(JSON.stringify(Object.fromEntries(Object.entries(buffers).map(([id, tokens]) => [id, tokens.join('')]))))
await Promise.all([producer.disconnect(), consumer.disconnect()])
