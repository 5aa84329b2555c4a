/** What can be done with a conversation: another title, a file of it, off the list, deleted; and the erasure of all. */

import { deleteConversation, erase, versionsOf, type Turn } from './api'
import { Branches, type Chosen } from './branches'
import { byId } from './dom'
import { relationOf, tail } from './ids'
import type { Row } from './list'
import { deleted, erased, list } from './store'
import { ofFailure, ofUndone } from './words'

const versionOf = ([at, of]: [number, number]): string => (of > 1 ? ` (version ${at + 1} of ${of})` : '')

function markdownOf(title: string, turns: Chosen[]): string {
  const parts = turns.map(
    ({ prompt, text, question, answer }) =>
      `## You${versionOf(question)}\n\n${prompt}\n\n## Answer${versionOf(answer)}\n\n${text.trim()}\n`,
  )
  return [`# ${title}\n`, ...parts].join('\n')
}

const RELATIONS = { again: 'answers_again', more: 'continues', edit: 'edits', after: 'follows' } as const

/** All versions; one that stands in the place of another names it, and those that are `shown` say so. */
function jsonOf(conversation_id: string, title: string, all: Turn[], chosen: Chosen[]): string {
  const shown = new Set(chosen.flatMap((one) => one.requestIds))
  const turns = all.map((turn) => ({ ...turn, shown: shown.has(turn.request_id) }))
  const related = turns.map((turn) => {
    const relation = relationOf(turn.request_id)
    const other = relation && turns.find((one) => tail(one.request_id) === relation.of)
    return relation && other ? { ...turn, [RELATIONS[relation.kind]]: other.request_id } : turn
  })
  return JSON.stringify({ conversation_id, title, turns: related }, null, 2)
}

function save(name: string, type: string, text: string): void {
  const link = document.createElement('a')
  link.href = URL.createObjectURL(new Blob([text], { type }))
  link.download = name
  link.click()
  // The browser reads it after the click.
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000)
}

const fileName = (title: string): string => title.replace(/[^\p{L}\p{N}]+/gu, '-').replace(/^-|-$/g, '').slice(0, 60) || 'conversation'

export class Options {
  private readonly dialog = byId<HTMLDialogElement>('options')
  private readonly deleting = byId<HTMLDialogElement>('deleting')
  private readonly erasing = byId<HTMLDialogElement>('erasing')
  private readonly title = byId<HTMLInputElement>('title')
  private readonly told = byId('options-told')
  private row: Row = { id: '', title: '', at: 0 }

  constructor(
    /** What is shown of a conversation, if it is open. */
    private readonly chosen: (id: string) => Chosen[] | null,
    private readonly changed: () => void,
    /** A conversation is off the list; without an id, all are. */
    private readonly removed: (id?: string) => void,
  ) {
    byId('rename').addEventListener('submit', () => this.rename())
    byId('export-markdown').addEventListener('click', () => void this.export('md'))
    byId('export-json').addEventListener('click', () => void this.export('json'))
    byId('remove').addEventListener('click', () => this.remove())
    byId('delete').addEventListener('click', () => this.confirm(this.deleting, 'delete-told'))
    byId('keep-it').addEventListener('click', () => this.deleting.close())
    byId('delete-now').addEventListener('click', () => void this.delete())
    byId('close-options').addEventListener('click', () => this.dialog.close())
    byId('erase').addEventListener('click', () => this.confirm(this.erasing, 'erase-told'))
    byId('keep').addEventListener('click', () => this.erasing.close())
    byId('erase-now').addEventListener('click', () => void this.erase())
  }

  open(row: Row): void {
    this.row = row
    this.title.value = byId('delete-title').textContent = row.title
    this.told.textContent = ''
    this.dialog.showModal()
    this.title.select()
  }

  private rename(): void {
    const title = this.title.value.trim()
    if (title) list(this.row.id, { title })
    this.changed()
  }

  private async export(kind: 'md' | 'json'): Promise<void> {
    this.told.textContent = ''
    try {
      const turns = await versionsOf(this.row.id)
      const { id, title } = this.row
      const chosen = this.chosen(id) ?? Branches.of(turns).chosen
      if (kind === 'json') save(`${fileName(title)}.json`, 'application/json', jsonOf(id, title, turns, chosen))
      else save(`${fileName(title)}.md`, 'text/markdown', markdownOf(title, chosen))
    } catch (error) {
      this.told.textContent = ofFailure(error)
    }
  }

  private remove(): void {
    list(this.row.id, { removedAt: Date.now() })
    this.dialog.close()
    this.removed(this.row.id)
  }

  private confirm(question: HTMLDialogElement, told: string): void {
    this.dialog.close()
    byId(told).textContent = ''
    question.showModal()
  }

  private async delete(): Promise<void> {
    const { id } = this.row
    await this.carryOut(this.deleting, 'delete-told', async () => {
      await deleteConversation(id)
      deleted(id)
      this.removed(id)
    })
  }

  private async erase(): Promise<void> {
    await this.carryOut(this.erasing, 'erase-told', async () => {
      await erase()
      erased()
      this.removed()
    })
  }

  /** The question stays open with the reason if it could not be done. */
  private async carryOut(question: HTMLDialogElement, told: string, work: () => Promise<void>): Promise<void> {
    byId(told).textContent = ''
    try {
      await work()
      question.close()
    } catch (error) {
      byId(told).textContent = ofUndone(error)
    }
  }
}

