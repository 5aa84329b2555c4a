/** What becomes of a message that is sent while answers of its conversation are under way: the choice beside `Send`. */

import { byId, element } from './dom'

export type WhileBusy = 'queue' | 'steer' | 'interrupt' | 'rollback'

const BEHIND = 'After this answer'
const BESIDE = 'Let it wait, and ask'

const choice = byId<HTMLSelectElement>('when')
const first = choice.options[0]
const added = element('option', { value: 'steer' }, 'Add to this answer')

/**
 * There is a choice while one is under way; one that `writes` is answered first, one that sleeps lets others pass. One
 * that `hasTools` reads what is added to it behind their results.
 */
export function offer(isUnderWay: boolean, writes: boolean, hasTools: boolean): void {
  const label = writes ? BEHIND : BESIDE
  if (first && first.textContent !== label) first.textContent = label
  if (!hasTools) added.remove()
  else if (!added.isConnected) first?.after(added)
  if (choice.hidden !== isUnderWay) return
  choice.hidden = !isUnderWay
  if (!isUnderWay) choice.value = 'queue'
}

/** What was chosen, once: the next message goes behind the others again. */
export function chosen(): WhileBusy {
  const value = choice.hidden ? 'queue' : choice.value
  choice.value = 'queue'
  return value as WhileBusy
}
