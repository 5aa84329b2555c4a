/**
 * The questions of a conversation, in the order of their requests. A question that was edited stands beside the one
 * that it replaces, and what was asked after one of them follows that one alone. One of each such row is shown.
 */

import { ShownAnswer } from './answer'
import type { Turn } from './api'
import { relationOf, type Relation } from './ids'
import { TurnView } from './turn'

interface Fork {
  nodes: Node[]
  shown: number
}

interface Node {
  turn: TurnView
  next: Fork
}

export class Branches {
  private first: Fork = { nodes: [], shown: 0 }
  private readonly places = new Map<TurnView, Fork>()
  private newest: Fork = this.first

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
    if (known) return known
    const turn = new TurnView(prompt, answer)
    begin(turn)
    this.add(turn, relation)
    return turn
  }

  private add(turn: TurnView, relation: Relation | null): void {
    const fork = this.placeOf(relation)
    const node: Node = { turn, next: { nodes: [], shown: 0 } }
    fork.shown = fork.nodes.push(node) - 1
    this.places.set(turn, fork)
    this.newest = node.next
  }

  /** All of them, in the order of their requests. */
  get all(): TurnView[] {
    return [...this.places.keys()]
  }

  get shown(): TurnView[] {
    const turns: TurnView[] = []
    for (let node = this.first.nodes[this.first.shown]; node; node = node.next.nodes[node.next.shown]) turns.push(node.turn)
    return turns
  }

  get isForked(): boolean {
    return [...this.places.values()].some((fork) => fork.nodes.length > 1)
  }

  /** The versions of this question: which is shown, and of how many. */
  versions(turn: TurnView): [number, number] {
    const fork = this.places.get(turn)
    return fork ? [fork.shown, fork.nodes.length] : [0, 1]
  }

  /** Show the version of the question that is `step` further. */
  leaf(turn: TurnView, step: number): TurnView | undefined {
    const fork = this.places.get(turn)
    const to = (fork?.shown ?? 0) + step
    if (!fork?.nodes[to]) return undefined
    fork.shown = to
    return fork.nodes[to].turn
  }

  /** Show the versions that lead to this question. */
  reveal(turn: TurnView, fork: Fork = this.first): boolean {
    const at = fork.nodes.findIndex((node) => node.turn === turn || this.reveal(turn, node.next))
    if (at >= 0) fork.shown = at
    return at >= 0
  }

  private placeOf(relation: Relation | null): Fork {
    const named = relation && this.all.find((turn) => turn.isNamed(relation.of))
    const fork = named && this.places.get(named)
    if (!fork) return this.newest
    return relation.kind === 'edit' ? fork : (fork.nodes.find((node) => node.turn === named)?.next ?? this.newest)
  }
}
