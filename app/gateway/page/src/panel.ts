/** The figures of the answer that came last. */

import { byId, element } from './dom'
import type { Figures } from './answer'

const time = (ms: number): string => (ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(1)} s`)

function row(name: string, value: string): HTMLElement {
  return element('div', {}, element('dt', {}, name), element('dd', {}, value))
}

/** What is not known is not shown. `waiting`: answers that have not begun. */
export function show({ firstTokenMs, tokensPerS, tokens, model }: Figures, waiting: number): void {
  const rows: [string, string | false | null][] = [
    ['Waiting', waiting > 1 && `${waiting} messages`],
    ['First token', firstTokenMs !== null && firstTokenMs > 0 && time(firstTokenMs)],
    ['Tokens/s', tokensPerS !== null && tokensPerS.toFixed(1)],
    ['Tokens', tokens !== null && String(tokens)],
    // What computes it is for operators: their name for the model stands before the `@`.
    ['Model', model.split('@', 1)[0] ?? ''],
  ]
  const known = rows.filter((row): row is [string, string] => Boolean(row[1]))
  byId('panel').replaceChildren(...known.map(([name, value]) => row(name, value)))
  byId('panel').title = model
}
