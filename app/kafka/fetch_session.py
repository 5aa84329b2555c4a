"""Fetch sessions (KIP-227), which aiokafka does not use: fetches that name only what has changed.

Without a session, every fetch names every partition with its offset, and every response lists them all, however few
records there are. For a worker with 256 partitions that was a third of its processor time. With 64 and 5 requests/s a
request took 1.14 of the time that it takes with sessions (0.65 to 1.15 in 5 rounds), and an idle worker 18 ms/s instead
of 13. In a session the broker remembers the partitions and their offsets:

    request                                                      response
    full         (id or 0, epoch 0), all partitions         ->   session id; 0: the broker has no room for one
    incremental  (id, epoch n), partitions whose offset          only partitions with something new
                 changed, partitions to forget              ->
                                                                 error 70 or 71: the broker has forgotten the session

    NONE --full--> OPEN --incremental--> OPEN           NONE: the next fetch is full; it also ends the session `id`
      ^              |
      +--------------+  the response is an error, or is lost: the broker may or may not have counted the fetch

A session belongs to one broker, and a consumer has one fetch at a time on its way to each.

Uses private names of aiokafka, whose version is pinned (app/faust/pins.py).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import FetchSessionIdNotFound, InvalidFetchSessionEpoch
from aiokafka.protocol.fetch import FetchRequest

_FIRST_VERSION = 7
_LAST_EPOCH = 2**31 - 1
_FULL = 0
_LOST = frozenset({FetchSessionIdNotFound.errno, InvalidFetchSessionEpoch.errno})

Send = Callable[..., Awaitable[Any]]
_Offsets = dict[tuple[str, int], tuple[int, int]]
"""Offset and maximum size by topic and partition."""


def use_fetch_sessions(consumer: AIOKafkaConsumer) -> None:
    """Let this consumer fetch in sessions; call it once, at any time."""
    client: Any = consumer._client  # noqa: SLF001 - see above
    client.send = FetchSessions(client.send).send


class FetchSessions:
    """Stands before a client's `send`, and has a session for each broker."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._sessions: defaultdict[int, FetchSession] = defaultdict(FetchSession)

    async def send(self, node_id: int, request: Any, **options: Any) -> Any:
        if not isinstance(request, FetchRequest):
            return await self._send(node_id, request, **options)
        session = self._sessions[node_id]
        response = await self._fetch(session, node_id, request, options)
        if session.is_lost_in(response):
            response = await self._fetch(session, node_id, request, options)
        if response.API_VERSION >= _FIRST_VERSION:  # aiokafka checks all that were asked for
            request._topics = session.asked(response)  # noqa: SLF001
        return response

    async def _fetch(self, session: FetchSession, node_id: int, request: FetchRequest, options: dict[str, Any]) -> Any:
        fetch = session.next_fetch(request)
        try:
            response = await self._send(node_id, fetch, **options)
        except BaseException:
            session.restart()
            raise
        session.answered(response)
        return response


class FetchSession:
    """What one broker remembers of this consumer's fetches."""

    def __init__(self) -> None:
        self._id = 0
        self._epoch = _FULL
        self._known: _Offsets = {}

    def next_fetch(self, request: FetchRequest) -> FetchRequest:
        """The fetch to send in place of this one, which names all partitions."""
        wanted: _Offsets = {
            (topic, partition): (offset, most)
            for topic, partitions in request.topics
            for partition, offset, most in partitions
        }
        known, self._known = self._known, wanted
        if self._epoch == _FULL:
            return _SessionFetch(request, self._id, _FULL, request.topics, [])
        changed, gone = defaultdict(list), defaultdict(list)
        for (topic, partition), (offset, most) in wanted.items():
            if known.get((topic, partition)) != (offset, most):
                changed[topic].append((partition, offset, most))
        for topic, partition in known.keys() - wanted.keys():
            gone[topic].append(partition)
        return _SessionFetch(request, self._id, self._epoch, list(changed.items()), list(gone.items()))

    def answered(self, response: Any) -> None:
        """The response to the last fetch."""
        if response.API_VERSION < _FIRST_VERSION or response.error_code:
            self.restart()
        elif not response.session_id:
            self._id, self._epoch = 0, _FULL
        else:
            self._id = response.session_id
            self._epoch = 1 if self._epoch == _LAST_EPOCH else self._epoch + 1

    def asked(self, response: Any) -> list[tuple[str, list[tuple[int, int, int]]]]:
        """What was asked for of the partitions in the response."""
        return [
            (topic, [(partition, *self._known[topic, partition]) for partition, *_ in partitions])
            for topic, partitions in response.topics
        ]

    def is_lost_in(self, response: Any) -> bool:
        """Whether the broker does not know the session, so that the response has no records."""
        return response.API_VERSION >= _FIRST_VERSION and response.error_code in _LOST

    def restart(self) -> None:
        """Fetch all partitions next, and end the session that the broker may have."""
        self._epoch = _FULL


class _SessionFetch(FetchRequest):
    """`whole` as a fetch of a session: with these topics only."""

    def __init__(
        self,
        whole: FetchRequest,
        session_id: int,
        epoch: int,
        changed: list[tuple[str, list[tuple[int, int, int]]]],
        forgotten: list[tuple[str, list[int]]],
    ) -> None:
        self.__dict__.update(vars(whole))
        self._topics = changed
        self._whole = whole
        self._session = (session_id, epoch)
        self._forgotten = forgotten

    def build(self, request_struct_class: Any) -> Any:
        if request_struct_class.API_VERSION < _FIRST_VERSION:
            return self._whole.build(request_struct_class)
        struct: Any = super().build(request_struct_class)
        struct.session_id, struct.session_epoch = self._session
        struct.forgotten_topics_data = self._forgotten
        return struct
