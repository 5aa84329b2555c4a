// Vercel's AI SDK: its OpenAI provider, whose default is the Responses API, and its provider for compatible servers.

import { createOpenAI } from '@ai-sdk/openai'
import { createOpenAICompatible } from '@ai-sdk/openai-compatible'
import { generateText, Output, stepCountIs, streamText, tool } from 'ai'
import { z } from 'zod'

const baseURL = `${process.argv[2]}/v1`
const QUESTION = 'Where is my order 48213?'
const HOURS = 'What are your opening hours?'
const openai = createOpenAI({ baseURL, apiKey: 'any' })
const compatible = createOpenAICompatible({ name: 'parley', baseURL, apiKey: 'any', supportsStructuredOutputs: true })
const order_status = tool({
  description: 'Where an order is.',
  inputSchema: z.object({ order_number: z.string() }),
  execute: async ({ order_number }) => (order_number === '48213' ? { status: 'packed', arrives: 'Friday' } : {}),
})

const check = async (name, run) => {
  let error = null
  try {
    await run()
  } catch (caught) {
    error = String(caught)
  }
  console.log(JSON.stringify({ check: name, error }))
}
const expect = (condition, seen) => {
  if (!condition) throw new Error(`unexpected: ${JSON.stringify(seen)}`)
}

for (const [name, model] of [['Responses API', openai('demo')], ['chat', openai.chat('demo')], ['compatible', compatible('demo')]]) {
  await check(`${name}: generateText`, async () => {
    const { text } = await generateText({ model, prompt: HOURS })
    expect(text.includes('8 am'), text)
  })
  await check(`${name}: streamText`, async () => {
    let text = ''
    for await (const piece of streamText({ model, prompt: HOURS }).textStream) text += piece
    expect(text.includes('8 am'), text)
  })
  await check(`${name}: agent with a tool`, async () => {
    const { text } = await generateText({ model, prompt: QUESTION, tools: { order_status }, stopWhen: stepCountIs(4) })
    expect(text.includes('packed'), text)
  })
  await check(`${name}: streamed agent with a tool`, async () => {
    const stream = streamText({ model, prompt: QUESTION, tools: { order_status }, stopWhen: stepCountIs(4) })
    const text = await stream.text
    expect(text.includes('packed'), text)
  })
  await check(`${name}: three turns with a tool`, async () => {
    const messages = []
    for (const [question, word] of [[QUESTION, 'packed'], ['What was my order number?', '48213'], [HOURS, '8 am']]) {
      messages.push({ role: 'user', content: question })
      const { text, response } = await generateText({ model, messages, tools: { order_status }, stopWhen: stepCountIs(4) })
      messages.push(...response.messages)
      expect(text.includes(word), text)
    }
  })
  await check(`${name}: structured output`, async () => {
    const schema = z.object({ happy: z.boolean() })
    const { output } = await generateText({ model, prompt: 'Are you happy?', output: Output.object({ schema }) })
    expect(typeof output.happy === 'boolean', output)
  })
}
await check('stop', async () => {
  const controller = new AbortController()
  const { textStream } = streamText({ model: openai('demo'), prompt: HOURS, abortSignal: controller.signal })
  let pieces = 0
  for await (const _ of textStream) if (++pieces === 2) controller.abort()
  expect(pieces < 8, pieces)
})
