/**
 * Which answers of a conversation are read at the moment. A browser has six connections to a server for all of its
 * tabs, and a stream holds one: with six messages that wait nothing could be sent or stopped any more. So messages that
 * wait for their turn are read in their order, one at a time; those that sleep share another connection, and so do
 * messages that are added to an answer; one that stops the others has a connection of its own.
 */

import type { ShownAnswer } from './answer'
import type { Running } from './store'
import { follow } from './stream'

const SHARE_MS = 2000
const MOVE_MS = 200

class Slot {
  private isFree = true
  private readonly waiting: (() => void)[] = []

  get isWanted(): boolean {
    return this.waiting.length > 0
  }

  /** Wait for the slot; what is returned gives it back. */
  async enter(): Promise<() => void> {
    if (!this.isFree) await new Promise<void>((resolve) => this.waiting.push(resolve))
    this.isFree = false
    return () => {
      const next = this.waiting.shift()
      if (next) next()
      else this.isFree = true
    }
  }
}

const AT_ONCE = { isWanted: false, enter: () => Promise.resolve(() => undefined) }

export class Reading {
  private readonly lanes = new Map<string, Slot>()
  private readonly sleepers = new Slot()
  private readonly additions = new Slot()

  constructor(private readonly here: AbortSignal) {}

  /** Read the answer to its end. `whileBusy`: what it does to others that are read. */
  async read(answer: ShownAnswer, whileBusy: Running['whileBusy']): Promise<void> {
    const place = { after: '' }
    const isUrgent = whileBusy === 'interrupt' || whileBusy === 'rollback'
    const own = whileBusy === 'steer' ? this.additions : isUrgent ? AT_ONCE : this.laneOf(answer.conversationId)
    while (!this.here.aborted && !answer.isOver) {
      const isRest = answer.isAsleep
      const slot = isRest ? this.sleepers : own
      const leave = await slot.enter()
      const pause = new AbortController()
      const stop = (): void => pause.abort()
      const timer = setInterval(() => answer.isAsleep && (slot.isWanted || !isRest) && stop(), isRest ? SHARE_MS : MOVE_MS)
      this.here.addEventListener('abort', stop)
      if (this.here.aborted) stop()
      try {
        await follow(
          answer.requestId,
          (event) => answer.take(event),
          (isLost) => answer.lost(isLost),
          pause.signal,
          place,
        )
      } finally {
        clearInterval(timer)
        this.here.removeEventListener('abort', stop)
        leave()
      }
    }
  }

  private laneOf(conversationId: string): Slot {
    const lane = this.lanes.get(conversationId) ?? new Slot()
    this.lanes.set(conversationId, lane)
    return lane
  }
}
