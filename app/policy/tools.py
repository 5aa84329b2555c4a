"""What the policy says of single tools: `[tools.NAME]`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from app.policy.mistakes import Mistake

BY_USER = "user"
"""In place of a desk: the user, whose answer calls the tool, decides."""

MOST_S = 30 * 86_400
_ANSWER_S = 600.0
_DESK = re.compile(r"[A-Za-z0-9_.-]{1,64}")


def is_desk(name: str) -> bool:
    return _DESK.fullmatch(name) is not None


class ApproveRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A call is made only once somebody of the desk `by` has approved it; `by = "user"`: once the user has. What nobody
    has decided `within_s` is `otherwise`. With `shows_question` the desk reads what the user said last, shortened.
    """

    by: str
    within_s: float = 86_400.0
    otherwise: Literal["approved", "rejected"] = "rejected"
    shows_question: bool = False

    def mistakes(self) -> Iterator[Mistake]:
        """What the types cannot express."""
        if not is_desk(self.by):
            yield Mistake("by", "by must be 1-64 of A-Z a-z 0-9 _ . -")
        if not 0 < self.within_s <= MOST_S:
            yield Mistake("within_s", f"within_s must be above 0 and at most {MOST_S}")


class ToolRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`description`, and `parameters`, the JSON schema of its arguments: what agents' models know of it. A call of one
    with `approve` is made once it is approved. One of a tool with `ask` is a request of that agent, which has
    `within_s`, by default ten minutes.
    """

    description: str | None = None
    parameters: dict[str, Any] | None = None
    approve: ApproveRules | None = None
    ask: str | None = None
    within_s: float | None = None

    @property
    def answer_ms(self) -> int:
        """How long an agent has."""
        return round((self.within_s or _ANSWER_S) * 1000)

    def mistakes(self) -> Iterator[Mistake]:
        """What the types cannot express."""
        if self.within_s is not None and not 0 < self.within_s <= MOST_S:
            yield Mistake("within_s", f"within_s must be above 0 and at most {MOST_S}")
        if self.within_s is not None and self.ask is None:
            yield Mistake("within_s ask", "within_s is the time of an agent, so it needs ask")
        if self.ask is not None and self.approve is not None:
            yield Mistake("ask approve", "ask excludes approve: an agent is asked at once")
