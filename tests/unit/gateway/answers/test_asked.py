"""Requests by their ids, from a log in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition

from app.gateway.answers import asked as module
from app.gateway.answers.asked import AskedRequests
from app.gateway.edge import bounds
from app.gateway.edge.errors import ApiError
from app.gateway.edge.metrics import GatewayMetrics
from app.settings import Settings
from app.wire.codec import WITHDRAWN, encode
from app.wire.control import Cancel
from app.wire.error import ErrorCode
from app.wire.ids import new_request_id
from app.wire.request import Request

SETTINGS = Settings(_env_file=None, partitions=1)


class Log:
    """Stands for Kafka: its records by topic, and the scans that have begun."""

    def __init__(self) -> None:
        self.records: dict[str, list[Any]] = {"requests": [], "controls": []}
        self.scans: list[str] = []
        self.erased: dict[str, int] = {}
        self.away = False
        self.during = lambda: None

    async def scan(self, _: Any, partition: TopicPartition, most: int, *, since_ms: int) -> AsyncGenerator[Any, None]:
        assert since_ms > 0
        self.scans.append(partition.topic)
        await asyncio.sleep(0)
        if self.away:
            raise ApiError(ErrorCode.UNAVAILABLE, "Kafka cannot be read now", retry_after_s=5)
        for record in self.records[partition.topic][:most]:
            yield record
        self.during()

    def write(self, topic: str, record: Any, headers: list[tuple[str, bytes]] | None = None) -> None:
        value, own = encode(record)
        kept = SimpleNamespace(key=record.user_id.encode(), value=value, headers=[*own, *(headers or [])])
        self.records[topic].append(kept)

    def at(self, user_id: str, conversation_id: str) -> int:
        return max(self.erased.get(user_id, 0), self.erased.get(f"{user_id}/{conversation_id}", 0))


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    log = Log()
    monkeypatch.setattr(module, "scan", log.scan)
    return log


@pytest.fixture
def requests(log: Log) -> AskedRequests:
    return AskedRequests(SETTINGS, log, 1, GatewayMetrics())  # type: ignore[arg-type]


def request(user: str = "nina") -> Request:
    return Request(request_id=new_request_id(), user_id=user, prompt="hello")


async def test_all_that_a_user_wants_at_once_is_searched_once(log: Log, requests: AskedRequests) -> None:
    own = [request() for _ in range(50)]
    for one in (request("omar"), *own):
        log.write("requests", one, [("response", b"{}")])
    found = await asyncio.gather(*(requests.find("nina", one.request_id) for one in own))
    assert [one and one.request for one in found] == own
    assert found[0] is not None
    assert ("response", b"{}") in [*found[0].headers]
    assert log.scans == ["requests", "controls"]
    assert await requests.find("nina", own[7].request_id) is found[7]
    assert len(log.scans) == 2


async def test_an_unknown_old_or_foreign_id_is_not_found(log: Log, requests: AskedRequests) -> None:
    of_omar = request("omar")
    log.write("requests", of_omar)
    assert await requests.find("nina", of_omar.request_id) is None
    assert await requests.find("nina", new_request_id()) is None
    before = len(log.scans)
    for name in ("no-uuid", "01890000-0000-7000-8000-000000000000"):
        assert await requests.find("nina", name) is None
    assert len(log.scans) == before, "what cannot be there is not searched"


async def test_what_was_withdrawn_is_found_no_more(log: Log, requests: AskedRequests) -> None:
    gone, kept = request(), request()
    log.write("requests", gone)
    log.write("requests", kept)
    log.write("controls", Cancel(request_id=kept.request_id, user_id="nina"))
    log.write("controls", Cancel(request_id=gone.request_id, user_id="nina"), [(WITHDRAWN, b"")])
    assert await requests.find("nina", gone.request_id) is None
    assert await requests.find("nina", kept.request_id) is not None
    requests.withdraw("nina", kept.request_id)
    assert await requests.find("nina", kept.request_id) is None
    requests.remember(kept, ())
    assert await requests.find("nina", kept.request_id) is None


async def test_a_withdrawal_that_comes_during_the_search_counts(log: Log, requests: AskedRequests) -> None:
    asked = request()
    log.write("requests", asked)
    log.during = lambda: requests.withdraw("nina", asked.request_id)
    assert await requests.find("nina", asked.request_id) is None
    assert await requests.find("nina", asked.request_id) is None


async def test_an_erasure_hides_what_is_in_memory(log: Log, requests: AskedRequests) -> None:
    asked = request()
    requests.remember(asked, ())
    assert await requests.find("nina", asked.request_id) is not None
    log.erased["nina"] = 2**50
    assert await requests.find("nina", asked.request_id) is None


async def test_an_erasure_of_its_conversation_hides_what_is_in_memory_or_found(
    log: Log, requests: AskedRequests
) -> None:
    asked = request()
    log.write("requests", asked)
    log.erased["nina/another"] = 2**50
    assert await requests.find("nina", asked.request_id) is not None
    log.erased[f"nina/{asked.conversation_id}"] = 2**50
    assert await requests.find("nina", asked.request_id) is None


async def test_when_kafka_is_away_everybody_who_waits_is_told(log: Log, requests: AskedRequests) -> None:
    log.away = True
    waiting = [requests.find("nina", new_request_id()) for _ in range(3)]
    for error in await asyncio.gather(*waiting, return_exceptions=True):
        assert isinstance(error, ApiError)
        assert error.retry_after_s == 5
    log.away = False
    asked = request()
    log.write("requests", asked)
    assert await requests.find("nina", asked.request_id) is not None


async def test_memory_is_bounded_in_bytes(log: Log, requests: AskedRequests, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.bounds, "ASKED_BYTES", 1000)
    first, last = request(), request()
    for one in (first, *(request() for _ in range(20)), last):
        requests.remember(one, ())
    assert await requests.find("nina", last.request_id) is not None
    assert log.scans == []
    assert await requests.find("nina", first.request_id) is None
    assert log.scans == ["requests"]


async def test_what_is_held_is_bounded_headers_included(requests: AskedRequests) -> None:
    for _ in range(100):
        requests.remember(request(), [("response", b"x" * 900_000)])
    held = sum(len(value or b"") for one in requests._held.values() for _, value in one.headers)
    assert 0 < held <= bounds.ASKED_BYTES
