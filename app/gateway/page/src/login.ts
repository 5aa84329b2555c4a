/** The dialog that asks for a key. */

import { caller } from './api'
import { byId } from './dom'

export const UNKNOWN_KEY = 'This key is not known here, or it has expired. Check it and try again.'

/** Ask until something is entered. `wrong`: what was wrong with the key that was entered last. */
export function login(wrong: string): Promise<void> {
  const dialog = byId<HTMLDialogElement>('login')
  const field = byId<HTMLInputElement>('key')
  byId('wrong').textContent = wrong
  field.setAttribute('aria-invalid', String(Boolean(wrong)))
  dialog.showModal()
  field.select()
  return new Promise((resolve) => {
    dialog.addEventListener(
      'close',
      () => {
        caller.key = field.value.trim()
        sessionStorage.setItem('parley.key', caller.key)
        resolve()
      },
      { once: true },
    )
  })
}
