"""The verdict on erasures, of users and of conversations: what was to be erased, since when, and what is left of it."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from app.wire.codec import FORWARDED, decode
from app.wire.erasure import Erasure
from app.wire.event import Plan, RecalledTurn
from app.wire.ids import partition_for
from app.wire.turn import Turn
from tables.records import Conversation, Erased, Table, decode_row, key_parts
from tables.store import PartitionStore
from tests.faults.records import Key
from tests.simulation.broker import Entry

About = tuple[str, str | None]
"""A user, and one conversation or all of them."""


@dataclass(slots=True)
class Erasures:
    """Of one run. Times are Unix milliseconds.

    at: The last erasure of each.
    marked: When its mark was committed.
    asked: When each request was sent.
    conversations: The conversation of each request.
    """

    at: dict[About, int]
    marked: dict[About, int]
    asked: Mapping[Key, int]
    conversations: Mapping[Key, tuple[str, str]]

    def touch(self, user: str, conversation: str | None) -> bool:
        return not self.at.keys().isdisjoint({(user, None), (user, conversation)})

    def touch_request(self, key: Key) -> bool:
        return self.touch(*self.conversations.get(key, (key[0], None)))

    def stood_at(self, user: str, conversation: str) -> float | None:
        """When the last mark stood that is about the conversation; None if nothing of it was erased."""
        about = self.at.keys() & {(user, None), (user, conversation)}
        return max((self.marked.get(one, math.inf) for one in about), default=None)

    def until(self, user: str, conversation: str) -> int:
        """Up to when its turns are erased; 0 if they are not."""
        return max(self.at.get((user, None), 0), self.at.get((user, conversation), 0))

    def has_met(self, user: str, turn: RecalledTurn) -> bool:
        return turn.asked_at <= self.until(user, turn.conversation_id)

    def marked_at(self, key: Key) -> int:
        """When the last mark stood that is about the request; -1 if there is none."""
        return max((self.marked.get(about, -1) for about in self._about(key)), default=-1)

    def marked_for(self, user: str) -> int:
        """The same for anything of the user."""
        return max((at for (one, _), at in self.marked.items() if one == user), default=-1)

    def that_met(self, key: Key) -> list[About]:
        """The erasures that are younger than the request."""
        asked = self.asked.get(key, 0)
        return [about for about in self._about(key) if asked <= self.at.get(about, -1)]

    def _about(self, key: Key) -> tuple[About, About]:
        return (key[0], None), self.conversations.get(key, (key[0], None))

    def quoted(
        self, plans: Mapping[Key, Plan], recalled: Mapping[Key, Iterable[RecalledTurn]], sent: Mapping[Key, int]
    ) -> Iterator[str]:
        """Answers that repeat, or have recalled, what an erasure had met when they were asked for."""
        for (user, request_id), plan in plans.items():
            sources = [plan.cached, *(one.request_id for one in recalled[user, request_id])]
            yield from self._told((user, request_id), [one for one in sources if one], sent)

    def read(self, prompts: Mapping[Key, Iterable[str]], sent: Mapping[Key, int]) -> Iterator[str]:
        """The same of what stood in the prompts of models, by the requests whose questions they have."""
        for key, questions in prompts.items():
            yield from self._told(key, questions, sent)

    def quoting(self, turns: Iterable[Turn], read: Mapping[Key, Iterable[str]]) -> Iterator[str]:
        """Turns with the text of an answer to a prompt that had what is erased, once the mark stands in the table."""
        for turn in turns:
            key = (turn.user_id, turn.request_id)
            for source in read.get(key, ()) if turn.answer else ():
                met = {*self.that_met((key[0], source))} & {*self._about(key)}
                if source != key[1] and any(turn.created_at > self.marked.get(about, -1) for about in met):
                    yield f"{met} are erased, and the turn of {key} may quote {source}"

    def _told(self, key: Key, sources: Iterable[str], sent: Mapping[Key, int]) -> Iterator[str]:
        for source in sources:
            met = self.that_met((key[0], source)) if source != key[1] else []
            if any(sent[key] > self.marked.get(about, -1) for about in met):
                yield f"{key} uses {source}, which {met} have erased"

    def kept(self, turns: Iterable[Turn], stores: Iterable[PartitionStore]) -> Iterator[str]:
        """What is left of requests that were sent before an erasure, once its mark stands in the table."""
        yield from (f"{about} is erased and has no mark" for about in self.at.keys() - self.marked.keys())
        for turn in turns:
            met = self.that_met((turn.user_id, turn.request_id))
            if turn.answer and any(turn.created_at > self.marked.get(about, -1) for about in met):
                yield f"{met} are erased and the turn of {turn.request_id} has text"
        for store in stores:
            for key, value in store.scan(Table.CONVERSATIONS):
                user, conversation = key_parts(key)
                if self.touch(user, conversation):
                    row, until = decode_row(value, Conversation), self.until(user, conversation)
                    copied = () if row.origin is None or row.origin.at <= until else row.origin.turns
                    for turn in row.turns:
                        if turn.request_id not in copied and self.asked.get((user, turn.request_id), -1) <= until:
                            yield f"{user}/{conversation} is erased and {turn.request_id} is remembered"

    def wrong_for_sinks(self, entries: Sequence[Entry]) -> Iterator[str]:
        """Sinks need each erasure once."""
        records = [decode(Erasure, entry.value, entry.headers) for entry in entries]
        counts = Counter((record.user_id, record.conversation_id, record.erased_at) for record in records)
        told: dict[About, int] = {}
        for user, conversation, at in counts:
            told[user, conversation] = max(at, told.get((user, conversation), -1))
        for about, at in self.at.items():
            if told.get(about, -1) < at:
                yield f"{about} is erased and sinks do not know"
        yield from (
            f"the erasure of {key} is on `erasures` {count} times" for key, count in counts.items() if count > 1
        )


@dataclass(slots=True)
class Marked:
    """From the records of a run to its erasures."""

    partitions: int
    at: dict[About, int] = field(default_factory=dict)
    marked: dict[About, int] = field(default_factory=dict)

    def read_controls(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            control = json.loads(entry.value or b"")
            if control["type"] in {"erase", "erase_conversation"} and FORWARDED not in dict(entry.headers):
                about = (control["user_id"], control.get("conversation_id"))
                self.at[about] = max(entry.timestamp, self.at.get(about, 0))

    def read_marks(self, entries: Iterable[Entry]) -> None:
        """The changelog of the table `erased`, once the controls are read."""
        for entry in entries:
            about = _about(entry.key or b"")
            number = partition_for(about[0], self.partitions)
            if entry.value and entry.partition == number and decode_row(entry.value, Erased).at >= self.at[about]:
                self.marked.setdefault(about, entry.timestamp)


def _about(key: bytes) -> About:
    match key_parts(key):
        case (user,):
            return user, None
        case ("", user, conversation):
            return user, conversation
    raise AssertionError(f"{key!r} is the key of no mark")
