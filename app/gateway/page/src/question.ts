/** The question of a turn: it can be edited and sent again, and its versions can be leafed through. */

import { button, element } from './dom'

export class Question {
  readonly node: HTMLElement
  edit: (text: string) => void = () => undefined
  leaf: (step: number) => void = () => undefined
  private readonly shown: HTMLElement
  private readonly tools = element('div', { className: 'question-tools' })
  private readonly change = button('Edit', () => this.open(), 'Edit this question')

  constructor(readonly text: string) {
    this.shown = element('div', { className: 'prompt' }, text)
    this.shown.setAttribute('role', 'group')
    this.shown.setAttribute('aria-label', 'You')
    this.node = element('div', { className: 'question' }, this.shown, this.tools)
    this.versions(0, 1)
  }

  versions(at: number, of: number): void {
    const earlier = button('‹', () => this.leaf(-1), 'Earlier question')
    const later = button('›', () => this.leaf(1), 'Later question')
    earlier.disabled = at === 0
    later.disabled = at === of - 1
    const count = element('span', { className: 'versions' }, `${at + 1}/${of}`)
    this.tools.replaceChildren(...(of > 1 ? [earlier, count, later] : []), this.change)
  }

  focus(): void {
    this.tools.querySelector<HTMLButtonElement>('[aria-label$="question"]:enabled')?.focus()
  }

  private open(): void {
    const field = element('textarea', { value: this.text, rows: Math.min(8, this.text.split('\n').length + 1) })
    field.setAttribute('aria-label', 'Edited question')
    const close = (): void => {
      form.replaceWith(this.shown)
      this.tools.hidden = false
      this.change.focus()
    }
    const send = element('button', { type: 'submit', textContent: 'Send again' })
    const form = element('form', { className: 'edit' }, field, element('div', {}, button('Cancel', close), send))
    form.addEventListener('submit', (event) => {
      event.preventDefault()
      const text = field.value.trim()
      close()
      if (text && text !== this.text) this.edit(text)
    })
    form.addEventListener('keydown', (event) => {
      if (event.key === 'Escape') {
        event.stopPropagation()
        close()
      } else if (event.key === 'Enter' && !event.shiftKey && !event.isComposing && event.target === field) {
        event.preventDefault()
        form.requestSubmit()
      }
    })
    this.shown.replaceWith(form)
    this.tools.hidden = true
    field.focus()
  }
}
