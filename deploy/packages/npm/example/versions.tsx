/** The versions of an answer: which is seen, of how many, and arrows to the others. */

import { useEffect, useState } from 'react'
import type { Parley, Turn } from 'parley-client'

const PAUSE_MS = 500
// An answer that nobody keeps (`store: false`, a rollback) is never among the turns.
const TRIES = 60

interface Of {
  parley: Parley
  chatId: string
  /** The answer's message, whose id is that of its request. */
  seen: string
  show: (version: Turn) => void
}

export function Versions({ parley, chatId, seen, show }: Of) {
  const [versions, setVersions] = useState<Turn[]>([])

  // An answer that was stopped is a turn once the worker has ended it.
  useEffect(() => {
    let isLeft = false
    const load = async (tries = TRIES): Promise<void> => {
      const found = await parley.versions(seen, { conversation: chatId })
      if (isLeft) return
      if (found.some((one) => one.request_id === seen)) setVersions(found)
      else if (tries > 0) setTimeout(() => void load(tries - 1), PAUSE_MS)
    }
    void load()
    return () => void (isLeft = true)
  }, [parley, chatId, seen])

  const at = versions.findIndex((one) => one.request_id === seen)
  const arrow = (name: string, sign: string, to: Turn | undefined) => (
    <button aria-label={name} disabled={to === undefined} onClick={() => to && show(to)}>{sign}</button>
  )
  if (versions.length < 2) return null
  return (
    <nav aria-label="Versions">
      {arrow('Earlier version', '‹', versions[at - 1])}
      <span>{at + 1}/{versions.length}</span>
      {arrow('Later version', '›', versions[at + 1])}
    </nav>
  )
}
