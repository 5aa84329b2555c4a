/** The dialog that asks for a key. */

import { caller } from './api'
import { byId } from './dom'

/** Ask until something is entered. `isWrong`: the gateway does not know the key that was entered last. */
export function login(isWrong: boolean): Promise<void> {
  const dialog = byId<HTMLDialogElement>('login')
  const field = byId<HTMLInputElement>('key')
  byId('wrong').textContent = isWrong ? 'This key is not known here, or it has expired. Check it and try again.' : ''
  field.setAttribute('aria-invalid', String(isWrong))
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
