/** Mathematics in an answer: TeX, shown as MathML by Temml, which is loaded with the first formula. */

import { element } from './dom'

type Render = typeof import('temml')['render']

// A formula is read with each repaint of a growing answer; this many are kept.
const MOST_KEPT = 500
const BOUNDS = { throwOnError: true, trust: false, maxExpand: 200, maxSize: [20, 40] as [number, number] }

const kept = new Map<string, Node[]>()
const waiting = new Map<HTMLElement, () => void>()
let render: Render | undefined
let loading: Promise<void> | undefined

/** Money is no mathematics: `$5, or 6$`. */
export function isMoney(tex: string): boolean {
  return /^\d/.test(tex) && !/^[\d.,]+$/.test(tex) && !/[\\^_=+*/<>{}]/.test(tex)
}

/** `written`: the formula with its marks. It stands there until Temml is loaded, and where Temml cannot read it. */
export function formula(tex: string, written: string, isBlock: boolean): HTMLElement {
  const node = element('span', { className: isBlock ? 'math block' : 'math' }, written)
  if (render) fill(node, tex, isBlock)
  else {
    waiting.set(node, () => fill(node, tex, isBlock))
    loading ??= load()
  }
  return node
}

async function load(): Promise<void> {
  try {
    render = (await import('temml')).default.render
    for (const show of waiting.values()) show()
  } catch {
    loading = undefined
  } finally {
    waiting.clear()
  }
}

function fill(node: HTMLElement, tex: string, isBlock: boolean): void {
  const key = `${isBlock} ${tex}`
  const nodes = kept.get(key) ?? rendered(tex, isBlock)
  if (kept.size >= MOST_KEPT) kept.clear()
  kept.set(key, nodes)
  if (nodes.length) node.replaceChildren(...nodes.map((one) => one.cloneNode(true)))
}

/** Nothing where it is no TeX, or deeper than the browser's stack. */
function rendered(tex: string, isBlock: boolean): Node[] {
  const made = element('span')
  try {
    render?.(tex, made, { ...BOUNDS, displayMode: isBlock })
    return [...made.childNodes]
  } catch {
    return []
  }
}
