"""Fetch sessions: what a consumer's fetches name, and what happens when the broker forgets a session."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.consumer.fetcher import Fetcher
from aiokafka.errors import KafkaConnectionError
from aiokafka.protocol.fetch import FetchRequest, FetchRequest_v6, FetchRequest_v11, FetchResponse_v6, FetchResponse_v11

from app.kafka import fetch_session
from app.kafka.fetch_session import FetchSessions

NODE = 1
MOST = 1000
Offsets = dict[str, dict[int, int]]


@dataclass
class Broker:
    """Answers what a test has put into `answers`, else with no records; remembers fetches as they are on the wire."""

    version: type = FetchRequest_v11
    answers: list[Any] = field(default_factory=list)
    fetches: list[Any] = field(default_factory=list)

    async def send(self, node_id: int, request: Any) -> Any:
        assert node_id == NODE
        self.fetches.append(request.build(self.version))
        answer = self.answers.pop(0) if self.answers else response()
        if isinstance(answer, Exception):
            raise answer
        return answer


def response(session: int = 7, error: int = 0, partitions: Offsets | None = None) -> Any:
    found = [
        (topic, [(number, 0, 0, 0, 0, [], -1, b"") for number in numbers])
        for topic, numbers in (partitions or {}).items()
    ]
    return FetchResponse_v11(0, error, session, found)


def fetch(offsets: Offsets) -> FetchRequest:
    topics = [(topic, [(number, offset, MOST) for number, offset in of.items()]) for topic, of in offsets.items()]
    return FetchRequest(500, 1, 1 << 20, 1, topics)


def named(struct: Any) -> Offsets:
    return {topic: {one[0]: one[2] for one in partitions} for topic, partitions in struct.topics}


def session_of(struct: Any) -> tuple[int, int]:
    return struct.session_id, struct.session_epoch


async def test_only_the_first_fetch_names_partitions_that_did_not_change() -> None:
    broker = Broker()
    sessions = FetchSessions(broker.send)
    for offsets in (
        {"a": {0: 5, 1: 6}, "b": {0: 1}},
        {"a": {0: 5, 1: 9}, "b": {0: 1}},
        {"a": {0: 5, 1: 9}, "b": {0: 1}},
    ):
        await sessions.send(NODE, fetch(offsets))
    assert [named(one) for one in broker.fetches] == [{"a": {0: 5, 1: 6}, "b": {0: 1}}, {"a": {1: 9}}, {}]
    assert [session_of(one) for one in broker.fetches] == [(0, 0), (7, 1), (7, 2)]


async def test_partitions_that_are_not_wanted_for_a_while_are_forgotten_and_named_again() -> None:
    broker = Broker()
    sessions = FetchSessions(broker.send)
    for offsets in ({"a": {0: 5}, "b": {0: 1}}, {"a": {0: 5}}, {"a": {0: 5}, "b": {0: 1}}):
        await sessions.send(NODE, fetch(offsets))
    assert [one.forgotten_topics_data for one in broker.fetches] == [[], [("b", [0])], []]
    assert named(broker.fetches[2]) == {"b": {0: 1}}


async def test_aiokafka_looks_only_at_what_the_response_has() -> None:
    broker = Broker(answers=[response(), response(partitions={"a": {1: 0}})])
    sessions = FetchSessions(broker.send)
    await sessions.send(NODE, fetch({"a": {0: 5, 1: 6}}))
    request = fetch({"a": {0: 5, 1: 6}})
    await sessions.send(NODE, request)
    assert request.topics == [("a", [(1, 6, MOST)])]


@pytest.mark.parametrize("error", sorted(fetch_session._LOST))
async def test_lost_session_costs_one_full_fetch(error: int) -> None:
    broker = Broker(answers=[response(), response(0, error), response(8, partitions={"a": {0: 0}})])
    sessions = FetchSessions(broker.send)
    await sessions.send(NODE, fetch({"a": {0: 5}}))
    assert (await sessions.send(NODE, fetch({"a": {0: 5}}))).topics, "the caller gets the records of the full fetch"
    await sessions.send(NODE, fetch({"a": {0: 6}}))
    assert [session_of(one) for one in broker.fetches] == [(0, 0), (7, 1), (7, 0), (8, 1)]
    assert [named(one) for one in broker.fetches[2:]] == [{"a": {0: 5}}, {"a": {0: 6}}]


async def test_fetch_whose_response_is_lost_is_followed_by_a_full_one_that_ends_the_session() -> None:
    broker = Broker(answers=[response(), KafkaConnectionError("gone")])
    sessions = FetchSessions(broker.send)
    await sessions.send(NODE, fetch({"a": {0: 5}}))
    with pytest.raises(KafkaConnectionError):
        await sessions.send(NODE, fetch({"a": {0: 6}}))
    await sessions.send(NODE, fetch({"a": {0: 6}}))
    assert (session_of(broker.fetches[2]), named(broker.fetches[2])) == ((7, 0), {"a": {0: 6}})


async def test_broker_without_room_gets_full_fetches() -> None:
    broker = Broker(answers=[response(0), response(0)])
    sessions = FetchSessions(broker.send)
    for _ in range(2):
        await sessions.send(NODE, fetch({"a": {0: 5}}))
    assert [session_of(one) for one in broker.fetches] == [(0, 0), (0, 0)]
    assert named(broker.fetches[1]) == {"a": {0: 5}}


async def test_brokers_before_sessions_get_plain_fetches() -> None:
    broker = Broker(FetchRequest_v6, [FetchResponse_v6(0, []), FetchResponse_v6(0, [])])
    sessions = FetchSessions(broker.send)
    for _ in range(2):
        request = fetch({"a": {0: 5}})
        await sessions.send(NODE, request)
        assert request.topics == [("a", [(0, 5, MOST)])]
    assert [one.topics for one in broker.fetches] == [[("a", [(0, 5, -1, MOST)])]] * 2


async def test_epochs_begin_again_at_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_session, "_LAST_EPOCH", 2)
    broker = Broker()
    sessions = FetchSessions(broker.send)
    for _ in range(4):
        await sessions.send(NODE, fetch({"a": {0: 5}}))
    assert [session_of(one)[1] for one in broker.fetches] == [0, 1, 2, 1]


def test_installed_aiokafka_reads_the_request_again_after_the_response() -> None:
    source = inspect.getsource(Fetcher._proc_fetch_request)
    sent = source.index("response = await self._client.send(node_id, request)")
    assert source.index("in request.topics:") > sent
    assert "self._client = AIOKafkaClient(" in inspect.getsource(AIOKafkaConsumer.__init__)
