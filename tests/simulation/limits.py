"""The verdict on the requests that each user of a tenant may send in a minute (`user_requests_per_min`).

A storm lasts less than a minute, so a user may have the limit once from each owner, and no owner knows what former ones
have admitted. Whom an owner refuses has had it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from app.reader import ReaderRule
from app.wire.codec import decode
from app.wire.error import ErrorCode
from app.wire.event import PLAN, EventType, TokenEvent
from tests.faults.records import Key
from tests.simulation.broker import Entry


def wrong_limits(entries: Iterable[Entry], limit: int) -> Iterator[str]:
    """`entries` of `tokens`, in the order of each partition."""
    rule, admitted, refused = ReaderRule(remember=1 << 30), {}, dict[Key, int]()
    for entry in entries:
        event = decode(TokenEvent, entry.value, entry.headers)
        if rule.read(entry.partition, entry.offset, event) is None or event.type is EventType.FENCE:
            continue
        key = (event.user_id or "", event.request_id or "")
        if event.error is not None and event.error.code == ErrorCode.RATE_LIMITED:
            refused[key] = event.epoch or 0
        elif event.notice is None or event.notice.code == PLAN:
            admitted.setdefault(key, event.epoch or 0)
    yield from (f"{key} was admitted and then refused" for key in admitted.keys() & refused.keys())
    by_owner = Counter((user, epoch) for (user, _), epoch in admitted.items())
    yield from (f"{key} was admitted {count} times of {limit}" for key, count in by_owner.items() if count > limit)
    in_all = Counter(user for user, _ in admitted)
    for user, request_id in refused:
        if in_all[user] < limit:
            yield f"{user}/{request_id} was refused, and {in_all[user]} of {limit} were admitted"
