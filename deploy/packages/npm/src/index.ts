/** Ask Parley and follow its answers, in browsers and Node. */

export { Following, Parley, type Ask, type Fork, type Hit, type Message, type Version, type WhileBusy } from './client.js'
export { AnswerFailedError, RefusedError, UnreachableError } from './errors.js'
export type { Options } from './http.js'
export { newRequestId } from './ids.js'
export { Answer, ReaderRule, type TokenEvent, type ToolCall, type Update, type Usage } from './reader.js'
export type { Turn } from './versions.js'
