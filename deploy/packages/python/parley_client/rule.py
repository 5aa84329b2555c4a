"""The reader rule: which records of `tokens` count.

A partition can hold late events of a worker that has lost it without knowing it yet. Each owner begins with a `fence`,
whose offset is the `epoch` of all its events: the highest epoch seen counts. An offset that does not grow means that
the topic lost its tail or was created anew: the epochs of its partition and of the answers in it are forgotten.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from parley_client.answer import Answer, Event, Update

_OF_REQUESTS = frozenset({"token", "notice", "done", "error"})


@dataclass(slots=True)
class Dropped:
    """How many records were dropped, by cause."""

    late: int = 0
    repeated: int = 0
    unusable: int = 0


@dataclass(slots=True)
class ReaderRule:
    """The answers of all partitions that are read; the last `remember` ended ones are kept."""

    remember: int = 10_000
    answers: dict[tuple[str, str], Answer] = field(default_factory=dict)
    dropped: Dropped = field(default_factory=Dropped)
    _epochs: dict[int, int] = field(default_factory=dict)
    _newest: dict[int, int] = field(default_factory=dict)
    _ended: OrderedDict[tuple[str, str], None] = field(default_factory=OrderedDict)

    def read(self, partition: int, offset: int | None, event: Event) -> Update | None:
        """What the record changes, None if that is nothing. Events of a gateway have the partition 0 and no offset."""
        if offset is not None:
            if offset <= self._newest.get(partition, -1):
                self._forget_epochs(partition)
            self._newest[partition] = offset
        epoch = offset if event.get("type") == "fence" else event.get("epoch")
        if epoch is None:
            self.dropped.unusable += 1
            return None
        if epoch < self._epochs.get(partition, -1):
            self.dropped.late += 1
            return None
        self._epochs[partition] = epoch
        return None if event["type"] == "fence" else self._of_request(partition, event)

    def _forget_epochs(self, partition: int) -> None:
        self._epochs.pop(partition, None)
        for answer in self.answers.values():
            if answer.partition == partition:
                answer.epoch = -1

    def _of_request(self, partition: int, event: Event) -> Update | None:
        user, request, is_notice = event.get("user_id"), event.get("request_id"), event["type"] == "notice"
        if not user or not request or event["type"] not in _OF_REQUESTS or not (is_notice or "index" in event):
            self.dropped.unusable += 1
            return None
        key = (user, request)
        answer = self.answers.setdefault(
            key, Answer(user, request, event.get("conversation_id") or "default", partition)
        )
        if is_notice:
            return Update(answer, event)
        change = answer.append(event)
        if change is None:
            self.dropped.repeated += 1
            return None
        self._remember_end(key, answer)
        return Update(answer, event, *change)

    def _remember_end(self, key: tuple[str, str], answer: Answer) -> None:
        self._ended.pop(key, None)
        if answer.end is None:
            return
        self._ended[key] = None
        while len(self._ended) > self.remember:
            oldest, _ = self._ended.popitem(last=False)
            self.answers.pop(oldest, None)
