/** The answer to one request: live while it is generated, whole if it is from the history. */

import { Answer, type NoticeDetails, type TokenEvent } from '../../../reader/reader.mjs'
import type { Call, Turn } from './api'
import type { Approval } from './approvals'
import type { Failed, Running } from './store'
import { ADDED, BEHIND, DISCONNECTED, ofEnd, ofError, ofNotice, ofStop, ofWait, PAUSED, UNBEGUN, WAITING, WITHDRAWN } from './words'

const SILENCE_MS = 2500
// A plan is for programs, and calls and results are shown as such.
const SILENT = new Set(['plan', 'tool_calls', 'tool_results', 'superseded'])
// A shorter time is no measure of speed.
const LEAST_S = 0.05

/** The first attempt at a request that was in Kafka before its worker is no news. */
function isSilent(notice: TokenEvent['notice']): boolean {
  const attempt = notice?.code === 'attempt' ? (notice.details?.attempt ?? 0) : 2
  return SILENT.has(notice?.code ?? '') || attempt <= 1
}

export type State = 'waiting' | 'answering' | 'over'

/** Of an answer that is over, but for its state and its model: outside servers count their tokens at the end. */
export interface Figures {
  firstTokenMs: number | null
  tokensPerS: number | null
  tokens: number | null
  model: string
  state: State
}

export class ShownAnswer {
  onChange: () => void = () => undefined
  reason = ''
  private told = ''
  private behind = false
  private isWithdrawn = false
  /** What a later message does to it, unless its end comes first. */
  private superseded: { rolled_back?: boolean } | null = null
  calls: Call[] = []
  /** Calls that wait for the decision of the reader. */
  approvals: Approval[] = []
  private readonly answer: Answer
  private readonly over = new Set<string>()
  private past: Turn | null = null
  private asked: Running | null = null
  private isRefused = false
  private firstMs: number | null = null
  private firstAt: number | null = null
  private lastAt: number | null = null
  private heardAt = performance.now()
  private epoch: number | null = null
  private model = ''

  /** `isReplayed`: the page was loaded since it was asked, so its events say nothing by when they arrive. */
  constructor(
    readonly requestId: string,
    readonly askedAt: number,
    readonly conversationId: string,
    private readonly isReplayed = false,
  ) {
    this.answer = new Answer('', requestId)
  }

  static of(turn: Turn): ShownAnswer {
    const shown = new ShownAnswer(turn.request_id, turn.created_at, turn.conversation_id)
    shown.past = turn
    shown.reason = turn.finish_reason
    shown.model = turn.model_version
    shown.calls = turn.tool_calls ?? []
    if (shown.isSteered) shown.told = ofNotice('steered')
    if (turn.timing?.first_token_at) {
      shown.firstMs = turn.timing.first_token_at - turn.timing.requested_at
      shown.firstAt = turn.timing.first_token_at
      shown.lastAt = turn.timing.finished_at
    }
    return shown
  }

  /** Of a request that is under way. */
  static ofRunning(asked: Running, isReplayed: boolean): ShownAnswer {
    const shown = new ShownAnswer(asked.requestId, asked.askedAt, asked.conversationId, isReplayed)
    shown.asked = asked
    return shown
  }

  static ofFailed({ requestId, askedAt, conversationId, code }: Failed): ShownAnswer {
    const shown = new ShownAnswer(requestId, askedAt, conversationId)
    shown.refused(ofError(code))
    shown.reason = code
    return shown
  }

  /** The code of the error in which it has ended; empty for another end. */
  get error(): string {
    return this.answer.end?.error?.code ?? ''
  }

  /** Whether another answer has read the question, and this one has nothing to say. */
  get isSteered(): boolean {
    const isRead = this.past ? this.reason === 'stop' && this.past.usage.prompt_tokens === 0 : this.answer.steered !== null
    return isRead && this.isOver && !this.text
  }

  /** Whether the model that writes it may call tools, whose results it waits for. */
  get hasTools(): boolean {
    return this.asked?.hasTools === true
  }

  /** Whether it waits for one that the reader has not decided here. */
  get waitsForReader(): boolean {
    const waiting = this.answer.waiting.map((one) => one.notice?.details)
    return waiting.some((wait) => wait?.by === 'user' && !this.over.has(wait.wait_id ?? ''))
  }

  /** What there is to say of it, in words. */
  get note(): string {
    if (this.isWithdrawn && !this.isOver) return WITHDRAWN
    return this.told || (this.isQueued ? (this.asked?.whileBusy === 'steer' ? ADDED : BEHIND) : '')
  }

  /** How it has ended, in words; empty where that is no news. */
  get ending(): string {
    if (this.reason !== 'cancelled') return ofEnd(this.reason)
    if (this.superseded) return ofStop(this.isRolledBack)
    return this.text || this.calls.length ? ofEnd('cancelled') : UNBEGUN
  }

  /** Whether a later message has ended it: nobody has to hear it any more. */
  get isSuperseded(): boolean {
    return this.reason === 'cancelled' && this.superseded !== null
  }

  /** Whether a later message stands in its place, and nothing of it is remembered. */
  get isRolledBack(): boolean {
    return this.isSuperseded && this.superseded?.rolled_back === true
  }

  /** Whether the worker remembers it, so that a fork can begin at it. */
  get isRemembered(): boolean {
    return !this.isOver || (this.text !== '' && !this.isRefused && !this.isRolledBack && !this.error)
  }

  /** Whether it waits for something else than its turn, and others of its conversation go on meanwhile. */
  get isAsleep(): boolean {
    return !this.isOver && this.answer.waiting.length > 0
  }

  /** Whether it is answered behind another one of its conversation. */
  get isQueued(): boolean {
    return this.behind && !this.isWithdrawn && !this.isOver && !this.isAsleep && this.figures.state === 'waiting'
  }

  get text(): string {
    return this.past?.answer ?? this.answer.text
  }

  get reasoning(): string {
    return this.past?.reasoning ?? this.answer.reasoning
  }

  get isOver(): boolean {
    return this.past !== null || this.isRefused || this.answer.end !== null
  }

  get figures(): Figures {
    const counted = this.past?.usage ?? this.answer.end?.usage
    const tokens = counted?.completion_tokens ?? null
    const seconds = this.firstAt === null || this.lastAt === null ? 0 : (this.lastAt - this.firstAt) / 1000
    return {
      firstTokenMs: this.firstMs,
      tokensPerS: tokens !== null && tokens > 1 && seconds > LEAST_S ? (tokens - 1) / seconds : null,
      tokens,
      model: this.model,
      state: this.isOver ? 'over' : this.firstAt === null ? 'waiting' : 'answering',
    }
  }

  take(event: TokenEvent): void {
    if (event.type === 'notice') {
      this.learn(event.notice?.details ?? {})
      this.answer.readNotice(event)
      const { code = '', details } = event.notice ?? {}
      if (code === 'superseded') this.superseded = details ?? {}
      if (!this.answer.waiting.length) this.approvals = []
      if (code === 'woken') this.epoch = null // no server was lost
      this.say(isSilent(event.notice) ? '' : code === 'waiting' ? ofWait(details?.kind ?? '', details?.by) : ofNotice(code))
      return
    }
    const newOwner = this.epoch !== null && event.epoch !== undefined && event.epoch > this.epoch
    this.epoch = event.epoch ?? this.epoch
    this.model = event.model_version ?? this.model
    if (this.answer.take(event) === null && event.copy) return
    if (!this.answer.waiting.length) this.approvals = []
    this.heardAt = performance.now()
    if (event.type === 'token') this.time(event.timestamp ?? Date.now())
    if (newOwner && event.type === 'token') this.told = ofNotice('resumed')
    if (event.tool_calls) this.learn({ calls: event.tool_calls })
    if (this.answer.end) this.ends(this.answer.end)
    this.onChange()
  }

  lost(isLost: boolean): void {
    if (isLost) this.say(DISCONNECTED)
    else if (this.told === DISCONNECTED) this.say('')
  }

  /** What waits for the reader now, as the gateway says. */
  await(approvals: Approval[]): void {
    const open = approvals.filter((one) => one.request_id === this.requestId && !this.over.has(one.wait_id))
    const ids = (all: Approval[]): string => all.map((one) => one.wait_id).join()
    if (ids(open) === ids(this.approvals)) return
    this.approvals = open
    this.onChange()
  }

  /** The reader has decided; the list of the gateway may not know it yet. */
  decided(waitId: string, line: string): void {
    this.over.add(waitId)
    this.say(line)
  }

  /** Another one of its conversation is being written, and this one comes after it. */
  standBehind(isBehind: boolean): void {
    if (this.behind === isBehind) return
    this.behind = isBehind
    this.heardAt = performance.now()
    this.onChange()
  }

  /** A later message has been sent that ends it; who reads it after its end does not hear that. */
  supersede(isRolledBack: boolean): void {
    this.superseded ??= { rolled_back: isRolledBack }
  }

  /** The user takes the question back; `isWithdrawn` is false again where that could not be sent. */
  withdraw(isWithdrawn: boolean): void {
    this.isWithdrawn = isWithdrawn
    this.onChange()
  }

  refused(message: string): void {
    this.isRefused = true
    this.say(message)
  }

  /** Called now and then while the answer is under way. */
  tick(): void {
    const silent = performance.now() - this.heardAt > SILENCE_MS && !this.isAsleep && !this.isQueued && !this.isWithdrawn
    if (!this.isOver && silent && !this.told) {
      this.say(this.firstAt === null ? WAITING : PAUSED)
    } else if (!silent && [WAITING, PAUSED].includes(this.told)) this.say('')
  }

  /** A token that was written then, Unix milliseconds. */
  private time(writtenAt: number): void {
    this.firstMs ??= Math.max(0, (this.isReplayed ? writtenAt : Date.now()) - this.askedAt)
    this.firstAt ??= writtenAt
    this.lastAt = writtenAt
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
    if (end.error) this.told = ofError(end.error.code)
    else if (![ofNotice('resumed'), ofNotice('steered')].includes(this.told)) this.told = ''
  }

  private say(text: string): void {
    this.told = text
    this.onChange()
  }
}
