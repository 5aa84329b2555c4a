/** The conversation that is open: its turns, and what is asked in it. */

import { ask, cancel, Refusal, turnsOf } from './api'
import { byId } from './dom'
import * as panel from './panel'
import { begun, ended, running, type Running } from './store'
import { follow } from './stream'
import { TurnView } from './turn'

const NEAR_PX = 120

export class Talk {
  conversationId = ''
  onEnd: () => void = () => undefined
  private turns = new Map<string, TurnView>()
  private leaving = new AbortController()
  private readonly list = byId('turns')

  constructor() {
    setInterval(() => this.turns.forEach((turn) => turn.tick()), 500)
  }

  async open(conversationId: string): Promise<void> {
    this.leaving.abort()
    this.leaving = new AbortController()
    const here = this.leaving.signal
    this.conversationId = conversationId
    this.turns = new Map()
    this.list.replaceChildren()
    this.changed()
    const turns = await turnsOf(conversationId)
    if (here.aborted) return
    for (const told of turns) {
      const { answer, finish_reason: reason, model_version: model, usage } = told
      const turn = this.add(told.request_id, told.prompt, told.created_at)
      turn.finished(answer, reason, model, usage.completion_tokens)
    }
    for (const one of running()) if (one.conversationId === conversationId) this.join(one)
    this.list.scrollTop = this.list.scrollHeight
  }

  async ask(prompt: string, context: object = { prompt }): Promise<void> {
    const conversationId = this.conversationId
    const askedAt = Date.now()
    const { request_id: requestId } = await ask({ ...context, conversation_id: conversationId })
    const one: Running = { requestId, conversationId, prompt, askedAt }
    begun(one)
    this.join(one)
    this.list.scrollTop = this.list.scrollHeight
  }

  /** Follow an answer that is under way, whoever asked. */
  join(one: Running): void {
    if (one.conversationId !== this.conversationId) return
    const known = this.turns.get(one.requestId)
    if (known) {
      // One that is shown as it is made stays remembered: a reload must find it.
      if (known.isOver) ended(one.requestId)
      return
    }
    const turn = this.add(one.requestId, one.prompt, one.askedAt)
    const here = this.leaving.signal
    follow(
      one.requestId,
      (event) => turn.take(event),
      (isLost) => turn.lost(isLost),
      here,
    )
      .catch((error: unknown) => turn.refused(error instanceof Error ? error.message : String(error)))
      .finally(() => {
        if (here.aborted) return
        ended(one.requestId)
        this.onEnd()
      })
  }

  /** What the conversation began with; empty where nothing was asked. */
  get title(): string {
    return [...this.turns.values()][0]?.prompt ?? ''
  }

  async stop(): Promise<void> {
    await Promise.all(this.live().map((turn) => cancel(turn.requestId)))
  }

  private live(): TurnView[] {
    return [...this.turns.values()].filter((turn) => !turn.isOver)
  }

  private add(requestId: string, prompt: string, askedAt: number): TurnView {
    const turn = new TurnView(requestId, prompt, askedAt)
    turn.onChange = () => this.changed()
    turn.again = () => void this.regenerate(turn)
    turn.goOn = () => void this.ask('Please go on.').catch(this.refuse)
    this.turns.set(requestId, turn)
    this.list.append(turn.node)
    this.changed()
    return turn
  }

  /** Ask again as if the answer had not been given: with what was said before it, and nothing else. */
  private async regenerate(turn: TurnView): Promise<void> {
    const messages: { role: string; content: string }[] = []
    for (const before of this.turns.values()) {
      if (before === turn) break
      messages.push({ role: 'user', content: before.prompt }, { role: 'assistant', content: before.text })
    }
    messages.push({ role: 'user', content: turn.prompt })
    const seed = Math.floor(Math.random() * 2 ** 31)
    await this.ask(turn.prompt, { messages, seed }).catch(this.refuse)
  }

  readonly refuse = (error: unknown): void => {
    const banner = byId('banner')
    banner.textContent = error instanceof Refusal ? error.message : `The gateway cannot be reached: ${String(error)}`
    banner.hidden = false
    setTimeout(() => (banner.hidden = true), 8000)
  }

  private changed(): void {
    const live = this.live()
    byId('stop').hidden = live.length === 0
    const shown = live[0] ?? [...this.turns.values()].at(-1)
    if (shown) panel.show(shown.figures, live.filter((turn) => turn.figures.state === 'waiting').length)
    else byId('panel').replaceChildren()
    const { scrollHeight, scrollTop, clientHeight } = this.list
    if (scrollHeight - scrollTop - clientHeight < NEAR_PX) this.list.scrollTop = scrollHeight
  }
}
