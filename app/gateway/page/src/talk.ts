/** The conversation that is open: its turns, and what is asked in it. */

import { ask, caller, cancel, Refusal, turnsOf } from './api'
import { byId } from './dom'
import { newId, relationOf, type Relation } from './ids'
import * as panel from './panel'
import { ShownAnswer } from './answer'
import { begins, begun, ended, running, type Running } from './store'
import { follow } from './stream'
import { TurnView } from './turn'

const NEAR_PX = 120
const GO_ON = 'Please go on.'
// As many as a worker remembers by default.
const MOST_TURNS = 10

interface Message {
  role: 'user' | 'assistant'
  content: string
}

export class Talk {
  conversationId = ''
  onEnd: () => void = () => undefined
  private turns: TurnView[] = []
  private leaving = new AbortController()
  private readonly list = byId('turns')

  constructor() {
    setInterval(() => this.turns.forEach((turn) => turn.live.forEach((answer) => answer.tick())), 500)
  }

  async open(conversationId: string): Promise<void> {
    this.leaving.abort()
    this.leaving = new AbortController()
    const here = this.leaving.signal
    this.conversationId = conversationId
    this.turns = []
    this.list.replaceChildren()
    this.changed()
    const turns = await turnsOf(conversationId)
    if (here.aborted) return
    for (const turn of turns) if (!this.find(turn.request_id)) this.place(turn.prompt, ShownAnswer.of(turn))
    for (const one of running()) if (one.conversationId === conversationId) this.join(one)
    this.list.scrollTop = this.list.scrollHeight
  }

  /** Ask something new. */
  async ask(prompt: string): Promise<void> {
    // A worker remembers all answers; the user means those that are shown.
    const rewritten = this.turns.some((turn) => turn.isRewritten)
    const context = rewritten ? { messages: [...this.shownMessages(this.turns), { role: 'user', content: prompt }] } : { prompt }
    await this.send(prompt, context, newId())
    this.list.scrollTop = this.list.scrollHeight
  }

  /** Follow an answer that is under way, also one that another tab began. */
  join(one: Running): void {
    if (one.conversationId !== this.conversationId) return
    const known = this.find(one.requestId)
    if (known) {
      // One that is shown as it is made stays remembered: a reload must find it.
      if (known.isOver) ended(one.requestId)
      return
    }
    const answer = new ShownAnswer(one.requestId, one.askedAt)
    this.place(one.prompt, answer)
    const here = this.leaving.signal
    follow(
      one.requestId,
      (event) => answer.take(event),
      (isLost) => answer.lost(isLost),
      here,
    )
      .catch((error: unknown) => answer.refused(error instanceof Error ? error.message : String(error)))
      .finally(() => {
        if (here.aborted) return
        ended(one.requestId)
        byId('heard').textContent = `Answer: ${answer.text.trim() || answer.note}`
        this.onEnd()
      })
  }

  /** Bring the turn of a request into view. */
  show(requestId: string): void {
    const turn = this.turns.find((one) => one.answerTo(requestId))
    turn?.node.scrollIntoView({ block: 'center' })
    turn?.node.classList.add('found')
  }

  /** What the conversation began with; empty where nothing was asked. */
  get title(): string {
    return this.turns[0]?.prompt ?? ''
  }

  /** Stop the answer that is being written; those that wait for it go on, and are stopped by the next calls. */
  async stop(): Promise<void> {
    const live = this.live()
    const first = live.find((answer) => answer.figures.state !== 'waiting') ?? live[0]
    if (first) await cancel(first.requestId)
  }

  readonly refuse = (error: unknown): void => {
    const banner = byId('banner')
    banner.textContent = error instanceof Refusal ? error.message : `The gateway cannot be reached: ${String(error)}`
    banner.hidden = false
    setTimeout(() => (banner.hidden = true), 8000)
  }

  private find(requestId: string): ShownAnswer | undefined {
    for (const turn of this.turns) {
      const answer = turn.answerTo(requestId)
      if (answer) return answer
    }
    return undefined
  }

  private live(): ShownAnswer[] {
    return this.turns.flatMap((turn) => turn.live)
  }

  /** Put an answer into the turn that its id names, or into one of its own. */
  private place(prompt: string, answer: ShownAnswer): void {
    const relation = relationOf(answer.requestId)
    if (relation && this.turns.some((turn) => turn.add(answer, relation))) return
    const turn = new TurnView(prompt, answer)
    turn.onChange = () => this.changed()
    turn.ask = (to) => void this.askAbout(turn, to).catch(this.refuse)
    this.turns.push(turn)
    this.list.append(turn.node)
    this.changed()
  }

  /** Another answer to the turn's question, as if none had been given, or more of the one that is shown. */
  private async askAbout(turn: TurnView, relation: Relation): Promise<void> {
    const messages = this.shownMessages(this.turns.slice(0, this.turns.indexOf(turn)))
    messages.push({ role: 'user', content: turn.prompt })
    if (relation.kind === 'more') messages.push({ role: 'assistant', content: turn.text }, { role: 'user', content: GO_ON })
    await this.send(turn.prompt, { messages }, newId(relation))
  }

  private shownMessages(turns: TurnView[]): Message[] {
    return turns
      .filter((turn) => turn.text)
      .slice(-MOST_TURNS)
      .flatMap((turn) => [
        { role: 'user', content: turn.prompt },
        { role: 'assistant', content: turn.text },
      ])
  }

  private async send(prompt: string, context: object, requestId: string): Promise<void> {
    const conversationId = this.conversationId
    const askedAt = Date.now()
    const one: Running = { requestId, conversationId, prompt, askedAt }
    begins(one)
    try {
      const tools = caller.tools.length ? { tools: caller.tools, tool_mode: 'kafka' } : {}
      await ask({ ...context, ...tools, conversation_id: conversationId, request_id: requestId })
    } catch (error) {
      ended(requestId)
      throw error
    }
    begun(one)
    byId('heard').textContent = 'Sent; the answer is being made.'
    this.join(one)
  }

  private changed(): void {
    const live = this.live()
    byId('stop').hidden = live.length === 0
    const shown = live[0] ?? this.turns.at(-1)
    if (shown) panel.show(shown.figures, live.filter((answer) => answer.figures.state === 'waiting').length)
    else byId('panel').replaceChildren()
    const { scrollHeight, scrollTop, clientHeight } = this.list
    if (scrollHeight - scrollTop - clientHeight < NEAR_PX) this.list.scrollTop = scrollHeight
  }
}
