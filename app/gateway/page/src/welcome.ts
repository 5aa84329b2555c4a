/** What the page offers: examples to begin with, the model where there is a choice, and tools where there are some. */

import { caller, models } from './api'
import { button, byId, element } from './dom'
import { remember, remembered } from './store'

// The demo's model answers for a small shop, and nothing else.
const OF_THE_SHOP = ['How long does delivery take?', 'What is the state of my order 48213?', 'Can I send something back?']
const OF_ALL = [
  'Explain how a tide comes about, in three sentences',
  'Write a friendly reminder of an unpaid invoice',
  'Give me a table of three ways to cook eggs, with times',
  'Write a Python function that counts the words of a text',
]

export async function welcome(send: (text: string) => void): Promise<void> {
  caller.models = await models().catch(() => [])
  const isShop = caller.models[0] === 'demo'
  byId('examples').replaceChildren(...(isShop ? OF_THE_SHOP : OF_ALL).map((text) => element('li', {}, button(text, () => send(text)))))
  choice()
  // Not every model can be asked with tools.
  const field = byId<HTMLInputElement>('tools')
  byId('with-tools').hidden = caller.tools.length === 0
  field.checked = usesTools()
  field.onchange = () => remember('tools', field.checked ? '' : 'off')
}

export const usesTools = (): boolean => caller.tools.length > 0 && remembered('tools') !== 'off'

function choice(): void {
  const field = byId<HTMLSelectElement>('model')
  const name = remembered('model')
  // `default` is what a request without a name gets.
  const options = caller.models.filter((one) => one !== 'default').map((one) => element('option', { value: one, selected: one === name }, one))
  field.replaceChildren(element('option', { value: '' }, 'Default model'), ...options)
  field.hidden = options.length < (caller.models.includes('default') ? 1 : 2)
  field.onchange = () => remember('model', field.value)
}
