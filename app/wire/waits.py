"""Records of `waits`: the public state of each answer that has slept. Key `["user","request id"]`; always JSON.

`state` is `asleep`, `awake` (its record is on `requests` again) or `ended`. `since` and `until` are when it fell asleep
and when it is woken at the latest, in Unix milliseconds. `tokens_offset`: what was said of it is in the same partition
of `tokens` from there on.
"""

from __future__ import annotations

import msgspec


class Wait(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the answer waits for; `wait_id` is a call's id."""

    wait_id: str
    kind: str
    name: str
    arguments: str = ""
    until: int | None = None

    @property
    def details(self) -> dict[str, str | int | None]:
        """Those of its notice on `tokens`."""
        return {"kind": self.kind, "wait_id": self.wait_id, "name": self.name, "until": self.until}


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
