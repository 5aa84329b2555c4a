"""What the topics hold after a page, judged as after faults."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from app.settings import Settings
from app.wire.ids import partition_for
from tests.faults.verdict import Fetched, Verdict, judge_records, read_topic

_APART = 1000
"""So many partitions lie between those of two sets of topics: their epochs have nothing to do with each other."""


@dataclass(frozen=True)
class _Moved:
    """A record as if it lay in another partition."""

    record: Any
    partition: int

    def __getattr__(self, name: str) -> Any:
        return getattr(self.record, name)


async def verdict_of(settings: Settings, former: Settings | None = None, erased: Collection[str] = ()) -> Verdict:
    """`former`: the topics from which users have moved to those of the settings, with their turns."""
    requests, tokens, turns = [await read_topic(settings, topic) for topic in ("requests", "tokens", "turns")]
    if former is not None:
        requests = [*_spread(await read_topic(former, "requests"), settings), *requests]
        tokens = [*await read_topic(former, "tokens"), *(_Moved(one, one.partition + _APART) for one in tokens)]
    return judge_records(requests, tokens, turns, settings, paced=True, erased=erased)


def _spread(records: list[Fetched], settings: Settings) -> list[Fetched]:
    return [_Moved(one, partition_for((one.key or b"").decode(), settings.partitions)) for one in records]
