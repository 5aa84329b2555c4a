/** The conversation that is open: its turns, and what is asked in it. */

import { ask, askedAt, caller, cancel, Unreachable, versionsOf, type Turn } from './api'
import { Branches, type Chosen } from './branches'
import { byId } from './dom'
import { forkOf, newId, rootOf, type Relation } from './ids'
import * as panel from './panel'
import { Reading } from './reading'
import { ShownAnswer } from './answer'
import { approvals } from './approvals'
import { begins, begun, ended, fails, failures, remembered, running, type Running } from './store'
import { TurnView } from './turn'
import { usesTools } from './welcome'
import * as when from './when'
import { ofFailure } from './words'

const NEAR_PX = 120
const TICK_MS = 500
// How often is asked what waits for this user while an answer may wait for it.
const APPROVALS_MS = 2000
const GO_ON = 'Please go on.'
// As many as a worker remembers by default.
const MOST_TURNS = 10
// As many as a request may name.
const MOST_REPLACED = 100
const SENT = 'Sent; the answer is being made.'
const TOLD: Record<when.WhileBusy, string> = {
  queue: 'Sent; it is answered when the answer above is there.',
  steer: 'Sent; the answer above reads it with the next results of its tools.',
  interrupt: 'Sent; the answer above is stopped for it.',
  rollback: 'Sent; the question above is forgotten for it.',
}

interface Message {
  role: 'user' | 'assistant'
  content: string
}

function messagesOf(turns: TurnView[]): Message[] {
  return turns
    .filter((turn) => turn.text && !turn.isRolledBack)
    .slice(-MOST_TURNS)
    .flatMap((turn) => [
      { role: 'user', content: turn.prompt },
      { role: 'assistant', content: turn.text },
    ])
}

export class Talk {
  conversationId = ''
  onEnd: () => void = () => undefined
  /** Tell the user of what has failed. */
  refuse: (error: unknown) => void = () => undefined
  private turns = new Branches()
  /** Messages leave one after the other, as they were typed. */
  private sending: Promise<unknown> = Promise.resolve()
  /** Those that may have arrived although no reply came: sent again under the same id, one is asked once. */
  private unsure: Running[] = []
  /** Over once the turns are shown, or cannot be: only then is it known behind which one a message comes. */
  loaded: Promise<unknown> = Promise.resolve()
  private leaving = new AbortController()
  private reading = new Reading(this.leaving.signal)
  private readonly list = byId('turns')
  private readonly latest = byId('latest')

  constructor() {
    setInterval(() => {
      const live = this.live()
      for (const answer of live) answer.tick()
      void this.askApprovals(live.filter((answer) => answer.waitsForReader))
    }, TICK_MS)
    this.list.addEventListener('scroll', () => (this.latest.hidden = this.isAtEnd))
    this.latest.addEventListener('click', () => (this.toEnd(), byId('prompt').focus()))
  }

  open(conversationId: string): Promise<void> {
    const loading = this.load(conversationId)
    this.loaded = loading.catch(() => undefined)
    return loading
  }

  private async load(conversationId: string): Promise<void> {
    this.leaving.abort()
    this.leaving = new AbortController()
    this.reading = new Reading(this.leaving.signal)
    const here = this.leaving.signal
    this.conversationId = conversationId
    this.turns = new Branches()
    byId('welcome').hidden = true
    this.render()
    try {
      const turns = await versionsOf(conversationId)
      if (here.aborted) return
      this.placeAll(turns)
      const open = running().sort((one, other) => one.askedAt - other.askedAt)
      for (const one of open) this.join(one, true)
      this.toEnd()
    } finally {
      if (!here.aborted) byId('welcome').hidden = this.turns.all.length > 0
    }
  }

  /** The turns, with the questions between them that got no answer. */
  private placeAll(turns: Turn[]): void {
    const answered = new Set(turns.map((turn) => turn.request_id))
    const failed = failures().filter((one) => rootOf(one.conversationId) === this.conversationId && !answered.has(one.requestId))
    const placeBefore = (at: number): void => {
      for (let one = failed[0]; one && one.askedAt < at; one = failed[0]) {
        this.place(one.prompt, ShownAnswer.ofFailed(one))
        failed.shift()
      }
    }
    for (const turn of turns) {
      placeBefore(askedAt(turn))
      this.place(turn.prompt, ShownAnswer.of(turn))
    }
    placeBefore(Infinity)
  }

  /** Ask something new. */
  async ask(prompt: string, whileBusy: when.WhileBusy): Promise<void> {
    const { conversationId } = this
    for (let loaded; loaded !== this.loaded; ) await (loaded = this.loaded)
    if (this.conversationId !== conversationId) return this.send(prompt, conversationId, { prompt }, newId())
    const { end, versionId } = this
    const isBusy = this.live(versionId).length > 0
    const relation: Relation | undefined = this.turns.isForked && end ? { kind: 'after', of: end.requestId } : undefined
    await this.send(prompt, versionId, { prompt }, newId(relation), isBusy ? whileBusy : undefined)
    this.toEnd()
  }

  /** Follow an answer that is under way, also one that another tab began. `isReplayed`: it was asked before a reload. */
  join(one: Running, isReplayed = false): void {
    if (rootOf(one.conversationId) !== this.conversationId) return
    const known = this.find(one.requestId)
    if (known) {
      // One that is shown as it is made stays remembered: a reload must find it.
      if (known.isOver) ended(one.requestId)
      return
    }
    if (one.whileBusy === 'interrupt' || one.whileBusy === 'rollback') {
      for (const earlier of this.live(one.conversationId)) if (earlier.askedAt < one.askedAt) earlier.supersede(one.whileBusy === 'rollback')
    }
    const answer = ShownAnswer.ofRunning(one, isReplayed)
    const turn = this.place(one.prompt, answer)
    const here = this.leaving.signal
    this.reading
      .read(answer, one.whileBusy)
      .catch((error: unknown) => answer.refused(ofFailure(error)))
      .finally(() => {
        if (here.aborted) return
        if (answer.error) fails({ ...one, code: answer.error })
        ended(one.requestId)
        if (!answer.isSuperseded) byId('heard').textContent = answer.isSteered ? answer.note : `Answer: ${turn.spoken || answer.note}`
        this.onEnd()
      })
  }

  /** Bring the turn of a request into view. */
  show(requestId: string): void {
    const turn = this.turns.reveal(requestId)
    if (!turn) return
    this.render()
    turn.node.scrollIntoView({ block: 'center' })
    turn.node.classList.add('found')
  }

  get chosen(): Chosen[] {
    return this.turns.chosen
  }

  /** What the conversation began with; empty where nothing was asked. */
  get title(): string {
    return this.turns.shown[0]?.question.text ?? ''
  }

  /** When something was asked last, Unix milliseconds; 0 where nothing was. */
  get askedAt(): number {
    return Math.max(0, ...this.turns.all.map((turn) => turn.askedAt))
  }

  /**
   * Stop the answer that is being written; those that wait for it go on, and are stopped by the next calls. One whose
   * question is still on its way to the gateway is stopped when it is there.
   */
  async stop(): Promise<void> {
    if (!this.live().length) await this.sending
    const live = this.live()
    const awake = live.filter((answer) => !answer.isAsleep)
    const first = awake.find((answer) => answer.figures.state !== 'waiting') ?? awake[0] ?? live[0]
    if (first) await cancel(first.requestId)
  }

  /** Take back a question whose answer has not begun. */
  private async withdraw(answer: ShownAnswer): Promise<void> {
    answer.withdraw(true)
    byId('prompt').focus()
    try {
      await cancel(answer.requestId)
    } catch (error) {
      answer.withdraw(false)
      throw error
    }
  }

  private approvalsAt = 0
  private awaited = ''

  /** What these wait for may be up to this user: at once for another answer, then now and then. */
  private async askApprovals(waiting: ShownAnswer[]): Promise<void> {
    const awaited = waiting.map((answer) => answer.requestId).join()
    if (!awaited || (awaited === this.awaited && Date.now() - this.approvalsAt < APPROVALS_MS)) return
    this.approvalsAt = Date.now()
    this.awaited = awaited
    const found = await approvals({ by: 'user' }).catch(() => null)
    for (const answer of found ? waiting : []) answer.await(found?.approvals ?? [])
  }

  private find(requestId: string): ShownAnswer | undefined {
    for (const turn of this.turns.all) {
      const answer = turn.answerTo(requestId)
      if (answer) return answer
    }
    return undefined
  }

  /** Of all versions, or of one. */
  private live(conversationId = ''): ShownAnswer[] {
    const live = this.turns.all.flatMap((turn) => turn.live)
    return conversationId ? live.filter((answer) => answer.conversationId === conversationId) : live
  }

  /** The turn behind which the next question comes. */
  private get end(): TurnView | undefined {
    return this.turns.shown.filter((turn) => !turn.isRolledBack && !turn.last.isSteered).at(-1)
  }

  /** The conversation of the version that is shown. */
  get versionId(): string {
    return this.end?.first.conversationId ?? this.conversationId
  }

  /** Put an answer into the turn that its id names, or into one of its own. */
  private place(prompt: string, answer: ShownAnswer): TurnView {
    const turn = this.turns.place(prompt, answer, (made) => {
      made.onChange = () => this.changed()
      made.ask = (to) => void this.askAbout(made, to).catch(this.refuse)
      made.withdraw = (one) => void this.withdraw(one).catch(this.refuse)
      made.question.edit = (text) => void this.askInstead(made, text).catch(this.refuse)
      made.question.leaf = (step) => this.leaf(made, step)
      made.leafed = () => this.render()
      made.forkAt = (answer, index) => void this.askWithin(made, answer, index).catch(this.refuse)
    })
    byId('welcome').hidden = true
    this.render()
    return turn
  }

  /** Another answer to the turn's question, as if none had been given, or more of the one that is shown. */
  private async askAbout(turn: TurnView, relation: Relation): Promise<void> {
    if (relation.kind === 'again') return this.askInPlace(turn, newId(relation))
    const { conversationId, requestId } = turn.last
    const isLast = this.end === turn
    const fork = { from: { conversation_id: conversationId, request_id: requestId }, prompt: GO_ON, replaces: this.replacedFrom(turn, 1) }
    await this.send(turn.prompt, isLast ? conversationId : forkOf(conversationId), isLast ? { prompt: GO_ON } : fork, newId(relation))
  }

  /** Another question in the place of the turn's, as if neither it nor what follows had been asked. */
  private async askInstead(turn: TurnView, prompt: string): Promise<void> {
    const shown = this.turns.shown
    const replaced = shown.slice(shown.indexOf(turn)).flatMap((one) => one.live)
    await Promise.all(replaced.map((answer) => cancel(answer.requestId)))
    await this.askInPlace(turn, newId({ kind: 'edit', of: turn.requestId }), prompt)
  }

  /**
   * A version of the conversation that goes as far as this turn's question, or has another one in its place. What a
   * worker does not remember any more, or never did, it is told.
   */
  private async askInPlace(turn: TurnView, requestId: string, prompt = ''): Promise<void> {
    const shown = this.turns.shown
    const at = shown.indexOf(turn)
    const { conversationId, requestId: request_id, isRemembered, askedAt } = turn.first
    const answers = this.turns.all.flatMap((one) => one.answers)
    const later = answers.filter((one) => one.conversationId === conversationId && one.askedAt > askedAt)
    const isKnown = isRemembered && later.length < MOST_TURNS
    const from = { conversation_id: conversationId, request_id, index: 0 }
    const messages = [...messagesOf(shown.slice(0, at)), { role: 'user', content: prompt || turn.prompt }]
    const context = isKnown ? { from, ...(prompt ? { prompt } : {}) } : { messages }
    await this.send(prompt || turn.prompt, forkOf(conversationId), { ...context, replaces: this.replacedFrom(turn) }, requestId)
  }

  /** Another answer that begins as this one, up to the token with this index. */
  private async askWithin(turn: TurnView, { conversationId, requestId }: ShownAnswer, index: number): Promise<void> {
    const from = { conversation_id: conversationId, request_id: requestId, index }
    const again = newId({ kind: 'again', of: requestId })
    await this.send(turn.prompt, forkOf(conversationId), { from, replaces: this.replacedFrom(turn) }, again)
  }

  /** The requests of the turn and of what is shown behind it: what a version that begins there replaces. */
  private replacedFrom(turn: TurnView, behind = 0): string[] {
    const shown = this.turns.shown
    const answers = shown.slice(shown.indexOf(turn) + behind).flatMap((one) => one.answers)
    return answers.map((one) => one.requestId).slice(0, MOST_REPLACED)
  }

  private leaf(turn: TurnView, step: number): void {
    const other = this.turns.leaf(turn, step)
    this.render()
    other?.question.focus()
  }

  private send(
    prompt: string,
    conversationId: string,
    context: object,
    requestId: string,
    whileBusy?: when.WhileBusy,
  ): Promise<void> {
    const again = this.unsure.find((one) => one.prompt === prompt && one.conversationId === conversationId)
    const rule = whileBusy === 'queue' ? undefined : whileBusy
    const one: Running = again ?? { requestId, conversationId, prompt, askedAt: Date.now(), whileBusy: rule }
    const told = whileBusy ? TOLD[whileBusy] : SENT
    const sent = this.sending.then(() => this.post(one, { ...context, while_busy: one.whileBusy }, told))
    this.sending = sent.catch(() => undefined)
    return sent
  }

  private async post(one: Running, context: object, told: string): Promise<void> {
    const { requestId, conversationId } = one
    one.hasTools = usesTools()
    begins(one)
    try {
      const tools = one.hasTools ? { tools: caller.tools, tool_mode: 'kafka' } : {}
      const model = remembered('model')
      const chosen = model && caller.models.includes(model) ? { model } : {}
      await ask({ ...context, ...tools, ...chosen, conversation_id: conversationId, request_id: requestId })
    } catch (error) {
      ended(requestId)
      if (error instanceof Unreachable) this.unsure.push(one)
      throw error
    }
    this.unsure = []
    begun(one)
    byId('heard').textContent = told
    this.join(one)
  }

  /** Show the turns of the versions that are chosen. */
  private render(): void {
    const shown = this.turns.shown
    for (const turn of shown) turn.question.versions(...this.turns.versions(turn))
    const nodes = shown.map((turn) => turn.node)
    const isKept = nodes.every((node, at) => (this.list.children[at] ?? node) === node)
    if (isKept && nodes.length >= this.list.children.length) this.list.append(...nodes.slice(this.list.children.length))
    else this.list.replaceChildren(...nodes)
    this.changed()
  }

  private get isAtEnd(): boolean {
    const { scrollHeight, scrollTop, clientHeight } = this.list
    return scrollHeight - scrollTop - clientHeight < NEAR_PX
  }

  private toEnd(): void {
    this.list.scrollTop = this.list.scrollHeight
  }

  private changed(): void {
    const live = this.live()
    const awake = live.filter((answer) => !answer.isAsleep).sort((one, other) => one.askedAt - other.askedAt)
    const writing = awake.find((answer) => answer.conversationId === this.versionId)
    const busy = new Set<string>()
    for (const answer of awake) {
      answer.standBehind(busy.has(answer.conversationId))
      busy.add(answer.conversationId)
    }
    byId('stop').hidden = live.length === 0
    when.offer(this.live(this.versionId).length > 0, writing !== undefined, writing?.hasTools === true)
    const shown = live[0] ?? this.turns.shown.at(-1)
    if (shown) panel.show(shown.figures, live.filter((answer) => answer.figures.state === 'waiting').length)
    else byId('panel').replaceChildren()
    // Who has gone up to read stays there.
    if (this.latest.hidden) this.toEnd()
    this.latest.hidden = this.isAtEnd
  }
}
