"""The reader rule: from the records of `tokens` to answers without gaps or duplicates and with one end each.

A partition of `tokens` can contain late events of a worker that has lost the partition and does not know it yet. Each
owner begins with a `fence`, whose offset is the `epoch` of all its events. Therefore, per partition, the highest epoch
seen counts, and events of lower epochs are dropped; per request, events are appended. This module does no I/O: the
Kafka reader, the gateway and the tests use it, and `reader.mjs` is the same in JavaScript.

Offsets of a partition increase, unless the topic lost its tail (an unclean election) or was created anew. Then the
epochs seen belong to a log that no longer exists, and would make a reader drop everything. An offset that does not
increase therefore makes the rule forget the epochs of the partition and of its answers.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from app.reader.answer import Answer
from app.wire.event import EventType, TokenEvent
from app.wire.request import DEFAULT_CONVERSATION

Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Update:
    """The effect of one record.

    `cut`: the text from this index on is retracted; display `answer.text` anew. `gap`: this many tokens are missing
    right before this event.
    """

    answer: Answer
    event: TokenEvent
    cut: int | None = None
    gap: int = 0

    @property
    def text(self) -> str:
        """The text to append."""
        return self.event.text or ""


@dataclass(slots=True)
class Dropped:
    """How many records the rule has dropped, by cause."""

    late: int = 0
    repeated: int = 0
    unusable: int = 0


@dataclass(slots=True)
class ReaderRule:
    """The answers of all partitions that are read. The last `remember` ended ones are kept."""

    remember: int = 10_000
    answers: dict[Key, Answer] = field(default_factory=dict)
    epochs: dict[int, int] = field(default_factory=dict)
    dropped: Dropped = field(default_factory=Dropped)
    _ended: OrderedDict[Key, None] = field(default_factory=OrderedDict)
    _newest: dict[int, int] = field(default_factory=dict)

    def read(self, partition: int, offset: int, event: TokenEvent) -> Update | None:
        """Read the next record of a partition; None if it changes no answer."""
        if offset <= self._newest.get(partition, -1):
            self._forget_epochs(partition)
        self._newest[partition] = offset
        epoch = offset if event.type is EventType.FENCE else event.epoch
        if epoch is None:
            self.dropped.unusable += 1
            return None
        if epoch < self.epochs.get(partition, -1):
            self.dropped.late += 1
            return None
        self.epochs[partition] = epoch
        return None if event.type is EventType.FENCE else self._of_request(partition, event, epoch)

    def _forget_epochs(self, partition: int) -> None:
        self.epochs.pop(partition, None)
        for answer in self.answers.values():
            if answer.partition == partition:
                answer.epoch = -1

    def _of_request(self, partition: int, event: TokenEvent, epoch: int) -> Update | None:
        is_notice = event.type is EventType.NOTICE
        if event.user_id is None or event.request_id is None or (event.index is None and not is_notice):
            self.dropped.unusable += 1
            return None
        key = (event.user_id, event.request_id)
        answer = self.answers.get(key)
        if answer is None:
            answer = Answer(*key, event.conversation_id or DEFAULT_CONVERSATION, partition=partition)
            self.answers[key] = answer
        if is_notice:
            return Update(answer, event)
        change = answer.append(event, event.index or 0, epoch)
        if change is None:
            self.dropped.repeated += 1
            return None
        self._remember_end(key, answer)
        return Update(answer, event, *change)

    def adopt(self, answer: Answer) -> None:
        """Add an answer that another reader has built from the same records."""
        key = (answer.user_id, answer.request_id)
        self.answers[key] = answer
        self._remember_end(key, answer)

    def forget(self, key: Key) -> None:
        """Drop an answer early; a later event begins it anew, with a gap."""
        self.answers.pop(key, None)
        self._ended.pop(key, None)

    def _remember_end(self, key: Key, answer: Answer) -> None:
        if answer.end is None:
            self._ended.pop(key, None)
            return
        self._ended[key] = None
        self._ended.move_to_end(key)
        while len(self._ended) > self.remember:
            oldest, _ = self._ended.popitem(last=False)
            self.answers.pop(oldest)
