/** One question on the page, and its answers: one is shown, the others can be leafed to. */

import type { Call } from './api'
import { element } from './dom'
import { tail, type Relation } from './ids'
import { markdown } from './markdown'
import type { Figures, ShownAnswer } from './answer'

const ENDS: Record<string, string> = {
  length: 'It was cut at its longest length.',
  cancelled: 'It was stopped.',
  deadline: 'Its time was over.',
  filtered: 'It was filtered.',
  partial: 'Only a part of it could be given.',
}

/** One variant: the answer, and its continuations. */
type Variant = ShownAnswer[]

function joined(parts: Variant): string {
  return parts
    .map((part) => part.text)
    .reduce((before, more) => (before && more && !/\s$/.test(before) && !/^\s/.test(more) ? `${before} ${more}` : before + more))
}

export class TurnView {
  readonly node: HTMLElement
  onChange: () => void = () => undefined
  ask: (relation: Relation) => void = () => undefined
  private readonly variants: Variant[]
  private shown = 0
  private painting = false
  private offered = ''
  private readonly answer = element('div', { className: 'answer' })
  private readonly reasoning = element('details', { className: 'reasoning', hidden: true })
  private readonly summary = element('summary')
  private readonly thoughts = element('div')
  private readonly calls = element('div', { className: 'calls', hidden: true })
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
    const question = element('div', { className: 'prompt' }, prompt)
    question.setAttribute('role', 'group')
    question.setAttribute('aria-label', 'You')
    this.reasoning.append(this.summary, this.thoughts)
    this.node = element('article', {}, question, this.reasoning, this.calls, this.answer, this.note, this.actions)
    this.watch(first)
  }

  /** The answer to the request, if it belongs to this question. */
  answerTo(requestId: string): ShownAnswer | undefined {
    return this.variants.flat().find((answer) => answer.requestId === requestId)
  }

  /** Take the answer of a request that names one of these; false where it names none. */
  add(answer: ShownAnswer, relation: Relation): boolean {
    const at = this.variants.findIndex((parts) => parts.some((part) => tail(part.requestId) === relation.of))
    if (at < 0) return false
    if (relation.kind === 'more') this.variants[at]?.push(answer)
    else this.variants.push([answer])
    this.shown = relation.kind === 'more' ? at : this.variants.length - 1
    this.watch(answer)
    return true
  }

  get text(): string {
    return joined(this.parts)
  }

  get isOver(): boolean {
    return this.live.length === 0
  }

  get live(): ShownAnswer[] {
    return this.variants.flat().filter((answer) => !answer.isOver)
  }

  get figures(): Figures {
    return this.last.figures
  }

  /** Whether the page shows another variant than the first one. */
  get isRewritten(): boolean {
    return this.variants.flat().length > 1
  }

  private get parts(): Variant {
    return this.variants[this.shown] ?? []
  }

  private get last(): ShownAnswer {
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
    const calls = this.parts.flatMap((part) => part.calls)
    this.calls.replaceChildren(...calls.map(callView))
    this.calls.hidden = calls.length === 0
    this.note.textContent = last.note
    this.note.hidden = !last.note
    this.node.dataset.request = last.requestId
    this.node.dataset.state = this.figures.state
    this.node.classList.toggle('live', !last.isOver)
    this.answer.setAttribute('aria-busy', String(!last.isOver))
    // Buttons that are made anew lose the keyboard's focus.
    const offered = [last.requestId, last.isOver, last.reason, this.variants.length].join()
    if (offered !== this.offered) this.offer()
    this.offered = offered
    this.onChange()
  }

  private offer(): void {
    const { last } = this
    const offered: Node[] = []
    if (this.variants.length > 1) offered.push(this.leaf('‹', 'Earlier answer', -1), this.count(), this.leaf('›', 'Later answer', 1))
    if (last.isOver) {
      if (ENDS[last.reason]) offered.push(element('span', {}, ENDS[last.reason] ?? ''))
      if (['length', 'partial', 'cancelled', 'deadline'].includes(last.reason)) {
        offered.push(button('Go on', () => this.ask({ kind: 'more', of: last.requestId })))
      }
      offered.push(button('Regenerate', () => this.ask({ kind: 'again', of: last.requestId })))
      if (navigator.clipboard) offered.push(button('Copy', () => void navigator.clipboard.writeText(this.text)))
    }
    this.actions.replaceChildren(...offered)
  }

  private count(): HTMLElement {
    return element('span', { className: 'count' }, `${this.shown + 1}/${this.variants.length}`)
  }

  private leaf(label: string, name: string, step: number): HTMLElement {
    const to = this.shown + step
    const made = button(label, () => {
      this.shown = to
      this.paint()
      // The button was made anew; who leafs with the keyboard goes on leafing.
      this.actions.querySelector<HTMLButtonElement>(`[aria-label="${name}"]:enabled, [aria-label$="answer"]:enabled`)?.focus()
    })
    made.setAttribute('aria-label', name)
    made.disabled = to < 0 || to >= this.variants.length
    return made
  }
}

/** A call of a tool, and its result. */
function callView({ name, arguments: given, result }: Call): HTMLElement {
  const line = element('p', {}, element('code', {}, `${name}(${given})`))
  if (result !== undefined) line.append(' → ', element('code', {}, result))
  return line
}

function button(label: string, act: () => void): HTMLButtonElement {
  const made = element('button', { type: 'button', className: 'quiet', textContent: label })
  made.addEventListener('click', act)
  return made
}
