/** One question and its answer on the page: live while it is made, and what can be done with it afterwards. */

import { Answer, type TokenEvent } from '../../../reader/reader.mjs'
import { element } from './dom'
import { markdown } from './markdown'

const ENDS: Record<string, string> = {
  length: 'It was cut at its longest length.',
  cancelled: 'It was stopped.',
  deadline: 'Its time was over.',
  filtered: 'It was filtered.',
  partial: 'Only a part of it could be given.',
}
const SILENCE_MS = 2500
// Tokens that came all at once, of an answer that was there already, tell no speed.
const LEAST_S = 0.2

export interface Figures {
  firstTokenMs: number | null
  tokensPerS: number | null
  tokens: number
  model: string
  state: string
}

export class TurnView {
  readonly node: HTMLElement
  onChange: () => void = () => undefined
  again: (() => void) | null = null
  goOn: (() => void) | null = null
  private readonly said = element('div', { className: 'answer' })
  private readonly note = element('p', { className: 'note', hidden: true })
  private readonly actions = element('div', { className: 'actions' })
  private answer: Answer
  private finalText: string | null = null
  private finalTokens: number | null = null
  private firstAt: number | null = null
  private lastAt = performance.now()
  private epoch: number | null = null
  private reason = ''
  private model = ''
  private painting = false

  constructor(
    readonly requestId: string,
    readonly prompt: string,
    private readonly askedAt: number,
  ) {
    this.answer = new Answer('', requestId)
    this.said.setAttribute('aria-label', 'Answer')
    this.note.setAttribute('role', 'status')
    this.node = element(
      'article',
      {},
      element('div', { className: 'prompt' }, prompt),
      this.said,
      this.note,
      this.actions,
    )
    this.node.dataset.request = requestId
    this.paint()
  }

  get text(): string {
    return this.finalText ?? this.answer.text
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

  /** An answer of the past. */
  finished(text: string, reason: string, model: string, tokens: number): void {
    this.finalText = text
    this.finalTokens = tokens
    this.reason = reason
    this.model = model
    this.paint()
  }

  take(event: TokenEvent): void {
    if (event.type === 'notice') {
      this.say(event.notice?.message ?? '')
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
    if (newOwner && event.type === 'token') this.say('The worker was lost; another one took over, and the answer goes on.')
    if (this.answer.end) this.ends(this.answer.end)
    this.schedule()
  }

  lost(isLost: boolean): void {
    if (isLost) this.say('The connection was lost; trying again.')
    else if (this.note.textContent?.startsWith('The connection')) this.say('')
  }

  refused(message: string): void {
    this.finalText = this.answer.text
    this.say(message)
    this.paint()
  }

  /** Called now and then while the answer is under way. */
  tick(): void {
    const silent = performance.now() - this.lastAt > SILENCE_MS
    if (!this.isOver && silent && !this.note.textContent) {
      this.say(this.firstAt === null ? 'Waiting for a worker.' : 'The worker is silent; waiting for it or for another one.')
    } else if (!silent && /^(Waiting|The worker is silent)/.test(this.note.textContent ?? '')) this.say('')
  }

  private ends(end: TokenEvent): void {
    this.reason = end.error ? end.error.code : (end.finish_reason ?? '')
    if (end.error) this.say(`${end.error.message} (${end.error.code})`)
    else if (!this.note.textContent?.includes('took over')) this.say('')
  }

  private say(text: string): void {
    this.note.textContent = text
    this.note.hidden = !text
    this.onChange()
  }

  private schedule(): void {
    if (this.painting) return
    this.painting = true
    // A hidden tab has no frames, but its title and its figures go on.
    const paint = (): void => {
      this.painting = false
      this.paint()
    }
    if (document.hidden) setTimeout(paint, 100)
    else requestAnimationFrame(paint)
  }

  private paint(): void {
    this.said.replaceChildren(markdown(this.text.trimStart()))
    this.node.dataset.state = this.figures.state
    this.node.classList.toggle('live', !this.isOver)
    this.said.setAttribute('aria-busy', String(!this.isOver))
    if (this.isOver) this.offer()
    this.onChange()
  }

  private offer(): void {
    const button = (label: string, act: () => void): HTMLButtonElement => {
      const made = element('button', { type: 'button', className: 'quiet', textContent: label })
      made.addEventListener('click', act)
      return made
    }
    const offered: (Node | string)[] = []
    if (ENDS[this.reason]) offered.push(element('span', {}, ENDS[this.reason] ?? ''))
    if (this.goOn && ['length', 'partial', 'cancelled'].includes(this.reason)) offered.push(button('Go on', this.goOn))
    if (this.again) offered.push(button('Regenerate', this.again))
    offered.push(button('Copy', () => void navigator.clipboard.writeText(this.text)))
    this.actions.replaceChildren(...offered)
  }
}
