/** What went wrong, in words for people. Messages of servers are for operators: they name fields, paths and backends. */

import { Refusal, Unreachable } from './api'

const ERRORS: Record<string, string> = {
  invalid_request: 'This cannot be answered as it was asked. Try another model, or without tools.',
  prompt_too_long: 'This is too long for the model. Make it shorter, or begin a new conversation.',
  deadline_exceeded: 'It took too long until the answer could begin. Try again.',
  model_not_found: 'This model is not there any more. Choose another one.',
  overloaded: 'The model is busy or away at the moment. Try again soon.',
  engine_error: 'The model failed at this answer. Try again.',
  not_found: 'This cannot be found any more.',
  unauthorized: 'Your key does not allow this.',
  rate_limited: 'You have reached your limit.',
  conversation_busy: 'An answer of this conversation is still being written.',
  unavailable: 'A part of the service is away at the moment. Try again soon.',
  waiting: 'The answer waits, and goes on.',
}
const NOTICES: Record<string, string> = {
  attempt: 'The answer is tried again.',
  cached: 'This answer was made earlier.',
  degraded: 'Another model answers at the moment.',
  fallback: 'Another model answers, because the first one failed.',
  filtered: 'The rules of this service have blocked a part of this.',
  resumed: 'The server was restarted; your answer goes on.',
  woken: 'Your answer goes on.',
  steered: 'The answer above has read this message.',
}
const ENDS: Record<string, string> = {
  length: 'It was cut at its longest length.',
  cancelled: 'It was stopped.',
  deadline: 'Its time was over.',
  filtered: 'It was filtered.',
  partial: 'Only a part of it could be given.',
}

export const WAITING = 'The service is busy or starting; your answer begins in a moment.'
export const PAUSED = 'The answer has paused; it goes on in a moment.'
export const BEHIND = 'It is answered when the answer above is there.'
export const ADDED = 'The answer above reads it with the next results of its tools. If there are none, it is answered after that.'
export const WITHDRAWN = 'You have taken it back.'
export const DISCONNECTED = 'The connection was lost; trying again.'

export const ofError = (code: string): string => ERRORS[code] ?? 'Something went wrong. Try again.'
const KINDS: Record<string, string> = {
  tool: 'Your answer waits for a tool; it goes on when that has answered.',
  approval: 'Your answer waits until somebody has approved this.',
  answer: 'Your answer waits for another one.',
  timer: 'Your question waits for its time.',
}

/** `by`: who decides about a call. */
export function ofWait(kind: string, by = ''): string {
  if (by === 'user') return 'Your answer waits for your decision.'
  return KINDS[kind] ?? 'Your answer waits, and goes on by itself.'
}
/** A newer worker may send one that this page does not know. */
export const ofNotice = (code: string): string => NOTICES[code] ?? `Note: ${code.replaceAll('_', ' ')}.`
export const ofEnd = (reason: string): string => ENDS[reason] ?? ''
export const UNBEGUN = 'It was stopped before it began.'
/** Of an answer that a later message has ended. */
export const ofStop = (isRolledBack: boolean): string =>
  isRolledBack ? 'It is forgotten: your next message stands in its place.' : 'It was stopped for your next message.'

export function ofFailure(error: unknown): string {
  if (error instanceof Unreachable) return 'The server cannot be reached; trying again.'
  if (!(error instanceof Refusal)) return ofError('')
  const wait = error.retryAfterS ? ` Try again in ${error.retryAfterS} s.` : ''
  return `${ofError(error.code)}${error.code === 'rate_limited' ? wait : ''}`
}

/** Of what somebody has asked for once: nobody tries it again. */
export const ofUndone = (error: unknown): string =>
  error instanceof Unreachable ? 'The server cannot be reached. Try again when it is back.' : ofFailure(error)
