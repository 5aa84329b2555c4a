/** The gateway refuses the call; `code` and `param` as in OpenAI's API. */
export class RefusedError extends Error {
  override name = 'RefusedError'
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly param: string | null = null,
  ) {
    super(message)
  }
}

/** The answer has ended with an `error` event. */
export class AnswerFailedError extends Error {
  override name = 'AnswerFailedError'
  constructor(
    readonly code: string,
    message: string,
  ) {
    super(message)
  }
}

/** Nothing was heard for as long as the client is patient. The answer may go on: follow its request id later. */
export class UnreachableError extends Error {
  override name = 'UnreachableError'
}
