/** What the page tells above the conversation: that the gateway is away, until it is back, and what was refused. */

import { me, reach, Unreachable } from './api'
import { byId } from './dom'
import { ofFailure } from './words'

const AGAIN_MS = 1000
const SHOWN_MS = 12_000

export class Banner {
  private readonly node = byId('banner')
  private trying: number | undefined
  private hiding: number | undefined

  /** `back`: the gateway answers again. */
  constructor(private readonly back: () => void) {
    reach.changed = (isReached) => (isReached ? this.reached() : this.away())
  }

  readonly show = (error: unknown): void => {
    if (error instanceof Unreachable) return this.away()
    this.say(ofFailure(error))
    this.hiding = setTimeout(() => (this.node.hidden = true), SHOWN_MS)
  }

  private away(): void {
    if (this.trying) return
    this.say(ofFailure(new Unreachable()))
    this.trying = setInterval(() => void me().catch(() => undefined), AGAIN_MS)
  }

  private reached(): void {
    if (!this.trying) return
    clearInterval(this.trying)
    this.trying = undefined
    this.node.hidden = true
    this.back()
  }

  private say(text: string): void {
    clearTimeout(this.hiding)
    this.node.textContent = text
    this.node.hidden = false
  }
}
