// OpenAI's own client for JavaScript against a gateway: `GATEWAY=http://host:port node --test client.test.mjs`.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import OpenAI from 'openai'

const baseURL = `${process.env.GATEWAY}/v1`
const client = new OpenAI({ baseURL, apiKey: 'any', maxRetries: 0 })
const hello = { model: 'demo', messages: [{ role: 'user', content: 'hello' }] }

const collect = async (stream) => {
  const chunks = []
  for await (const chunk of stream) chunks.push(chunk)
  return chunks
}
const textOf = (chunks, index = 0) =>
  chunks.flatMap((chunk) => chunk.choices.filter((one) => one.index === index)).map((one) => one.delta.content ?? '').join('')

test('a whole answer has text, reason and usage', async () => {
  const done = await client.chat.completions.create({ ...hello, max_tokens: 5 })
  assert.equal(done.choices[0].finish_reason, 'length')
  assert.equal(done.choices[0].message.content.trim().split(' ').length, 5)
  assert.equal(done.usage.total_tokens, done.usage.prompt_tokens + 5)
})

test('a stream says the same piece by piece, and its usage at the end', async () => {
  const whole = await client.chat.completions.create({ ...hello, max_tokens: 9 })
  const chunks = await collect(
    await client.chat.completions.create({ ...hello, max_tokens: 9, stream: true, stream_options: { include_usage: true } }),
  )
  assert.equal(textOf(chunks), whole.choices[0].message.content)
  assert.deepEqual(chunks.at(-1).usage, whole.usage)
  assert.equal(new Set(chunks.map((chunk) => chunk.id)).size, 1)
})

test('several choices come in one stream', async () => {
  const chunks = await collect(await client.chat.completions.create({ ...hello, max_tokens: 6, n: 3, stream: true }))
  for (const index of [0, 1, 2]) assert.equal(textOf(chunks, index).trim().split(' ').length, 6)
})

test("the stream helper puts the answer together", async () => {
  const stream = client.chat.completions.stream({ ...hello, max_tokens: 4 })
  let said = ''
  stream.on('content', (delta) => (said += delta))
  assert.equal((await stream.finalChatCompletion()).choices[0].message.content, said)
})

test('what is refused is the error of its status', async () => {
  const refused = async (change, kind, code) =>
    assert.rejects(client.chat.completions.create({ ...hello, ...change }), (error) => error instanceof kind && error.code === code)
  await refused({ model: 'no-such-model' }, OpenAI.NotFoundError, 'model_not_found')
  await refused({ model: 'no-such-model', stream: true }, OpenAI.NotFoundError, 'model_not_found')
  await refused({ temperature: 3 }, OpenAI.BadRequestError, 'invalid_request')
  await refused({ tools: [{ type: 'custom', custom: { name: 'f' } }] }, OpenAI.BadRequestError, 'invalid_request')
})

test('a stream is cancelled by the id of its request and keeps what was said', async () => {
  const { data: stream, response } = await client.chat.completions.create({ ...hello, max_tokens: 100_000, stream: true }).withResponse()
  const id = response.headers.get('x-request-id')
  const chunks = []
  for await (const chunk of stream) {
    chunks.push(chunk)
    if (chunks.length === 3) await fetch(`${baseURL}/requests/${id}`, { method: 'DELETE' })
  }
  assert.equal(chunks.at(-1).parley.finish_reason, 'cancelled')
  const told = await (await fetch(`${baseURL}/requests/${id}`)).json()
  assert.equal(told.text, textOf(chunks))
})

test('a client that leaves stops its answer', async () => {
  const { data: stream, response } = await client.chat.completions.create({ ...hello, max_tokens: 100_000, stream: true }).withResponse()
  for await (const chunk of stream) if (chunk.choices[0].delta.content) stream.controller.abort()
  const path = `${baseURL}/requests/${response.headers.get('x-request-id')}`
  await (await fetch(`${path}/events`)).text()
  assert.equal((await (await fetch(path)).json()).finish_reason, 'cancelled')
})

test('many at once keep apart', async () => {
  const ask = async (number) => {
    const content = `say ${number}`
    const asked = { model: 'demo', messages: [{ role: 'user', content }], max_tokens: 6, stream: true }
    return textOf(await collect(await client.chat.completions.create(asked)))
  }
  const numbers = [...Array(20).keys()]
  const first = await Promise.all(numbers.map(ask))
  assert.equal(new Set(first).size, 20)
  assert.deepEqual(await Promise.all(numbers.map(ask)), first)
})

test('models are listed and found', async () => {
  const names = []
  for await (const model of client.models.list()) names.push(model.id)
  assert.ok(names.includes('demo'))
  assert.equal((await client.models.retrieve('demo')).id, 'demo')
})

test('a response in the background is polled, cancelled and deleted', async () => {
  const begun = await client.responses.create({ model: 'demo', input: 'hello', max_output_tokens: 100_000, background: true })
  assert.equal(begun.status, 'queued')
  const items = await client.responses.inputItems.list(begun.id)
  assert.equal(items.data[0].content[0].text, 'hello')
  assert.equal((await client.responses.cancel(begun.id)).status, 'cancelled')
  assert.equal((await client.responses.retrieve(begun.id)).status, 'cancelled')
  await client.responses.delete(begun.id)
  await assert.rejects(client.responses.retrieve(begun.id), (error) => error instanceof OpenAI.NotFoundError)
})

for (const [way, next] of Object.entries({
  'previous_response_id': (last) => ({ previous_response_id: last.id }),
  'the items of the answers': (last, items) => ({ input: items.push(...last.output) && items }),
  'references to them': (last, items) => ({ input: items.push(...last.output.map(({ id }) => ({ type: 'item_reference', id }))) && items }),
  'a conversation': () => ({ conversation: `three turns of ${process.pid}` }),
})) {
  test(`three turns by ${way} see each other`, async () => {
    const items = []
    let last, seen = 0
    for (const content of ['hello', 'and now?', 'thanks']) {
      const more = last ? next(last, items) : next.length ? {} : next()
      items.push({ role: 'user', content })
      last = await client.responses.create({ model: 'demo', input: content, max_output_tokens: 5, ...more })
      assert.ok(last.usage.input_tokens > seen, `${last.usage.input_tokens} after ${seen}`)
      seen = last.usage.input_tokens
    }
  })
}

test('a turn is edited and asked again', async () => {
  const asked = async (messages, conversation_id, more = {}) => {
    const done = await client.chat.completions.create({ model: 'demo', messages, max_tokens: 4, conversation_id, ...more })
    return { id: done._request_id, read: done.usage.prompt_tokens, messages: [...messages, done.choices[0].message] }
  }
  const says = (content) => ({ role: 'user', content })
  const [source, edited, again] = ['source', 'edited', 'again'].map((name) => `${name} of ${process.pid}`)
  const instead = ({ id }, conversation_id) => ({ from: { conversation_id, request_id: id, index: 0 }, replaces: [id] })
  const one = await asked([says('one')], source)
  const two = await asked([...one.messages, says('two')], source)
  const edit = await asked([says('two!')], edited, instead(two, source))
  assert.equal(edit.read, two.read + 1)
  const other = await asked([], again, instead(edit, edited))
  assert.equal(other.read, edit.read)
  await asked([...one.messages, says('two!'), ...other.messages, says('three')], again)
  const { turns } = await (await fetch(`${baseURL}/conversations/${encodeURIComponent(again)}`)).json()
  assert.deepEqual(turns.map(({ prompt }) => prompt), ['two!', 'three'])
  assert.deepEqual(turns[0].replaces, [edit.id])
})

test('a stream of the background goes on behind any sequence number', async () => {
  const whole = []
  let left = 6
  const stream = await client.responses.create({ model: 'demo', input: 'hello', max_output_tokens: 12, background: true, stream: true })
  for await (const event of stream) {
    whole.push(event)
    if (!--left) break
  }
  const { id } = whole[0].response
  const after = whole.at(-1).sequence_number
  whole.push(...(await collect(await client.responses.retrieve(id, { stream: true, starting_after: after }))))
  assert.deepEqual(whole, await collect(await client.responses.retrieve(id, { stream: true })))
  assert.deepEqual(whole.map((event) => event.sequence_number), whole.map((_, number) => number))
  assert.equal(whole.at(-1).response.status, 'incomplete')
})
