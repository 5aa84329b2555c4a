"""The answer so far in few events, as its rows keep it."""

from __future__ import annotations

from collections.abc import Collection

from app.answering.run import Run
from app.wire.event import EventType, TokenEvent


def segments_of(run: Run, ends: Collection[int]) -> tuple[TokenEvent, ...]:
    """None of the events crosses one of these indexes: what a model reads is cut there."""
    answer, former = run.answer, run.accepted.former
    before = [] if former.answer is None else former.answer.segments
    bounds = sorted({one for one in ends if 0 < one < answer.index} | {answer.index})
    left, made, begin = [*answer.written], list[TokenEvent](), 0
    for bound in bounds if answer.index else ():
        of_it = [one for one in left if one[0] <= bound]
        left = left[len(of_it) :]
        known = [one for one in before if begin <= (one.index or 0) < bound]
        reasoning = "".join(one[2] for one in of_it)
        is_apart = reasoning or answer.tells_reasoning or any(one.reasoning is not None for one in known)
        event = run.accepted.event(
            EventType.TOKEN,
            begin,
            tokens=tuple(answer.token_ids[begin:bound]),
            text="".join(one[1] for one in of_it),
            reasoning=reasoning if is_apart else None,
            model_version=(known[0].model_version if known else None) or answer.version,
            timestamp=answer.first_at,
        )
        made.append(event)
        begin = bound
    return tuple(made)
