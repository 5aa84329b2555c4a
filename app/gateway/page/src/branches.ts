/**
 * The questions of a conversation, in the order of their requests. A question that was edited stands beside the one
 * that it replaces, and what was asked after an answer follows that one alone. One of each such row is shown.
 */

import { ShownAnswer } from './answer'
import type { Turn } from './api'
import { relationOf, rootOf, tail, type Relation } from './ids'
import { TurnView } from './turn'

interface Fork {
  nodes: Node[]
  shown: number
}

interface Node {
  turn: TurnView
  /** What was asked after each of its answers. */
  next: Fork[]
}

/** Of a question and the answer to it, the version that is shown: which it is, and of how many. */
export interface Chosen {
  prompt: string
  text: string
  question: [number, number]
  answer: [number, number]
  requestIds: string[]
}

const none = (): Fork => ({ nodes: [], shown: 0 })

export class Branches {
  private first: Fork = none()
  private readonly places = new Map<TurnView, { fork: Fork; node: Node }>()
  /** The last answer of each conversation. */
  private readonly newest = new Map<string, ShownAnswer>()

  /** The versions of a conversation that is not open. */
  static of(turns: Turn[]): Branches {
    const made = new Branches()
    for (const turn of turns) made.place(turn.prompt, ShownAnswer.of(turn))
    return made
  }

  /** Put an answer into the turn that its id names, or into a new one, which `begin` prepares before it is shown. */
  place(prompt: string, answer: ShownAnswer, begin: (turn: TurnView) => void = () => undefined): TurnView {
    const relation = relationOf(answer.requestId)
    const known = relation && this.all.find((turn) => turn.add(answer, relation))
    const turn = known ?? new TurnView(prompt, answer)
    if (!known) {
      begin(turn)
      const fork = this.placeOf(answer, relation)
      const node = { turn, next: [] }
      fork.shown = fork.nodes.push(node) - 1
      this.places.set(turn, { fork, node })
    }
    this.newest.set(answer.conversationId, answer)
    return turn
  }

  /** All of them, in the order of their requests. */
  get all(): TurnView[] {
    return [...this.places.keys()]
  }

  get shown(): TurnView[] {
    const turns: TurnView[] = []
    for (let fork: Fork | undefined = this.first; fork; ) {
      const node: Node | undefined = fork.nodes[fork.shown]
      if (node) turns.push(node.turn)
      fork = node?.next[node.turn.shownAt]
    }
    return turns
  }

  get chosen(): Chosen[] {
    return this.shown.map((turn) => ({
      prompt: turn.prompt,
      text: turn.text || turn.last.note,
      question: this.versions(turn),
      answer: [turn.shownAt, turn.count],
      requestIds: turn.shownAnswers.map((one) => one.requestId),
    }))
  }

  get isForked(): boolean {
    return [...this.places].some(([turn, { fork }]) => fork.nodes.length > 1 || turn.count > 1)
  }

  /** The versions of this question: which is shown, and of how many. */
  versions(turn: TurnView): [number, number] {
    const fork = this.places.get(turn)?.fork
    return fork ? [fork.shown, fork.nodes.length] : [0, 1]
  }

  /** Show the version of the question that is `step` further. */
  leaf(turn: TurnView, step: number): TurnView | undefined {
    const fork = this.places.get(turn)?.fork
    const to = (fork?.shown ?? 0) + step
    if (!fork?.nodes[to]) return undefined
    fork.shown = to
    return fork.nodes[to].turn
  }

  /** Show the versions that lead to the answer of this request; its turn. */
  reveal(requestId: string, fork: Fork = this.first): TurnView | undefined {
    for (const [at, { turn, next }] of fork.nodes.entries()) {
      const own = turn.show(tail(requestId)) ? turn : undefined
      const found = own ?? next.map((one, variant) => [this.reveal(requestId, one), variant] as const).find(([one]) => one)
      if (!found) continue
      fork.shown = at
      if (found instanceof TurnView) return found
      turn.showAt(found[1])
      return found[0]
    }
    return undefined
  }

  private placeOf(answer: ShownAnswer, relation: Relation | null): Fork {
    const before = this.newest.get(answer.conversationId) ?? this.newest.get(rootOf(answer.conversationId))
    const named = relation && this.all.find((turn) => turn.variantOf(relation.of) >= 0)
    const place = named && this.places.get(named)
    if (place && relation.kind === 'edit') return place.fork
    return place && relation.kind === 'after' ? this.nextOf(place.node, relation.of) : this.behind(before)
  }

  private behind(answer: ShownAnswer | undefined): Fork {
    if (!answer) return this.first
    const of = tail(answer.requestId)
    const place = [...this.places.values()].find(({ node }) => node.turn.variantOf(of) >= 0)
    return place ? this.nextOf(place.node, of) : this.first
  }

  private nextOf(node: Node, of: string): Fork {
    const variant = node.turn.variantOf(of)
    for (let at = node.next.length; at <= variant; at++) node.next.push(none())
    return node.next[variant] ?? this.first
  }
}
