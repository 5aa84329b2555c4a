/** Arguments of a call as fields that people can change: a field for each property, of the kind that it has. */

import { element } from './dom'
import type { Schema } from './approvals'

const STRING_OR_NUMBER = /"(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*/g

/** Whether JavaScript keeps each number of the JSON text: others would be shown, and sent, as another number. */
function isExact(json: string): boolean {
  return (json.match(STRING_OR_NUMBER) ?? []).every((one) => {
    if (one.startsWith('"')) return true
    return /^-?\d+$/.test(one) ? Number.isSafeInteger(Number(one)) : one.replace(/[eE].*|^-?0*\.?0*|\./g, '').length <= 15
  })
}

/** The arguments by name; none if they are no object, or would not stay what they are. */
export function parsed(text: string): Record<string, unknown> {
  if (!isExact(text)) return {}
  try {
    const value: unknown = JSON.parse(text)
    return typeof value === 'object' && value && !Array.isArray(value) ? (value as Record<string, unknown>) : {}
  } catch {
    return {}
  }
}

/** `order_number` as people would say it: `Order number`. */
export function label(name: string): string {
  const words = name.replace(/[_.-]+/g, ' ').replace(/([a-z])([A-Z])/g, '$1 $2').trim().toLowerCase()
  return plain(words.charAt(0).toUpperCase() + words.slice(1))
}

/** Marks that turn the direction of a text are shown: with them, 005 would be read as 500. */
export const plain = (text: string): string => text.replace(/[\u202a-\u202e\u2066-\u2069]/g, '\ufffd')

export function shownValue(value: unknown): string {
  if (typeof value === 'boolean') return value ? 'yes' : 'no'
  if (value === null) return 'nothing'
  if (typeof value !== 'object') return plain(String(value))
  if (Array.isArray(value)) return value.map((one) => `• ${shownValue(one).replaceAll('\n', '\n  ')}`).join('\n') || 'nothing'
  const lines = Object.entries(value).map(([name, one]) => `${label(name)}: ${typeof one === 'object' && one ? '\n  ' : ''}${shownValue(one).replaceAll('\n', '\n  ')}`)
  return lines.join('\n') || 'nothing'
}

type Control = HTMLInputElement | HTMLTextAreaElement | HTMLSelectElement

interface Field {
  name: string
  control: Control
  /** Undefined: the field is empty, and was not there before. Throws for a text that is no value of its kind. */
  read: () => unknown
}

const MULTILINE = 60
const MOST_ROWS = 14

export class Fields {
  readonly nodes: HTMLElement[] = []
  private readonly fields: Field[] = []

  constructor(
    private readonly given: Record<string, unknown>,
    schema: Schema | null,
  ) {
    const properties = schema?.properties ?? {}
    for (const name of new Set([...Object.keys(given), ...Object.keys(properties)])) this.add(name, properties[name] ?? {})
  }

  get first(): Control | undefined {
    return this.fields[0]?.control
  }

  /** The arguments as they are now; the name of the field that cannot be read otherwise. */
  read(): { values: Record<string, unknown> } | { wrong: string; where: string } {
    const values: Record<string, unknown> = {}
    for (const { name, read } of this.fields) {
      try {
        const value = read()
        if (value !== undefined) values[name] = value
      } catch (error) {
        return { wrong: name, where: error instanceof NotJson ? error.message : '' }
      }
    }
    return { values }
  }

  /** Mark the field that is at fault, with `why` below it; an empty name marks none. */
  mark(name: string, why?: HTMLElement): void {
    for (const [at, field] of this.fields.entries()) {
      field.control.setAttribute('aria-invalid', String(field.name === name))
      if (field.name !== name) continue
      if (why) this.nodes[at]?.after(why)
      field.control.focus()
    }
  }

  private add(name: string, schema: Schema): void {
    const before = this.given[name]
    const type = [schema.type].flat().find((one) => one !== 'null') ?? kindOf(before)
    const field = this.made(name, before, type, schema)
    const text = schema.title ?? label(name)
    const isCheck = field.control instanceof HTMLInputElement && field.control.type === 'checkbox'
    const node = isCheck ? element('label', { className: 'check' }, field.control, text) : element('label', {}, text, field.control)
    if (schema.description) field.control.setAttribute('aria-description', schema.description)
    if (schema.description && !isCheck) node.insertBefore(element('small', {}, schema.description), field.control)
    this.fields.push(field)
    this.nodes.push(node)
  }

  private made(name: string, before: unknown, type: string, schema: Schema): Field {
    const wasThere = name in this.given
    const options = schema.enum?.filter((one) => typeof one === 'string')
    if (options?.length && options.length === schema.enum?.length) {
      const control = element('select') as HTMLSelectElement
      for (const one of wasThere ? options : ['', ...options]) control.append(element('option', { value: one, textContent: one }))
      control.value = typeof before === 'string' ? before : ''
      return { name, control, read: () => control.value || (wasThere ? control.value : undefined) }
    }
    if (type === 'boolean') {
      const control = element('input', { type: 'checkbox', checked: before === true }) as HTMLInputElement
      return { name, control, read: () => (control.checked || wasThere ? control.checked : undefined) }
    }
    if (type === 'number' || type === 'integer') {
      const control = element('input', { inputMode: 'decimal', value: wasThere ? String(before) : '' }) as HTMLInputElement
      return { name, control, read: () => numberOf(control.value.trim(), wasThere) }
    }
    if (type === 'string' && (before === undefined || typeof before === 'string')) {
      const isLong = (before ?? '').length > MULTILINE || (before ?? '').includes('\n')
      const control = element(isLong ? 'textarea' : 'input', { value: before ?? '', ...(isLong ? { rows: 6 } : {}) }) as HTMLInputElement | HTMLTextAreaElement
      return { name, control, read: () => (control.value || wasThere ? control.value : undefined) }
    }
    const text = wasThere ? JSON.stringify(before, null, 2) : ''
    const rows = Math.min(MOST_ROWS, text.split('\n').length + 1)
    const control = element('textarea', { value: text, rows, spellcheck: false }) as HTMLTextAreaElement
    // The cursor stands where it is wrong, as far as the browser says.
    return { name, control, read: () => (control.value.trim() ? exact(control.value, (at) => control.setSelectionRange(at, at)) : undefined) }
  }
}

/** Its message says where, for people. */
class NotJson extends Error {}

function exact(json: string, toPlace: (at: number) => void): unknown {
  if (!isExact(json)) throw new NotJson('a number in it has too many digits')
  try {
    return JSON.parse(json) as unknown
  } catch {
    const at = placeOf(json)
    const before = json.slice(0, at).split('\n')
    toPlace(at)
    throw new NotJson(`something is wrong in line ${before.length}, at character ${(before.at(-1) ?? '').length + 1}`)
  }
}

const SCALAR = /"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[\da-fA-F]{4}))*"|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null/y

/** Where a text stops to be JSON: not every browser says so. */
function placeOf(json: string): number {
  let at = 0
  const next = (): string => {
    while (' \t\r\n'.includes(json[at] ?? 'x')) at++
    return json[at] ?? ''
  }
  const scalar = (): boolean => {
    next()
    SCALAR.lastIndex = at
    const isThere = SCALAR.test(json)
    if (isThere) at = SCALAR.lastIndex
    return isThere
  }
  const passes = (mark: string): boolean => next() === mark && at++ >= 0
  const value = (): boolean => {
    const open = next()
    if (open !== '{' && open !== '[') return scalar()
    at++
    const close = open === '{' ? '}' : ']'
    for (let isFirst = true; next() !== close; isFirst = false) {
      if (!isFirst && !passes(',')) return false
      if (open === '{' && !(next() === '"' && scalar() && passes(':'))) return false
      if (!value()) return false
    }
    return passes(close)
  }
  if (value()) next()
  return at
}

function kindOf(value: unknown): string {
  return value === undefined ? 'string' : Array.isArray(value) ? 'array' : typeof value
}

function numberOf(text: string, isNeeded: boolean): number | undefined {
  if (!text && !isNeeded) return undefined
  const value = Number(text.replace(',', '.'))
  if (!text || !Number.isFinite(value) || !isExact(text)) throw new Error('no number')
  return value
}
