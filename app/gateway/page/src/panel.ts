/** The figures of the answer that came last. */

import { byId, element } from './dom'
import type { Figures } from './answer'

const time = (ms: number | null): string => (ms === null ? '–' : ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(1)} s`)

export function show(figures: Figures, waiting: number): void {
  const rows: [string, string][] = [
    ['State', figures.state],
    ['First token', time(figures.firstTokenMs)],
    ['Tokens/s', figures.tokensPerS?.toFixed(1) ?? '–'],
    ['Tokens', String(figures.tokens)],
    ['Queue', String(waiting)],
    ['Model', figures.model || '–'],
  ]
  byId('panel').replaceChildren(...rows.map(([name, value]) => element('div', {}, element('dt', {}, name), element('dd', {}, value))))
}
