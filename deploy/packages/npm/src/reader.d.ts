/** Types of app/reader/reader.mjs, the reader rule of Parley's `tokens` topic. */

export interface ToolCall {
  id: string
  name: string
  /** JSON text. */
  arguments: string
}

export interface Usage {
  prompt_tokens: number
  completion_tokens: number
  cached_tokens: number
}

/** A record of `tokens`; a `fence` has no request. */
export interface TokenEvent {
  type: 'token' | 'notice' | 'done' | 'error' | 'fence'
  request_id: string
  user_id: string
  conversation_id?: string
  index: number
  epoch?: number
  tokens?: number[]
  text?: string
  reasoning?: string
  timestamp?: number
  model_version?: string
  finish_reason?: string
  usage?: Usage
  error?: { code: string; message: string }
  tool_calls?: ToolCall[]
  notice?: {
    code: string
    message: string
    details?: {
      calls?: ToolCall[]
      results?: { tool_call_id: string; content: string }[]
      /** Of `superseded`: the request that ends the answer, and whether nothing of it is remembered. */
      by?: string
      rolled_back?: boolean
      /** Of `steered`: the request in whose answer the text stands. */
      into?: string
      [name: string]: unknown
    }
  }
}

export class Answer {
  constructor(userId: string, requestId: string, conversationId?: string, partition?: number)
  readonly userId: string
  readonly requestId: string
  readonly conversationId: string
  readonly partition: number
  readonly text: string
  readonly reasoning: string
  readonly tokens: number[]
  /** The `done` or `error` event, once it is there. */
  readonly end: TokenEvent | null
  /** Ranges [from, to) of indexes that this reader has not seen. */
  readonly missing: [number, number][]
  readonly complete: boolean
  /** The notices of what the answer waits for; empty while it goes on. */
  readonly waiting: TokenEvent[]
  /** The notice that a later request ends it; null if none was heard. */
  readonly superseded: TokenEvent | null
  /** The notice that its text went into a running answer; null if none was heard. */
  readonly steered: TokenEvent | null
  take(event: TokenEvent): { cut: number | null; gap: number } | null
}

export interface Update {
  answer: Answer
  event: TokenEvent
  /** Null, or the index from which on what was shown is taken back: show `answer.text` anew. */
  cut: number | null
  /** How many tokens are missing right before this event. */
  gap: number
}

export class ReaderRule {
  constructor(options?: { remember?: number })
  readonly answers: Map<string, Answer>
  readonly dropped: { late: number; repeated: number; unusable: number }
  answer(userId: string, requestId: string): Answer | undefined
  /** Behind a gateway there are no partitions: give 0 and null. */
  read(partition: number, offset: number | string | null, event: TokenEvent): Update | null
}
