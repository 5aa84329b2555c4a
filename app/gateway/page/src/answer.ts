/** The answer to one request: live while it is generated, whole if it is from the history. */

import { Answer, type NoticeDetails, type TokenEvent } from '../../../reader/reader.mjs'
import type { Call, Turn } from './api'

const SILENCE_MS = 2500
// A plan is for programs, and results are shown beside their calls.
const SILENT = new Set(['plan', 'tool_results'])
// Tokens of an answer that was complete already arrive at once; they show no speed.
const LEAST_S = 0.2

/** The first attempt at a request that was in Kafka before its worker is no news. */
function isSilent(notice: TokenEvent['notice']): boolean {
  const attempt = notice?.code === 'attempt' ? (notice.details?.attempt ?? 0) : 2
  return SILENT.has(notice?.code ?? '') || attempt <= 1
}

export interface Figures {
  firstTokenMs: number | null
  tokensPerS: number | null
  tokens: number
  model: string
  state: string
}

export class ShownAnswer {
  onChange: () => void = () => undefined
  note = ''
  reason = ''
  calls: Call[] = []
  private readonly answer: Answer
  private finalText: string | null = null
  private finalTokens: number | null = null
  private firstAt: number | null = null
  private lastAt = performance.now()
  private epoch: number | null = null
  private model = ''

  constructor(
    readonly requestId: string,
    private readonly askedAt: number,
  ) {
    this.answer = new Answer('', requestId)
  }

  static of(turn: Turn): ShownAnswer {
    const shown = new ShownAnswer(turn.request_id, turn.created_at)
    shown.finalText = turn.answer
    shown.finalTokens = turn.usage.completion_tokens
    shown.reason = turn.finish_reason
    shown.model = turn.model_version
    shown.calls = turn.tool_calls ?? []
    return shown
  }

  get text(): string {
    return this.finalText ?? this.answer.text
  }

  get reasoning(): string {
    return this.answer.reasoning
  }

  get isOver(): boolean {
    return this.finalText !== null || this.answer.end !== null
  }

  get figures(): Figures {
    const tokens = this.finalTokens ?? this.answer.tokens.length
    const seconds = this.firstAt === null ? 0 : (this.lastAt - this.firstAt) / 1000
    return {
      firstTokenMs: this.firstAt === null ? null : performance.timeOrigin + this.firstAt - this.askedAt,
      tokensPerS: tokens > 1 && seconds > LEAST_S ? (tokens - 1) / seconds : null,
      tokens,
      model: this.model,
      state: this.isOver ? this.reason || 'over' : tokens ? 'answering' : 'waiting',
    }
  }

  take(event: TokenEvent): void {
    if (event.type === 'notice') {
      this.learn(event.notice?.details ?? {})
      this.say(isSilent(event.notice) ? '' : (event.notice?.message ?? ''))
      return
    }
    const newOwner = this.epoch !== null && event.epoch !== undefined && event.epoch > this.epoch
    this.epoch = event.epoch ?? this.epoch
    this.model = event.model_version ?? this.model
    this.answer.take(event)
    if (event.type === 'token') {
      this.firstAt ??= performance.now()
      this.lastAt = performance.now()
    }
    if (newOwner && event.type === 'token') this.note = 'The worker was lost; another one took over, and the answer goes on.'
    if (event.tool_calls) this.learn({ calls: event.tool_calls })
    if (this.answer.end) this.ends(this.answer.end)
    this.onChange()
  }

  lost(isLost: boolean): void {
    if (isLost) this.say('The connection was lost; trying again.')
    else if (this.note.startsWith('The connection')) this.say('')
  }

  refused(message: string): void {
    this.finalText = this.answer.text
    this.say(message)
  }

  /** Called now and then while the answer is under way. */
  tick(): void {
    const silent = performance.now() - this.lastAt > SILENCE_MS
    if (!this.isOver && silent && !this.note) {
      this.say(this.firstAt === null ? 'Waiting for a worker.' : 'The worker is silent; waiting for it or for another one.')
    } else if (!silent && /^(Waiting|The worker is silent)/.test(this.note)) this.say('')
  }

  /** Calls of tools, and their results. */
  private learn({ calls = [], results = [] }: NoticeDetails): void {
    const known = new Set(this.calls.map((call) => call.id))
    this.calls.push(...calls.filter((call) => !known.has(call.id)).map((call) => ({ ...call })))
    for (const { tool_call_id, content } of results) {
      const call = this.calls.find((one) => one.id === tool_call_id)
      if (call) call.result = content
    }
  }

  private ends(end: TokenEvent): void {
    this.reason = end.error ? end.error.code : (end.finish_reason ?? '')
    if (end.error) this.note = `${end.error.message} (${end.error.code})`
    else if (!this.note.includes('took over')) this.note = ''
  }

  private say(text: string): void {
    this.note = text
    this.onChange()
  }
}
