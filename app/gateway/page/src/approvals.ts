/** Calls that wait for an approval, as the gateway lists them, and decisions about them. */

import { refusal, request, Unreachable } from './api'

/** What a field of the arguments may be, as far as forms know it. */
export interface Schema {
  type?: string | string[]
  enum?: unknown[]
  properties?: Record<string, Schema>
  title?: string
  description?: string
  [rule: string]: unknown
}

export interface Approval {
  wait_id: string
  user_id: string
  request_id: string
  by: string
  name: string
  arguments: string
  parameters: Schema | null
  description?: string
  /** What the user said last, if the desk is to read it. */
  question?: string
  since: number
  until: number | null
}

/** One that is over; `by` is `DESK/NAME`, and empty where the time was over. `arguments`: JSON text, if they were changed. */
export interface Past {
  wait_id: string
  decision: string
  by: string | null
  arguments?: string | null
}

export interface Approvals {
  approvals: Approval[]
  decided: Past[]
  has_more: boolean
  version: string
  you: { name: string; desks: string[] | null; may_name: boolean }
}

export type Decision =
  | { decision: 'approved' }
  | { decision: 'edited'; arguments: Record<string, unknown> }
  | { decision: 'rejected'; reason?: string }

export interface Outcome extends Past {
  counted: boolean
}

const id = encodeURIComponent

export async function approvals(query: Record<string, string>, signal?: AbortSignal): Promise<Approvals> {
  const reply = await request(`/v1/approvals?${new URLSearchParams(query)}`, { signal })
  if (!reply.ok) throw await refusal(reply)
  return (await reply.json()) as Approvals
}

/** The decision that counts; null while it is not known. */
export async function decide(one: Approval, decision: Decision): Promise<Outcome | null> {
  const reply = await request(`/v1/approvals/${id(one.user_id)}/${id(one.request_id)}/${id(one.wait_id)}`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify(decision),
  })
  if (!reply.ok) throw await refusal(reply)
  return reply.status === 202 ? null : ((await reply.json()) as Outcome)
}

const WORDS: Record<string, string> = { approved: 'Approved', edited: 'Approved with changes', rejected: 'Rejected' }

/** `Approved by Ali`, as people would say it. */
export function inWords({ decision, by }: Past, isOwn = false): string {
  const name = by?.slice(by.indexOf('/') + 1) ?? ''
  if (decision === 'expired') return 'Nobody decided in time'
  return `${WORDS[decision] ?? decision} by ${isOwn ? 'you' : by?.startsWith('user/') ? 'the user' : name}`
}

const RULES: Record<string, string> = {
  minimum: 'at least', maximum: 'at most', exclusiveMinimum: 'more than', exclusiveMaximum: 'less than', multipleOf: 'a multiple of', enum: 'one of', const: 'nothing but',
}

/** `: at most 99`, for a rule of the schema that people can read. */
function taken(schema: Schema | undefined, rule: string): string {
  const value = schema?.[rule]
  if (rule === 'type') return value === 'integer' ? ': a whole number.' : '.'
  const values = [value].flat()
  return RULES[rule] && values.every((one) => one !== null && typeof one !== 'object') ? `: ${RULES[rule]} ${values.join(', ')}.` : '.'
}

/** What went wrong with a decision, and the field of the arguments that is at fault, if one is. */
export function whyNot(error: unknown, schema: Schema | null): { text: string; field: string } {
  if (error instanceof Unreachable) return { text: 'The server cannot be reached. Try again when it is back.', field: '' }
  const { status = 0, message = '' } = error as { status?: number; message?: string }
  const [, field = '', rule = ''] = /properties\.([^.)]+)(?:\.([^.)]+)\))?/.exec(message) ?? []
  if (status === 422) return { text: field ? `This does not fit what the tool takes${taken(schema?.properties?.[field], rule)}` : 'The tool does not take this. Check the fields.', field }
  if (status === 403) return { text: 'This is not yours to decide.', field: '' }
  if (status === 401) return { text: 'Your key has expired. Log out, and in again.', field: '' }
  return { text: 'This could not be sent. Try again.', field: '' }
}

