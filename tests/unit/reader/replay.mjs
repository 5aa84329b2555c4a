// Reads one log a line from stdin ([[partition, offset, event], ...]) and writes what the reader made of it.
import { createInterface } from 'node:readline'
import { pathToFileURL } from 'node:url'
import { ReaderRule } from '../../../app/reader/reader.mjs'

export function replay(records) {
  const rule = new ReaderRule()
  const updates = records.map(([partition, offset, event]) => {
    const update = rule.read(partition, offset, event)
    return update && [update.answer.requestId, event.type, update.cut, update.gap, event.text ?? '']
  })
  const answers = {}
  for (const answer of rule.answers.values()) {
    const { userId, requestId, text, reasoning, tokens, end, missing, waiting } = answer
    const told = reasoning ? { text, reasoning } : { text }
    const waits = waiting.length ? { waiting: waiting.map((one) => one.notice.details.wait_id) } : {}
    const notices = ['superseded', 'steered'].filter((code) => answer[code])
    const others = Object.fromEntries(notices.map((code) => [code, answer[code].notice.details]))
    answers[`${userId}/${requestId}`] = { ...told, tokens, end: end && (end.finish_reason ?? end.type), missing, ...waits, ...others }
  }
  return { updates, answers, dropped: rule.dropped }
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) {
  for await (const line of createInterface({ input: process.stdin })) {
    process.stdout.write(JSON.stringify(replay(JSON.parse(line))) + '\n')
  }
}
