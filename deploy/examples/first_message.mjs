// Ask over Kafka and print the answer as it comes.
//
//   npm install @platformatic/kafka; then `node first_message.mjs ["PROMPT"]`, with KAFKA=host:port where it is not
//   127.0.0.1:9092
//
// reader.mjs is in `app/reader/` of the repository and of the installed package; it has no dependencies.
import { randomUUID } from 'node:crypto'
import {
  Consumer,
  FetchIsolationLevels,
  MessagesStreamModes,
  Producer,
  compatibilityPartitioner,
  stringDeserializers,
  stringSerializers,
} from '@platformatic/kafka'

const { ReaderRule } = await import(process.env.READER ?? '../../app/reader/reader.mjs')
const bootstrapBrokers = [process.env.KAFKA ?? '127.0.0.1:9092']
const user = 'ann'
const prompt = process.argv.slice(2).join(' ') || 'Where is my order 17?'
const request = { request_id: randomUUID(), user_id: user, prompt }

// The compatible partitioner is that of Kafka's own clients. A group of its own: this reader sees everything and shares
// with nobody. Committed records alone, as readers of `tokens` must.
const producer = new Producer({ bootstrapBrokers, partitioner: compatibilityPartitioner, serializers: stringSerializers })
const consumer = new Consumer({ bootstrapBrokers, groupId: `reader-${randomUUID()}`, deserializers: stringDeserializers })
const records = await consumer.consume({
  topics: ['tokens'],
  mode: MessagesStreamModes.LATEST,
  isolationLevel: FetchIsolationLevels.READ_COMMITTED,
  autocommit: false,
  maxWaitTime: 100,
})
// It has its place now: the answer to what is sent from here on is seen whole.
await producer.send({ messages: [{ topic: 'requests', key: user, value: JSON.stringify(request) }] })

const rule = new ReaderRule()
for await (const { partition, offset, value } of records) {
  const update = rule.read(partition, Number(offset), JSON.parse(value))
  if (update?.answer.requestId !== request.request_id) continue
  if (update.cut !== null) process.stdout.write(`\r${update.answer.text}`)
  else process.stdout.write(update.event.text ?? '')
  const { end } = update.answer
  if (end) {
    process.stdout.write(`\n[${end.finish_reason ?? end.error.message}]\n`)
    break
  }
}
await Promise.all([producer.close(true), consumer.close(true)])
