declare module '*/reader.mjs' {
  export interface NoticeDetails {
    calls?: { id: string; name: string; arguments: string }[]
    results?: { tool_call_id: string; content: string }[]
    attempt?: number
    kind?: string
    wait_id?: string
    by?: string
    rolled_back?: boolean
    into?: string
  }
  export interface TokenEvent {
    type: 'token' | 'notice' | 'done' | 'error'
    request_id: string
    user_id: string
    index: number
    epoch?: number
    timestamp?: number
    tokens?: number[]
    text?: string
    copy?: boolean
    reasoning?: string
    model_version?: string
    finish_reason?: string
    usage?: { prompt_tokens: number; completion_tokens: number; cached_tokens: number }
    error?: { code: string; message: string }
    tool_calls?: { id: string; name: string; arguments: string }[]
    notice?: { code: string; message: string; details?: NoticeDetails }
  }
  export class Answer {
    constructor(userId: string, requestId: string, conversationId?: string)
    readonly text: string
    readonly reasoning: string
    readonly tokens: number[]
    readonly end: TokenEvent | null
    readonly waiting: TokenEvent[]
    readonly steered: TokenEvent | null
    readNotice(event: TokenEvent): void
    take(event: TokenEvent): { cut: number | null; gap: number } | null
  }
}
