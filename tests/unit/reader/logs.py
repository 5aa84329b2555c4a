"""Logs of a `tokens` partition as owners, their successors and zombies can write them."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import strategies as st

from app.wire.event import EventType, TokenEvent
from models.interface.generation import FinishReason, Usage

USER = "ann"
REQUESTS = ("r0", "r1")
LENGTH = 8
Log = list[tuple[int, TokenEvent]]


@dataclass
class Owner:
    """One ownership of the partition, with what it believes was written."""

    epoch: int
    written: dict[str, int]
    ended: dict[str, TokenEvent]


@dataclass
class Partition:
    """The log, and the answers that the owners in office have given."""

    log: Log = field(default_factory=list)
    owners: list[Owner] = field(default_factory=list)
    truth: dict[str, list[int]] = field(default_factory=lambda: {name: [] for name in REQUESTS})
    true_ends: dict[str, TokenEvent] = field(default_factory=dict)
    last_true: dict[str, int] = field(default_factory=dict)
    next_offset: int = 0

    def append(self, event: TokenEvent, hole: int = 0) -> int:
        offset = self.next_offset + hole
        self.log.append((offset, event))
        self.next_offset = offset + 1
        return offset

    def take_over(self) -> None:
        offset = self.append(TokenEvent(type=EventType.FENCE), hole=1)
        former = self.owners[-1] if self.owners else Owner(-1, dict.fromkeys(REQUESTS, 0), {})
        self.owners.append(Owner(offset, dict(former.written), dict(former.ended)))

    def speak(self, owner: Owner, request: str, count: int) -> None:
        """Say the next tokens; a zombie's have a mark, so that a mix shows."""
        if request in owner.ended:
            return
        at = owner.written[request]
        count = min(count, LENGTH - at)
        if count == 0:
            self.finish(owner, request)
            return
        in_office = owner is self.owners[-1]
        tokens = tuple((0 if in_office else 1000) + at + i for i in range(count))
        offset = self.append(self.event(owner, request, EventType.TOKEN, tokens=tokens, text=_text(tokens)))
        owner.written[request] = at + count
        if in_office:
            self.truth[request] += tokens
            self.last_true[request] = offset

    def finish(self, owner: Owner, request: str) -> None:
        in_office = owner is self.owners[-1]
        if request in owner.ended:
            if in_office:
                again = owner.ended[request]
                self.append(self.event(owner, request, EventType.DONE, again.finish_reason, index=again.index))
            return
        reason = FinishReason.STOP if in_office else FinishReason.CANCELLED
        end = self.event(owner, request, EventType.DONE, reason)
        offset = self.append(end)
        owner.ended[request] = end
        if in_office:
            self.true_ends[request] = end
            self.last_true[request] = offset

    def event(
        self,
        owner: Owner,
        request: str,
        kind: EventType,
        reason: FinishReason | None = None,
        index: int | None = None,
        tokens: tuple[int, ...] | None = None,
        text: str | None = None,
    ) -> TokenEvent:
        return TokenEvent(
            type=kind,
            request_id=request,
            user_id=USER,
            conversation_id="c",
            index=owner.written[request] if index is None else index,
            tokens=tokens,
            text=text,
            epoch=owner.epoch,
            finish_reason=reason,
            usage=Usage(1, 2) if kind is EventType.DONE else None,
        )


def _text(tokens: tuple[int, ...]) -> str:
    return "".join(f" {token}" for token in tokens)


@st.composite
def partitions(draw: st.DrawFn) -> Partition:
    """A partition with any order of words, take-overs and late words of former owners."""
    partition = Partition()
    partition.take_over()
    steps = st.lists(
        st.tuples(
            st.sampled_from(["speak", "speak", "speak", "finish", "take over"]),
            st.sampled_from(REQUESTS),
            st.integers(1, 3),
            st.integers(0, 3),
        ),
        max_size=40,
    )
    for step, request, count, age in draw(steps):
        owner = partition.owners[-1 - min(age // 2, len(partition.owners) - 1)]
        if step == "take over":
            partition.take_over()
        elif step == "speak":
            partition.speak(owner, request, count)
        else:
            partition.finish(owner, request)
    return partition
