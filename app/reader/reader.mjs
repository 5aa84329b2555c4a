/**
 * The reader rule of Parley's `tokens` topic, for browsers and Node; no dependencies.
 *
 *   const rule = new ReaderRule()
 *   const update = rule.read(partition, offset, JSON.parse(record.value))
 *   if (update) show(update.answer.text, update.answer.end)
 *
 * Records come from a read_committed consumer, in the order of each partition. Behind the gateway's SSE there are no
 * partitions: give 0 and null. `read` answers what the record changes:
 *
 *   answer   {userId, requestId, conversationId, text, reasoning, tokens, end, waiting, missing, complete,
 *            superseded, steered}
 *   event    the event itself; its `text` is what to append
 *   cut      null, or the index from which on what was shown is taken back: show `answer.text` anew
 *   gap      how many tokens are missing right before this event
 *
 * and null where it changes nothing: a fence, a late event of a former owner, something said again. A partition can
 * hold late events of a worker that has lost it without knowing it yet. Each owner begins with a `fence`, whose offset
 * is the `epoch` of all its events: the highest epoch seen counts. An offset that does not grow means that the topic
 * lost its tail or was created anew: the epochs of its partition and of the answers in it are forgotten.
 */

const MOST_WAITS = 64

/** The index after the event's tokens. */
const nextIndex = (event) => event.index + (event.tokens?.length ?? 0)

/** Whether `again` says nothing new; an owner that only repeats an end may leave out the text. */
const sameEnd = (one, again) =>
  one.type === again.type &&
  one.index === again.index &&
  one.finish_reason === again.finish_reason &&
  one.error?.code === again.error?.code &&
  one.error?.message === again.error?.message &&
  (!again.text || again.text === one.text)

/** One answer, grown event by event. */
export class Answer {
  #epoch = -1
  #position = 0
  #segments = []

  constructor(userId, requestId, conversationId = 'default', partition = -1) {
    this.partition = partition
    this.userId = userId
    this.requestId = requestId
    this.conversationId = conversationId
    /** The `done` or `error` event, once it is there. */
    this.end = null
    /** The notices of what the answer waits for; empty while it goes on. */
    this.waiting = []
    /** The notice that a later request ends it, or that its text went into a running answer; null if none was heard. */
    this.superseded = null
    this.steered = null
  }

  /** The log has lost what was read: whatever is written next is newer. */
  forgetEpoch() {
    this.#epoch = -1
  }

  get text() {
    return this.#segments.map((event) => event.text ?? '').join('') + (this.end?.text ?? '')
  }

  /** What the model has written before its text, if the two are told apart. */
  get reasoning() {
    return this.#segments.map((event) => event.reasoning ?? '').join('') + (this.end?.reasoning ?? '')
  }

  get tokens() {
    return this.#segments.flatMap((event) => event.tokens ?? [])
  }

  /** Ranges [from, to) of indexes that this reader has not seen; one that began in mid-answer lacks the beginning. */
  get missing() {
    const holes = []
    let expected = 0
    for (const event of this.end ? [...this.#segments, this.end] : this.#segments) {
      if (event.index > expected) holes.push([expected, event.index])
      expected = nextIndex(event)
    }
    return holes
  }

  get complete() {
    return this.end !== null && this.missing.length === 0
  }

  /** Append the event: {cut, gap}, or null for what was said already. */
  take(event) {
    const newer = event.epoch > this.#epoch || event.copy === true
    const { index } = event
    if (event.copy && this.#has(event)) {
      this.#epoch = Math.max(this.#epoch, event.epoch)
      return null
    }
    if (!newer && (this.end || index < this.#position)) return null
    if (this.end && sameEnd(this.end, event)) return null
    let cut = null
    // What a newer epoch contradicts was a former owner's late word.
    if (this.end || index < this.#position) cut = this.#cut(Math.min(index, this.#position))
    if (newer && index > this.#position && this.#segments.length > 0) cut = this.#cut(0)
    const gap = index - this.#position
    if (event.type === 'token') this.#segments.push(event)
    else this.end = event
    if (!event.copy) this.waiting = []
    this.#epoch = event.epoch
    this.#position = nextIndex(event)
    return { cut, gap }
  }

  /** Note what a notice says of waits, and of what other requests do to this one. */
  readNotice(event) {
    const waitId = (one) => one.notice?.details?.wait_id
    if (event.notice?.code === 'woken') this.waiting = []
    if (event.notice?.code === 'superseded') this.superseded = event
    if (event.notice?.code === 'steered') this.steered = event
    if (event.notice?.code !== 'waiting' || this.end) return
    this.waiting = [...this.waiting.filter((one) => waitId(one) !== waitId(event)), event].slice(-MOST_WAITS)
  }

  #has(event) {
    const tokens = event.tokens ?? []
    const known = this.tokens.slice(event.index, nextIndex(event))
    return nextIndex(event) <= this.#position && known.every((token, at) => token === tokens[at]) && known.length === tokens.length
  }

  #cut(index) {
    this.end = null
    while (this.#segments.length > 0 && nextIndex(this.#segments.at(-1)) > index) this.#segments.pop()
    this.#position = this.#segments.length > 0 ? nextIndex(this.#segments.at(-1)) : 0
    return this.#position
  }
}

/** The answers of all partitions that are read; the last `remember` ended ones are kept. */
export class ReaderRule {
  #ended = new Map()
  #newest = new Map()

  constructor({ remember = 10_000 } = {}) {
    this.remember = remember
    this.answers = new Map()
    this.epochs = new Map()
    this.dropped = { late: 0, repeated: 0, unusable: 0 }
  }

  /** The answer to a request, as far as it was read. */
  answer(userId, requestId) {
    return this.answers.get(JSON.stringify([userId, requestId]))
  }

  read(partition, offset, event) {
    if (offset !== null) {
      if (Number(offset) <= (this.#newest.get(partition) ?? -1)) this.#forgetEpochs(partition)
      this.#newest.set(partition, Number(offset))
    }
    const epoch = event.type === 'fence' ? Number(offset) : event.epoch
    if (epoch === undefined || epoch === null) return this.#drop('unusable')
    if (epoch < (this.epochs.get(partition) ?? -1)) return this.#drop('late')
    this.epochs.set(partition, epoch)
    return event.type === 'fence' ? null : this.#ofRequest(partition, event)
  }

  #forgetEpochs(partition) {
    this.epochs.delete(partition)
    for (const answer of this.answers.values()) if (answer.partition === partition) answer.forgetEpoch()
  }

  #drop(cause) {
    this.dropped[cause] += 1
    return null
  }

  #ofRequest(partition, event) {
    const isNotice = event.type === 'notice'
    const isKnown = ['token', 'notice', 'done', 'error'].includes(event.type)
    if (!isKnown || !event.user_id || !event.request_id) return this.#drop('unusable')
    if (!isNotice && !Number.isInteger(event.index)) return this.#drop('unusable')
    const key = JSON.stringify([event.user_id, event.request_id])
    if (!this.answers.has(key)) {
      this.answers.set(key, new Answer(event.user_id, event.request_id, event.conversation_id, partition))
    }
    const answer = this.answers.get(key)
    if (isNotice) {
      answer.readNotice(event)
      return { answer, event, cut: null, gap: 0 }
    }
    const taken = answer.take(event)
    if (taken === null) return this.#drop('repeated')
    this.#rememberEnd(key, answer)
    return { answer, event, ...taken }
  }

  #rememberEnd(key, answer) {
    this.#ended.delete(key)
    if (!answer.end) return
    this.#ended.set(key, null)
    while (this.#ended.size > this.remember) {
      const [oldest] = this.#ended.keys()
      this.#ended.delete(oldest)
      this.answers.delete(oldest)
    }
  }
}
