// The ES module against the vectors that it shares with Python's reader; run by `node --test`.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import { ReaderRule } from '../../../app/reader/reader.mjs'
import { replay } from './replay.mjs'

for (const { name, records, expect } of JSON.parse(readFileSync(new URL('../../../deploy/packages/conformance/vectors.json', import.meta.url)))) {
  test(name, () => assert.deepEqual(replay(records), expect))
}

test('offsets may be strings, as kafkajs has them', () => {
  const rule = new ReaderRule()
  rule.read(0, '12', { type: 'fence' })
  const late = { type: 'token', user_id: 'u', request_id: 'r', index: 0, tokens: [1], text: 'a', epoch: 9 }
  assert.equal(rule.read(0, '13', late), null)
  assert.equal(rule.read(0, '14', { ...late, epoch: 12 }).answer.text, 'a')
})

test('an event of an unknown type is left out', () => {
  const rule = new ReaderRule()
  assert.equal(rule.read(0, 1, { type: 'song', user_id: 'u', request_id: 'r', index: 0, epoch: 0 }), null)
  assert.equal(rule.dropped.unusable, 1)
})

test('only the last ended answers are kept', () => {
  const rule = new ReaderRule({ remember: 1 })
  for (const request_id of ['a', 'b']) rule.read(0, 1, { type: 'done', user_id: 'u', request_id, index: 0, epoch: 0 })
  assert.equal(rule.answer('u', 'a'), undefined)
  assert.ok(rule.answer('u', 'b').complete)
})
