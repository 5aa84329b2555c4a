/** Where an answer is to go on differently: its words are chosen by a slider, as far as they stay. */

import { Answer } from '../../../reader/reader.mjs'
import { button, element } from './dom'
import { follow } from './stream'

/** A piece of the text; `index` is that of the token behind it. */
interface Piece {
  index: number
  text: string
}

const SPOKEN = 40
/** A gateway goes on waiting for a request that it does not know. */
const PATIENT_MS = 5000
const GONE = 'The words of this answer are not kept one by one any more.'

async function piecesOf(requestId: string, leaving: AbortController): Promise<Piece[]> {
  const answer = new Answer('', requestId)
  let pieces: Piece[] = []
  const read = (event: Parameters<Answer['take']>[0]): void => {
    const taken = event.type === 'token' ? answer.take(event) : null
    if (!taken) return
    const { cut } = taken
    if (cut !== null) pieces = pieces.filter(({ index }) => index <= cut)
    if (event.text) pieces.push({ index: event.index + (event.tokens?.length ?? 0), text: event.text })
  }
  const timer = setTimeout(() => pieces.length || leaving.abort(), PATIENT_MS)
  await follow(requestId, read, () => undefined, leaving.signal, { after: '' })
  clearTimeout(timer)
  return pieces
}

export class Cut {
  readonly node = element('form', { className: 'cut' })
  private readonly leaving = new AbortController()
  private readonly kept = element('span')
  private readonly dropped = element('span', { className: 'dropped' })
  private readonly slider = element('input', { type: 'range', min: '1', value: '1' }) as HTMLInputElement
  private readonly told = element('p', { role: 'status' }, 'Reading its words …')
  private pieces: Piece[] = []

  /** `goOn` is called with the index of the token at which it goes on, `over` when the form is closed. */
  constructor(requestId: string, goOn: (index: number) => void, over: () => void) {
    const close = (): void => (this.leaving.abort(), over())
    this.slider.setAttribute('aria-label', 'How much of it stays')
    this.slider.addEventListener('input', () => this.show())
    const steps = element('div', {}, button('−', () => this.step(-1), 'One word less'), this.slider, button('+', () => this.step(1), 'One word more'))
    const send = element('button', { type: 'submit' }, 'Go on from here')
    const text = element('p', { className: 'text' }, this.kept, this.dropped)
    this.node.append(this.told, text, steps, element('div', {}, button('Cancel', close, 'Cancel, and leave the answer as it is'), send))
    this.node.addEventListener('submit', (event) => {
      event.preventDefault()
      const last = this.pieces[this.at - 1]
      if (!last) return
      close()
      goOn(last.index)
    })
    this.node.addEventListener('keydown', (event) => {
      if (event.key === 'Escape') (event.stopPropagation(), close())
    })
    void this.read(requestId)
  }

  private get at(): number {
    return Number(this.slider.value)
  }

  private async read(requestId: string): Promise<void> {
    this.pieces = await piecesOf(requestId, this.leaving).catch(() => [])
    this.told.textContent = this.pieces.length > 1 ? 'What is marked is written anew.' : GONE
    this.slider.max = String(Math.max(1, this.pieces.length - 1))
    this.slider.value = String(Math.ceil(this.pieces.length / 2))
    this.show()
    this.slider.focus()
    this.node.scrollIntoView({ block: 'nearest' })
  }

  private step(by: number): void {
    this.slider.value = String(this.at + by)
    this.show()
  }

  private show(): void {
    const texts = this.pieces.map(({ text }) => text)
    this.kept.textContent = texts.slice(0, this.at).join('').trimStart()
    this.dropped.textContent = texts.slice(this.at).join('')
    this.slider.setAttribute('aria-valuetext', `up to “${this.kept.textContent.slice(-SPOKEN).trim()}”`)
  }
}
