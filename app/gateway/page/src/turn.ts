/** One question on the page, and its answers: one is shown, the others can be leafed to. */

import { ApprovalCard, lineOf } from './approval'
import { Calls } from './calls'
import { Cut } from './cut'
import { button, byId, element } from './dom'
import { tail, type Relation } from './ids'
import { markdown, spoken } from './markdown'
import { Question } from './question'
import type { Figures, ShownAnswer } from './answer'

/** One variant: the answer, and its continuations. */
type Variant = ShownAnswer[]

function joined(parts: Variant): string {
  return parts
    .map((part) => part.text)
    .reduce((before, more) => (before && more && !/\s$/.test(before) && !/^\s/.test(more) ? `${before} ${more}` : before + more))
}

const ASKED = 'The assistant asks you before it does this'

export class TurnView {
  readonly node: HTMLElement
  readonly question: Question
  onChange: () => void = () => undefined
  ask: (relation: Relation) => void = () => undefined
  withdraw: (answer: ShownAnswer) => void = () => undefined
  private readonly variants: Variant[]
  /** Which of its answers is shown. */
  shownAt = 0
  /** Another one is shown, and what was asked after that. */
  leafed: () => void = () => undefined
  forkAt: (answer: ShownAnswer, index: number) => void = () => undefined
  private painting = false
  private offered = ''
  private readonly answer = element('div', { className: 'answer' })
  private readonly reasoning = element('details', { className: 'reasoning', hidden: true })
  private readonly summary = element('summary')
  private readonly thoughts = element('div')
  private readonly calls = new Calls()
  private readonly cards = element('div', { className: 'approvals' })
  private asked = new Map<string, ApprovalCard>()
  private readonly note = element('p', { className: 'note', hidden: true })
  private readonly actions = element('div', { className: 'actions' })

  constructor(
    readonly prompt: string,
    first: ShownAnswer,
  ) {
    this.variants = [[first]]
    this.answer.setAttribute('aria-label', 'Answer')
    this.answer.setAttribute('role', 'group')
    this.note.setAttribute('role', 'status')
    this.question = new Question(prompt)
    this.reasoning.append(this.summary, this.thoughts)
    const shown = [this.question.node, this.reasoning, this.calls.node, this.answer, this.cards, this.note, this.actions]
    this.node = element('article', {}, ...shown)
    this.watch(first)
  }

  /** The answer to the request, if it belongs to this question. */
  answerTo(requestId: string): ShownAnswer | undefined {
    return this.variants.flat().find((answer) => answer.requestId === requestId)
  }

  /** Take the answer of a request that names one of these; false where it names none. */
  add(answer: ShownAnswer, relation: Relation): boolean {
    const at = this.variants.findIndex((parts) => parts.some((part) => tail(part.requestId) === relation.of))
    if (at < 0 || relation.kind === 'edit' || relation.kind === 'after') return false
    if (relation.kind === 'more') this.variants[at]?.push(answer)
    else this.variants.push([answer])
    this.shownAt = relation.kind === 'more' ? at : this.variants.length - 1
    this.watch(answer)
    return true
  }

  /** Which of its answers is to the request of which an id knows this tail; -1 if none is. */
  variantOf(of: string): number {
    return this.variants.findIndex((parts) => parts.some((part) => tail(part.requestId) === of))
  }

  /** Show the answer to the request, if it is one of these. */
  show(of: string): boolean {
    const at = this.variantOf(of)
    if (at >= 0) this.showAt(at)
    return at >= 0
  }

  showAt(at: number): void {
    this.shownAt = at
    this.paint()
  }

  get answers(): ShownAnswer[] {
    return this.variants.flat()
  }

  /** The answer that is shown, and what continues it. */
  get shownAnswers(): ShownAnswer[] {
    return this.parts
  }

  get count(): number {
    return this.variants.length
  }

  /** The first answer of the variant that is shown: the one to the question. */
  get first(): ShownAnswer {
    return this.parts[0] ?? this.last
  }

  get text(): string {
    return joined(this.parts)
  }

  /** The answer as it is read aloud. */
  get spoken(): string {
    return spoken(this.text)
  }

  /** The request whose answer is shown. */
  get requestId(): string {
    return this.last.requestId
  }

  get askedAt(): number {
    return Math.max(...this.variants.flat().map((answer) => answer.askedAt))
  }

  get live(): ShownAnswer[] {
    return this.variants.flat().filter((answer) => !answer.isOver)
  }

  get figures(): Figures {
    return this.last.figures
  }

  /** Whether nothing of what is shown is remembered. */
  get isRolledBack(): boolean {
    return this.last.isRolledBack
  }

  private get parts(): Variant {
    return this.variants[this.shownAt] ?? []
  }

  get last(): ShownAnswer {
    const last = this.parts.at(-1)
    if (!last) throw new Error('an answer has at least one part')
    return last
  }

  private watch(answer: ShownAnswer): void {
    answer.onChange = () => this.schedule()
    this.paint()
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
    const { last } = this
    this.answer.replaceChildren(markdown(this.text.trimStart()))
    const reasoning = this.parts.map((part) => part.reasoning).filter(Boolean).join('\n\n')
    this.thoughts.replaceChildren(markdown(reasoning))
    this.reasoning.hidden = !reasoning
    this.summary.textContent = this.text || last.isOver ? 'Reasoning' : 'Reasoning …'
    this.calls.show(this.parts)
    this.showApprovals()
    this.note.textContent = last.note
    this.note.hidden = !last.note
    this.node.dataset.request = last.requestId
    this.node.dataset.state = last.reason || this.figures.state
    this.node.classList.toggle('live', !last.isOver)
    this.node.classList.toggle('queued', last.isQueued)
    this.node.classList.toggle('rolled-back', last.isRolledBack)
    this.node.classList.toggle('steered', last.isSteered)
    this.answer.setAttribute('aria-busy', String(!last.isOver))
    // Buttons that are made anew lose the keyboard's focus.
    const offered = [last.requestId, last.isOver, last.isQueued, last.ending, this.variants.length].join()
    if (offered !== this.offered) this.offer()
    this.offered = offered
    this.onChange()
  }

  /** A card that is made anew would lose what is written into it. */
  private showApprovals(): void {
    const open = this.parts.flatMap((part) => part.approvals)
    const cards = new Map<string, ApprovalCard>()
    for (const one of open) {
      const over = (line: string): void => {
        for (const part of this.parts) part.approvals = part.approvals.filter(({ wait_id }) => wait_id !== one.wait_id)
        if (this.cards.contains(document.activeElement)) byId('prompt').focus()
        this.last.decided(one.wait_id, line)
      }
      cards.set(one.wait_id, this.asked.get(one.wait_id) ?? new ApprovalCard(one, ASKED, (past, isOwn) => over(lineOf(past, isOwn))))
    }
    const nodes = [...cards.values()].map((card) => card.node)
    if (nodes.some((node, at) => this.cards.children[at] !== node) || nodes.length !== this.cards.children.length) {
      this.cards.replaceChildren(...nodes)
    }
    this.asked = cards
  }

  private offer(): void {
    const { last } = this
    const offered: Node[] = []
    if (this.variants.length > 1) offered.push(this.leaf('‹', 'Earlier answer', -1), this.counted(), this.leaf('›', 'Later answer', 1))
    if (last.isQueued) offered.push(button('Withdraw', () => this.withdraw(last), 'Withdraw this question'))
    if (last.isOver && last.ending) offered.push(element('span', {}, last.ending))
    if (last.isOver && !last.isRolledBack && !last.isSteered) {
      if (this.text && ['length', 'partial', 'cancelled', 'deadline'].includes(last.reason)) {
        offered.push(button('Go on', () => this.ask({ kind: 'more', of: last.requestId })))
      }
      offered.push(button('Regenerate', () => this.ask({ kind: 'again', of: last.requestId })))
      if (this.parts.length === 1 && last.isRemembered) offered.push(button('Rewrite from…', () => this.cut(last), 'Rewrite from a word of this answer'))
      if (navigator.clipboard && this.text) offered.push(button('Copy', () => void navigator.clipboard.writeText(this.text)))
    }
    this.actions.replaceChildren(...offered)
  }

  /** Choose a word at which the answer goes on differently. */
  private cut(answer: ShownAnswer): void {
    const shown = [this.answer, this.actions]
    const over = (): void => {
      form.node.remove()
      for (const one of shown) one.hidden = false
      this.actions.querySelector<HTMLButtonElement>('[aria-label^="Rewrite"]')?.focus()
    }
    const goOn = (index: number): void => (this.forkAt(answer, index), byId('prompt').focus())
    const form = new Cut(answer.requestId, goOn, over)
    for (const one of shown) one.hidden = true
    this.answer.after(form.node)
  }

  private counted(): HTMLElement {
    return element('span', { className: 'count' }, `${this.shownAt + 1}/${this.variants.length}`)
  }

  private leaf(label: string, name: string, step: number): HTMLElement {
    const to = this.shownAt + step
    const act = (): void => {
      this.showAt(to)
      this.leafed()
      // The button was made anew; who leafs with the keyboard goes on leafing.
      this.actions.querySelector<HTMLButtonElement>(`[aria-label="${name}"]:enabled, [aria-label$="answer"]:enabled`)?.focus()
    }
    const made = button(label, act, name)
    made.disabled = to < 0 || to >= this.variants.length
    return made
  }
}
