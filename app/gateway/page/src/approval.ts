/** A call that waits for an approval, as a card: what is asked, and the decision. */

import { decide, inWords, whyNot, type Approval, type Decision, type Past } from './approvals'
import { button, element } from './dom'
import { Fields, label, parsed, plain, shownValue } from './fields'

const MOST_REASON = 4096
const REJECT = 'Reject'
const UNKNOWN = 'Sent. It is not known yet whether it counts; this page goes on asking.'
const GONE = 'Nobody waits for this any more: the answer has been stopped or has ended.'

const minutes = new Intl.RelativeTimeFormat('en', { numeric: 'auto' })

/** `3 minutes ago`. */
function ago(at: number): string {
  const seconds = (at - Date.now()) / 1000
  for (const [unit, length] of [['day', 86_400], ['hour', 3600], ['minute', 60]] as const) {
    if (-seconds >= length) return minutes.format(Math.round(seconds / length), unit)
  }
  return 'just now'
}

let made = 0

export class ApprovalCard {
  readonly node = element('article', { className: 'approval' })
  readonly title: string
  private readonly heading: HTMLElement
  private readonly about = element('p', { className: 'about' })
  private readonly body = element('div')
  private readonly told = element('p', { className: 'wrong', role: 'alert' })
  private isSent = false

  /** `asker`: who asks, in words. `over` is called with what was decided, null if nothing was, and the arguments that were `changed` here. */
  constructor(
    readonly approval: Approval,
    private readonly asker: string,
    private readonly over: (past: Past | null, isOwn: boolean, changed?: Record<string, unknown>) => void,
  ) {
    this.title = label(approval.name)
    this.heading = element('h3', { id: `approval-${++made}`, tabIndex: -1 }, this.title)
    this.about.id = `${this.heading.id}-about`
    this.node.setAttribute('aria-labelledby', this.heading.id)
    this.node.append(this.heading, this.about, this.body, this.told)
    this.tick()
    this.ask()
  }

  focus(): void {
    this.heading.focus()
  }

  /** The times go on. */
  tick(): void {
    const { since, until } = this.approval
    const ends = until ? [`open until ${new Date(until).toLocaleString(undefined, { dateStyle: 'medium', timeStyle: 'short' })}`] : []
    const text = [this.asker, `asked ${ago(since)}`, ...ends].join(' · ')
    if (this.about.textContent !== text) this.about.textContent = text
  }

  private given(): Record<string, unknown> {
    return parsed(this.approval.arguments)
  }

  private values(): HTMLElement {
    const values = element('dl')
    for (const [name, value] of Object.entries(this.given())) {
      const shown = shownValue(value)
      values.append(element('dt', {}, label(name)), element('dd', shown.length > 500 ? { tabIndex: 0 } : {}, shown))
    }
    if (values.children.length) return values
    // Text that is no object is shown as it is: nobody approves what is not seen.
    const raw = this.approval.arguments.trim()
    return element('p', {}, /^(\{\s*\})?$/.test(raw) ? 'Without further details.' : plain(raw))
  }

  /** What the tool does, and what the user said. */
  private words(): HTMLElement[] {
    const { description, question } = this.approval
    const words = description ? [element('p', { className: 'does' }, plain(description))] : []
    return question ? [...words, element('blockquote', {}, element('small', {}, 'The user wrote'), plain(question))] : words
  }

  private ask(): void {
    const values = this.values()
    const approve = button('Approve', () => void this.send({ decision: 'approved' }), `Approve ${this.title}`)
    approve.className = ''
    const actions = [approve]
    if (values instanceof HTMLDListElement) actions.push(button('Change…', () => this.change(), `Change ${this.title}`))
    actions.push(button('Reject…', () => this.refuse(), `Reject ${this.title}`))
    this.node.append(this.told)
    // Whose call it is, as the buttons of many cards have one name.
    for (const one of actions) one.setAttribute('aria-describedby', this.about.id)
    this.body.replaceChildren(...this.words(), values, element('p', { className: 'row' }, ...actions))
  }

  private change(): void {
    const fields = new Fields(this.given(), this.approval.parameters)
    this.form('Approve with changes', fields.nodes, () => {
      const read = fields.read()
      if ('values' in read) return void this.send({ decision: 'edited', arguments: read.values }, fields)
      this.told.textContent = `“${label(read.wrong)}” cannot be read${read.where ? `: ${read.where}` : ''}.`
      fields.mark(read.wrong, this.told)
    })
    fields.first?.focus()
  }

  private refuse(): void {
    const reason = element('textarea', { maxLength: MOST_REASON }) as HTMLTextAreaElement
    const field = element('label', {}, 'Reason, which the assistant reads and may tell (optional)', reason)
    this.form(REJECT, [this.values(), field], () => {
      const text = reason.value.trim()
      void this.send({ decision: 'rejected', ...(text ? { reason: text } : {}) })
    })
    reason.focus()
  }

  private form(act: string, fields: HTMLElement[], submit: () => void): void {
    const back = button('Back', () => (this.told.replaceChildren(), this.ask(), this.focus()))
    const now = element('button', { type: 'submit', textContent: act, className: act === REJECT ? 'danger' : '' })
    const row = element('p', { className: 'row' }, now, back)
    const form = element('form', { noValidate: true }, ...fields, row)
    form.addEventListener('submit', (event) => (event.preventDefault(), submit()))
    form.addEventListener('keydown', (event) => {
      if (event.key === 'Escape') (event.stopPropagation(), back.click())
    })
    this.body.replaceChildren(...this.words(), form)
    this.node.append(this.told)
  }

  private async send(decision: Decision, fields?: Fields): Promise<void> {
    if (this.isSent) return
    this.isSent = true
    this.told.textContent = ''
    fields?.mark('')
    this.disable(true)
    try {
      const outcome = await decide(this.approval, decision)
      if (outcome) return this.over(outcome, outcome.counted, outcome.counted && 'arguments' in decision ? decision.arguments : undefined)
      this.body.replaceChildren(element('p', { className: 'note', role: 'status' }, UNKNOWN))
    } catch (error) {
      this.isSent = false
      if ((error as { status?: number }).status === 404) return this.over(null, false)
      this.disable(false)
      const { text, field } = whyNot(error, this.approval.parameters)
      this.told.textContent = field ? `“${label(field)}”: ${text}` : text
      fields?.mark(field, this.told)
    }
  }

  private disable(isOff: boolean): void {
    // One that is disabled would lose the keyboard's focus.
    for (const one of this.body.querySelectorAll('button')) one.setAttribute('aria-disabled', String(isOff))
  }
}

/** How a card is over, as a line. */
export const lineOf = (past: Past | null, isOwn: boolean): string => (past ? `${inWords(past, isOwn)}.` : GONE)
