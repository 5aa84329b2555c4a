/** Calls of tools: a chip each, with arguments and result in its fold. */

import { resultsOf, type Call } from './api'
import { element } from './dom'
import { label, parsed } from './fields'

const LONGEST = 40

/** `order_status({"order_number": "48213"})` as people would say it: `Order status: 48213`. */
function labelOf({ name, arguments: given }: Call): string {
  const values = Object.values(parsed(given)).filter((value) => typeof value === 'string' || typeof value === 'number')
  const about = values.join(', ')
  return about ? `${label(name)}: ${about.length > LONGEST ? `${about.slice(0, LONGEST)}…` : about}` : label(name)
}

function pretty(text: string): string {
  const value = parsed(text)
  return Object.keys(value).length ? JSON.stringify(value, null, 2) : text
}

const block = (text: string): HTMLElement => element('pre', { tabIndex: 0 }, pretty(text))

class Chip {
  readonly node = element('details', { className: 'call' })
  private readonly label = element('summary')
  private readonly result = element('div')
  private asked = false
  private isOver = false
  private painted?: string

  constructor(
    private readonly call: Call,
    private readonly requestId: string,
  ) {
    const given = element('div', {}, element('small', {}, `Given to ${call.name}`), block(call.arguments))
    this.node.append(this.label, given, this.result)
    this.node.addEventListener('toggle', () => void this.load())
  }

  show(isOver: boolean): void {
    const { result } = this.call
    const isRunning = result === undefined && !isOver
    this.node.classList.toggle('running', isRunning)
    const label = isRunning ? `${labelOf(this.call)} …` : labelOf(this.call)
    if (this.label.textContent !== label) this.label.textContent = label
    this.isOver = isOver
    if (result !== undefined && result !== this.painted) {
      this.result.replaceChildren(element('small', {}, 'Result'), block(result))
      this.painted = result
    } else if (result === undefined && isRunning) this.result.textContent = 'It has no result yet.'
  }

  /** A turn of the history has its calls; their results are read from the log when somebody wants to see them. */
  private async load(): Promise<void> {
    if (!this.node.open || this.asked || !this.isOver || this.call.result !== undefined) return
    this.asked = true
    this.result.textContent = 'Reading the result…'
    const results = await resultsOf(this.requestId).catch(() => {
      this.asked = false
      return []
    })
    this.call.result = results.find((one) => one.tool_call_id === this.call.id)?.content
    if (this.call.result === undefined) this.result.textContent = 'No result of it is kept.'
    this.show(true)
  }
}

export class Calls {
  readonly node = element('div', { className: 'calls', hidden: true })
  private chips = new Map<Call, Chip>()

  /** `parts`: the answers that are shown, with their calls. */
  show(parts: { requestId: string; calls: Call[]; isOver: boolean }[]): void {
    const shown = new Map<Call, Chip>()
    for (const { requestId, calls, isOver } of parts) {
      for (const call of calls) {
        const chip = this.chips.get(call) ?? new Chip(call, requestId)
        chip.show(isOver)
        shown.set(call, chip)
      }
    }
    // A chip that is made anew would lose its fold and the keyboard's focus.
    const nodes = [...shown.values()].map((chip) => chip.node)
    if (nodes.some((node, at) => this.node.children[at] !== node) || nodes.length !== this.node.children.length) {
      this.node.replaceChildren(...nodes)
    }
    this.chips = shown
    this.node.hidden = nodes.length === 0
  }
}
