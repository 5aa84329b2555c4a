/**
 * Request ids that the page makes: a UUIDv7, whose time shows the gateway where to look, and behind a dot what the
 * request is to an earlier one: another answer to the same question (`r`), the rest of its answer (`c`), another
 * question in its place (`e`), or the next question after it where there are versions (`a`). Another answer or question
 * begins a conversation of its own, a fork, so that a worker knows what is shown and no more. The ids stand in the log,
 * so every tab, device and reload puts questions and answers in the same places.
 */

/** An edit, or another answer, begins a conversation of its own: it has the name of the first one, and a mark. */
const MARK = /~[0-9a-f]{8}$/

/** The first one of all versions of a conversation. */
export const rootOf = (conversationId: string): string => conversationId.replace(MARK, '')

export const forkOf = (conversationId: string): string => `${rootOf(conversationId)}~${random(8)}`

export type Relation = { kind: 'again' | 'more' | 'edit' | 'after'; of: string }

const TAIL = 12
const LETTERS = { again: 'r', more: 'c', edit: 'e', after: 'a' } as const
const KINDS = { r: 'again', c: 'more', e: 'edit', a: 'after' } as const

function hex(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('')
}

/** Random hex digits; `crypto.randomUUID` is missing where the page comes over plain HTTP. */
export function random(digits: number): string {
  return hex(crypto.getRandomValues(new Uint8Array(digits / 2)))
}

export function newId(relation?: Relation): string {
  const time = Date.now().toString(16).padStart(12, '0')
  const drawn = random(16)
  const variant = (8 + (parseInt(drawn[3] ?? '0', 16) & 3)).toString(16)
  const id = `${time.slice(0, 8)}-${time.slice(8)}-7${drawn.slice(0, 3)}-${variant}${drawn.slice(4, 7)}-${random(12)}`
  return relation ? `${id}.${LETTERS[relation.kind]}-${tail(relation.of)}` : id
}

/** What an id is known by in the ids that refer to it. */
export function tail(id: string): string {
  return (id.split('.', 1)[0] ?? id).slice(-TAIL)
}

export function relationOf(id: string): Relation | null {
  const [, letter, of] = /\.([rcea])-([A-Za-z0-9:_-]{1,12})$/.exec(id) ?? []
  return of === undefined ? null : { kind: KINDS[letter as keyof typeof KINDS], of }
}
