"""The consumer group: what Faust's application and delivery report to each other.

Faust delivers records and assignments and commits nothing; offsets are committed with the transactions of
app/delivery/commits/commit.py.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import faust
from faust.types import TP

from app.delivery.record import SOURCES, TURNS, Record
from app.faust.arrivals import Arrivals
from app.faust.assignor import Assignor
from app.faust.commands import AGENTS
from app.faust.consumer import App
from app.faust.tuning import NoTables, messages_from
from app.kafka.cluster import Cluster
from app.settings import Settings
from app.settings.sources import SettingsError

if TYPE_CHECKING:
    from app.worker import Worker

_WATCH_S = 1.0
_HEARTBEAT_S = 0.5
_POLL_RECORDS = 500
# What was dropped in a rebalance comes again within a moment; a busy machine may take seconds.
_SESSIONS = 2


class FaustGroup:
    """`Source` of the worker that `worker` returns, None before it starts; `failed` is called with an error that must
    end the process, `joined` with the member id at each join.
    """

    def __init__(
        self,
        app: App,
        settings: Settings,
        worker: Callable[[], Worker | None],
        failed: Callable[[BaseException], None],
        joined: Callable[[str], None] = lambda _member: None,
    ) -> None:
        self._joined = joined
        self._app = app
        self._settings = settings
        self._worker = worker
        self._failed = failed
        self._arrivals = app.arrivals = Arrivals(_SESSIONS * settings.session_timeout_s)
        app.unhurried = frozenset({settings.topic(TURNS)})
        if not settings.has_index:
            app.unread = frozenset({settings.topic(TURNS)})
        for name in SOURCES:
            topic = app.topic(
                settings.topic(name), value_serializer="raw", value_type=bytes, key_serializer="raw", key_type=bytes
            )
            app.agent(topic, name=name)(self._runs(name))
        app.on_partitions_revoked.connect(self._revoked, weak=False)
        app.on_partitions_assigned.connect(self._assigned, weak=False)

    def strangers(self) -> str | None:
        """Why a worker cannot start with what others have registered on its application."""
        others = [f"the agent {name}" for name in self._app.agents if name not in SOURCES]
        others += [f"the table {name}" for name in self._app.tables]
        if not others:
            return None
        why = "it commits no offsets but those of answers, so each start would repeat your records"
        remedy = "register it on a faust.App of your own, in a process beside (docs/own-programs.md)"
        return f"Parley's app does not run {', '.join(others)}: {why}; {remedy}"

    # Not Faust's pause_partitions: that drops records that were fetched and not delivered yet.

    def pause(self, topic: str, partition: int) -> None:
        self._app.consumer.on_buffer_full(TP(self._settings.topic(topic), partition))

    def resume(self, topic: str, partition: int) -> None:
        # During a rebalance everything is paused, and resumed at its end.
        if not self._app.rebalancing:
            self._app.consumer.on_buffer_drop(TP(self._settings.topic(topic), partition))

    async def leave(self) -> bool:
        """Leave the group; False if the broker does not confirm it soon."""
        return await self._app.consumer.leave_group()

    async def watch(self) -> None:
        """Report that this member takes no part in the group any more, so that another worker takes over: it would stay
        silent for ever. Returns after that.
        """
        while True:
            await asyncio.sleep(_WATCH_S)
            if (error := self._app.consumer.coordination_ended()) is not None:
                self._failed(error)
                return

    def _runs(self, topic: str) -> Callable[[Any], Awaitable[None]]:
        """A Faust agent that hands the records of this topic to the worker's agent on it."""

        async def run(stream: Any) -> None:
            worker = self._worker()
            assert worker is not None, "Faust starts its agents after the worker"
            try:
                async with aclosing(self._records(topic, stream)) as records:
                    async for record in records:
                        worker.partitions.accept(record, worker.agents[topic])
            except Exception as error:  # noqa: BLE001 - Faust would go on with the next record and lose this one
                self._failed(error)

        run.__qualname__, run.__doc__ = topic, AGENTS[topic]  # the agent's name in Faust's log, and its help
        return run

    async def _records(self, topic: str, stream: Any) -> AsyncGenerator[Record]:
        now = asyncio.get_running_loop().time
        async for event in stream.noack().events():
            for message in messages_from(event, stream):
                if self._arrivals.passes(message.tp, message.offset, now()):
                    yield record_of(topic, message)

    async def _assigned(self, _app: faust.App, assigned: Iterable[TP], **_: Any) -> None:
        self._joined(self._app.consumer.joined_as())
        if (worker := self._worker()) is not None:
            standbys = {tp.partition for tp in self._app.assignor.assigned_standbys()}
            self._arrivals.assign()
            await worker.partitions.assigned({tp.partition for tp in assigned}, standbys)

    async def _revoked(self, _app: faust.App, _revoked: Iterable[TP], **_: Any) -> None:
        self._arrivals.revoke()
        if (worker := self._worker()) is not None:
            await worker.partitions.revoked()


def record_of(topic: str, message: Any) -> Record:
    """What Faust delivers of the topic with this name in the settings."""
    return Record(
        topic=topic,
        partition=message.partition,
        offset=message.offset,
        timestamp=round(message.timestamp * 1000),
        key=message.key,
        value=message.value,
        headers=tuple(message.headers or ()),
        unreadable=message.unreadable,
    )


def options(settings: Settings) -> dict[str, Any]:
    """Of Faust's application. Raises `SettingsError`."""
    return {
        "broker": settings.broker,
        "broker_credentials": _credentials(settings.cluster),
        "PartitionAssignor": Assignor,
        "TableManager": NoTables,
        "broker_session_timeout": settings.session_timeout_s,
        # A heartbeat informs members of a rebalance; until then, the partitions of a worker that left have no owner.
        "broker_heartbeat_interval": min(_HEARTBEAT_S, settings.session_timeout_s / 4),
        "broker_request_timeout": max(40.0, settings.session_timeout_s),
        "consumer_auto_offset_reset": "earliest",
        # A batch may hold a million records; between two polls, the event loop does something else.
        "broker_max_poll_records": _POLL_RECORDS,
        "consumer_group_instance_id": _instance_id(settings.data_dir),
        "table_standby_replicas": settings.standby_replicas,
        "topic_disable_leader": True,
        "topic_allow_declare": False,
        "stream_wait_empty": False,
        "stream_recovery_delay": 0.0,
    }


def _credentials(cluster: Cluster) -> faust.types.CredentialsT | None:
    """Credentials of Faust's own consumer; our clients use `Cluster.options`."""
    tls = cluster.ssl_context() if cluster.tls else None
    if (tokens := cluster.tokens()) is not None:
        return faust.OAuthCredentials(oauth_cb=tokens, ssl_context=tls)
    if cluster.sasl_mechanism:
        return faust.SASLCredentials(
            username=cluster.username,
            password=cluster.password,
            mechanism=cluster.sasl_mechanism,
            ssl_context=tls,
        )
    return None if tls is None else faust.SSLCredentials(tls)


def _instance_id(folder: Path) -> str:
    """Static membership (KIP-345): a worker that restarts with its data gets its partitions back at once."""
    path = folder / "instance"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not path.exists():
            path.write_text(uuid.uuid4().hex)
        return path.read_text().strip()
    except OSError as error:
        raise SettingsError(f"PARLEY_DATA_DIR={folder}: {error.strerror or error}; choose another folder") from None
