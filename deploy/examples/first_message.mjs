// Ask over Kafka and print the answer as it comes.
//
//   npm install kafkajs; then `node first_message.mjs ["PROMPT"]`, with KAFKA=host:port where it is not 127.0.0.1:9092
//
// reader.mjs is in `app/reader/` of the repository and of the installed package; it has no dependencies.
import { randomUUID } from 'node:crypto'
import { Kafka, Partitioners, logLevel } from 'kafkajs'

const { ReaderRule } = await import(process.env.READER ?? '../../app/reader/reader.mjs')
const kafka = new Kafka({ brokers: [process.env.KAFKA ?? '127.0.0.1:9092'], logLevel: logLevel.ERROR })
const user = 'ann'
const prompt = process.argv.slice(2).join(' ') || 'Where is my order 17?'
const request = { request_id: randomUUID(), user_id: user, prompt }

// A group of its own: this reader sees everything and shares with nobody. kafkajs reads committed records by default.
const consumer = kafka.consumer({ groupId: `reader-${randomUUID()}`, maxWaitTimeInMs: 100 })
const producer = kafka.producer({ createPartitioner: Partitioners.DefaultPartitioner, idempotent: true })
await Promise.all([consumer.connect(), producer.connect()])
await consumer.subscribe({ topic: 'tokens' })

const rule = new ReaderRule()
const ended = new Promise((resolve) => {
  consumer.run({
    autoCommit: false,
    eachMessage: async ({ partition, message }) => {
      const update = rule.read(partition, message.offset, JSON.parse(message.value))
      if (update?.answer.requestId !== request.request_id) return
      if (update.cut !== null) process.stdout.write(`\r${update.answer.text}`)
      else process.stdout.write(update.event.text ?? '')
      const { end } = update.answer
      if (end) resolve(end.finish_reason ?? end.error.message)
    },
  })
})
// The place is fixed once the group has its first assignment and knows where the topic ends.
await new Promise((resolve) => consumer.on(consumer.events.FETCH, resolve))
await producer.send({ topic: 'requests', messages: [{ key: user, value: JSON.stringify(request) }] })
process.stdout.write(`\n[${await ended}]\n`)
await Promise.all([consumer.disconnect(), producer.disconnect()])
