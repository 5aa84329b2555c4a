"""The reader rule: from the records of `tokens` to answers without gaps or duplicates and with one end each.

A partition of `tokens` can hold late events of a worker that has lost it without knowing it yet. Each owner begins with
a `fence`, whose offset is the `epoch` of all its events. Therefore, per partition, the highest epoch seen counts, and
events of lower epochs are dropped; per request, events are appended. There is no I/O here: the clients, Parley's own
readers, gateways and workers use it, and `app/reader/reader.mjs` is the same in JavaScript.

Offsets of a partition increase, unless the topic lost its tail (an unclean election) or was created anew. Then the
epochs seen belong to a log that no longer exists, and would make a reader drop everything. An offset that does not
increase therefore makes the rule forget the epochs of the partition and of its answers.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar, cast

_OF_REQUESTS = frozenset({"token", "notice", "done", "error"})
_SHOWN = 60
_MOST_WAITS = 64

Key = tuple[str, str]
"""User and request."""


class EventFields(Protocol):
    """What the rule reads of an event."""

    @property
    def type(self) -> str: ...
    @property
    def user_id(self) -> str | None: ...
    @property
    def request_id(self) -> str | None: ...
    @property
    def conversation_id(self) -> str | None: ...
    @property
    def index(self) -> int | None: ...
    @property
    def epoch(self) -> int | None: ...
    @property
    def tokens(self) -> Sequence[int] | None: ...
    @property
    def text(self) -> str | None: ...
    @property
    def reasoning(self) -> str | None: ...
    @property
    def finish_reason(self) -> str | None: ...
    @property
    def error(self) -> Any: ...
    @property
    def notice(self) -> Any: ...


_FIELDS = frozenset(name for name in vars(EventFields) if not name.startswith("_"))


class Event(dict[str, Any]):
    """A record of `tokens`, as JSON has it; its fields are in Parley's app/wire/README.md."""

    def __getattr__(self, name: str) -> Any:
        if name in _FIELDS:
            return self.get(name)
        raise AttributeError(name)


E = TypeVar("E", bound=EventFields)


def next_index(event: EventFields) -> int:
    """The index after the event's tokens."""
    return (event.index or 0) + len(event.tokens or ())


@dataclass(slots=True, repr=False)
class Answer(Generic[E]):
    """The events that the rule has accepted.

    `position` is the index at which the next event is expected, `epoch` that of the last accepted event, `partition`
    where it is. `waiting` has the notices of what the answer waits for; it is empty while the answer goes on.
    `superseded` is the notice that a later request ends it (`by`, `rolled_back`), `steered` that its own text went into
    a running answer (`into`); None if none was heard.
    """

    user_id: str
    request_id: str
    conversation_id: str = "default"
    partition: int = -1
    epoch: int = -1
    position: int = 0
    segments: list[E] = field(default_factory=list)
    end: E | None = None
    waiting: tuple[E, ...] = ()
    superseded: E | None = None
    steered: E | None = None

    def __repr__(self) -> str:
        """One line; the events may have thousands."""
        text = self.text if len(self.text) <= _SHOWN else f"{self.text[:_SHOWN]}..."
        how = "under way" if self.end is None else self.end.finish_reason or self.end.type
        return f"Answer(request_id={self.request_id!r}, text={text!r}, {how}, {self.position} tokens)"

    @property
    def events(self) -> tuple[E, ...]:
        return (*self.segments, *([] if self.end is None else [self.end]))

    @property
    def text(self) -> str:
        return "".join(event.text or "" for event in self.events)

    @property
    def reasoning(self) -> str:
        """What the model wrote before its text; empty if its reasoning is part of the text."""
        return "".join(event.reasoning or "" for event in self.events)

    @property
    def tokens(self) -> tuple[int, ...]:
        return tuple(token for segment in self.segments for token in segment.tokens or ())

    @property
    def missing(self) -> tuple[tuple[int, int], ...]:
        """Ranges of indexes that this reader has not seen; a reader that began in the middle of the answer lacks its
        beginning.
        """
        holes, expected = [], 0
        for event in self.events:
            index = event.index or 0
            if index > expected:
                holes.append((expected, index))
            expected = next_index(event)
        return tuple(holes)

    @property
    def complete(self) -> bool:
        return self.end is not None and not self.missing

    def append(self, event: E) -> tuple[int | None, int] | None:
        """Append the event. Returns where the answer was cut before that, if at all, and how many tokens are missing.

        Returns None for a duplicate. An event of a higher epoch was written by an owner that knows which events precede
        its fence. If it contradicts accepted events, those are late events of a former owner, which only a reader that
        began after the fence can have accepted: tokens from its index on, an end, or, if it leaves a gap, everything
        accepted since. A copy of tokens that are here changes the epoch alone; any other replaces what is here.
        """
        index, epoch = event.index or 0, event.epoch or 0
        is_copy = _is_copy(event)
        newer = epoch > self.epoch or is_copy
        if is_copy and self._has(event, index):
            self.epoch = max(self.epoch, epoch)
            return None
        if not newer and (self.end is not None or index < self.position):
            return None
        if self.end is not None and _same_end(self.end, event):
            return None
        cut = None
        if self.end is not None or index < self.position:
            cut = self._cut(min(index, self.position))
        if newer and index > self.position and self.segments:
            cut = self._cut(0)
        gap = index - self.position
        if event.type == "token":
            self.segments.append(event)
        else:
            self.end = event
        if not is_copy:
            self.waiting = ()
        self.epoch, self.position = epoch, next_index(event)
        return cut, gap

    def read_notice(self, notice: E) -> None:
        """Note what a notice says of waits, and of what other requests do to this one."""
        code, wait_id = _wait_in(notice)
        if code == "woken":
            self.waiting = ()
        elif code == "waiting" and self.end is None:
            others = (one for one in self.waiting if _wait_in(one)[1] != wait_id)
            self.waiting = (*others, notice)[-_MOST_WAITS:]
        elif code == "superseded":
            self.superseded = notice
        elif code == "steered":
            self.steered = notice

    def _has(self, event: E, index: int) -> bool:
        known = self.tokens[index : next_index(event)]
        return next_index(event) <= self.position and known == tuple(event.tokens or ())

    def _cut(self, index: int) -> int:
        self.end = None
        while self.segments and next_index(self.segments[-1]) > index:
            self.segments.pop()
        self.position = next_index(self.segments[-1]) if self.segments else 0
        return self.position


def _is_copy(event: EventFields) -> bool:
    """Whether the event repeats what was said before. A `dict` has a method of this name."""
    return bool(event.get("copy") if isinstance(event, dict) else getattr(event, "copy", False))


def _wait_in(notice: EventFields) -> tuple[Any, Any]:
    """The code of a notice, and the id of the wait that it names."""
    said = notice.notice or {}
    code, details = (said.get("code"), said.get("details")) if isinstance(said, dict) else (said.code, said.details)
    return code, (details or {}).get("wait_id")


def _same_end(one: EventFields, again: EventFields) -> bool:
    """Whether `again` says nothing new; an owner that only repeats an end may omit the text."""
    same_text = not again.text or again.text == one.text
    return same_text and (one.type, one.index, one.finish_reason, one.error) == (
        again.type,
        again.index,
        again.finish_reason,
        again.error,
    )


@dataclass(frozen=True, slots=True)
class Update(Generic[E]):
    """The effect of one record.

    `cut`: the text from this index on is retracted; display `answer.text` anew. `gap`: this many tokens are missing
    right before this event.
    """

    answer: Answer[E]
    event: E
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
class ReaderRule(Generic[E]):
    """The answers of all partitions that are read. The last `remember` ended ones are kept."""

    remember: int = 10_000
    answers: dict[Key, Answer[E]] = field(default_factory=dict)
    epochs: dict[int, int] = field(default_factory=dict)
    dropped: Dropped = field(default_factory=Dropped)
    _ended: OrderedDict[Key, None] = field(default_factory=OrderedDict)
    _newest: dict[int, int] = field(default_factory=dict)

    def read(self, partition: int, offset: int | None, record: E | dict[str, Any]) -> Update[E] | None:
        """Read the next record of a partition; None if it changes no answer. Events of a gateway have no offset. A
        plain dict, as JSON has it, becomes an `Event`.
        """
        event = cast("E", Event(record) if type(record) is dict else record)
        if offset is not None:
            if offset <= self._newest.get(partition, -1):
                self._forget_epochs(partition)
            self._newest[partition] = offset
        epoch = offset if event.type == "fence" else event.epoch
        if epoch is None:
            self.dropped.unusable += 1
            return None
        if epoch < self.epochs.get(partition, -1):
            self.dropped.late += 1
            return None
        self.epochs[partition] = epoch
        return None if event.type == "fence" else self._of_request(partition, event)

    def _forget_epochs(self, partition: int) -> None:
        self.epochs.pop(partition, None)
        for answer in self.answers.values():
            if answer.partition == partition:
                answer.epoch = -1

    def _of_request(self, partition: int, event: E) -> Update[E] | None:
        is_notice = event.type == "notice"
        user_id, request_id = event.user_id, event.request_id
        is_usable = event.type in _OF_REQUESTS and (is_notice or event.index is not None)
        if not is_usable or user_id is None or request_id is None:
            self.dropped.unusable += 1
            return None
        key = (user_id, request_id)
        answer = self.answers.get(key)
        if answer is None:
            answer = self.answers[key] = Answer(*key, event.conversation_id or "default", partition)
        if is_notice:
            answer.read_notice(event)
            return Update(answer, event)
        change = answer.append(event)
        if change is None:
            self.dropped.repeated += 1
            return None
        self._remember_end(key, answer)
        return Update(answer, event, *change)

    def adopt(self, answer: Answer[E]) -> None:
        """Add an answer that another reader has built from the same records."""
        key = (answer.user_id, answer.request_id)
        self.answers[key] = answer
        self._remember_end(key, answer)

    def forget(self, key: Key) -> None:
        """Drop an answer early; a later event begins it anew, with a gap."""
        self.answers.pop(key, None)
        self._ended.pop(key, None)

    def _remember_end(self, key: Key, answer: Answer[E]) -> None:
        self._ended.pop(key, None)
        if answer.end is None:
            return
        self._ended[key] = None
        while len(self._ended) > self.remember:
            oldest, _ = self._ended.popitem(last=False)
            self.answers.pop(oldest, None)
