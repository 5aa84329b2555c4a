"""Records of `waits`: the public state of each answer that has slept. Key `["user","request id"]`; always JSON.

`state` is `asleep`, `awake` (its record is on `requests` again) or `ended`. `since` and `until` are when it fell asleep
and when it is woken at the latest, in Unix milliseconds. `tokens_offset`: what was said of it is in the same partition
of `tokens` from there on. `decided` are the approvals of the answer that are over.
"""

from __future__ import annotations

import msgspec

from app.wire.codec import Headers, decode


class Wait(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the answer waits for: its `kind` is `tool`, `approval`, `answer` (an agent's) or `timer`. `wait_id` is the
    call's id, of a timer the request's. `by`: of an approval, the desk that decides, or `user`; of an answer, the
    agent that gives it. `parameters` is the schema of the arguments, JSON text, and `description` what the tool does.
    `question` is what the user said last, shortened, if the policy shows it to the desk.
    """

    wait_id: str
    kind: str
    name: str
    arguments: str = ""
    until: int | None = None
    by: str | None = None
    parameters: str | None = None
    description: str = ""
    question: str = ""

    @property
    def details(self) -> dict[str, str | int | None]:
        """Those of its notice on `tokens`."""
        details = {"kind": self.kind, "wait_id": self.wait_id, "name": self.name, "until": self.until}
        return details if self.by is None else {**details, "by": self.by}


class DecidedWait(msgspec.Struct, frozen=True, omit_defaults=True):
    """How an approval is over: `approved`, `edited`, `rejected` or `expired`, and who has decided. `arguments`: those
    with which the call is made, if they were edited; until the answer ends.
    """

    wait_id: str
    decision: str
    by: str | None = None
    arguments: str | None = None


class WaitRecord(msgspec.Struct, frozen=True, kw_only=True):
    request_id: str
    user_id: str
    conversation_id: str
    tenant: str | None
    state: str
    since: int
    until: int
    tokens_offset: int
    waits: tuple[Wait, ...] = ()
    decided: tuple[DecidedWait, ...] = ()


def read_open(value: bytes | None, headers: Headers) -> WaitRecord | None:
    """The state of an answer that sleeps or wakes; None for one that has ended or is erased. Raises `WireError`."""
    state = None if value is None else decode(WaitRecord, value, headers)
    return None if state is None or state.state == "ended" else state
