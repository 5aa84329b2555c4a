"""The Faust application: group membership, the flow of records, the web server and the command line.

    faust -A app worker -l info

Faust delivers records and assignments and commits nothing; offsets are committed with the transactions of
app/delivery/commits/commit.py.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import time
import uuid
import warnings
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NoReturn

import faust
from faust.types import TP

from app.delivery.record import SOURCES, TURNS, Record
from app.faust import consumer
from app.faust.assignor import Assignor
from app.faust.flow import ConsumerFlow
from app.faust.no_tables import NoTables
from app.kafka.clients import KafkaAwayError
from app.kafka.cluster import Cluster
from app.preflight import Unusable, check_setup, report
from app.process_end import end_process
from app.search.vector_store import IndexMismatchError
from app.serving.loading import LoadError
from app.settings import Settings, UnknownSettingWarning, settings
from app.settings.sources import SettingsError
from app.telemetry.log_format import FAUST_LOGGING
from app.telemetry.telemetry import Telemetry
from app.telemetry.tracing import TracingError
from app.tune_interpreter import tune_interpreter
from app.worker import Loaded, Worker, load
from models.checkpoint_files import CheckpointError
from tables.store_errors import StoreError

log = logging.getLogger(__name__)

EXIT_FAILED = 1
EXIT_WRONG_USE = 2
_WATCH_S = 1.0
_GOODBYE_S = 10.0
_HURRY_S = 2.0
_HEARTBEAT_S = 0.5
_POLL_RECORDS = 500


class ParleyApp(consumer.App):
    """`loaded` is set once the command line has prepared the worker, `worker` while it runs."""

    parley: Settings
    loaded: Loaded | None = None
    worker: Worker | None = None
    telemetry: Telemetry
    watching: asyncio.Task[None] | None = None
    held: ExitStack
    exit_code: int | None = None
    leaving: asyncio.Future[None] | None = None

    async def stop(self) -> None:
        """Hand the partitions on while records still flow, so that no request waits for what is closed after that."""
        if self.leaving is None:
            self.leaving = asyncio.ensure_future(self._leave())
        try:
            await self.leaving
        finally:
            await super().stop()

    async def leave(self) -> None:
        """As `stop`, but for a process that ends right after: Faust's own services stay as they are."""
        if self.leaving is None:
            self.leaving = asyncio.ensure_future(self._leave())
        try:
            await self.leaving
        finally:
            await _close(self)

    def hurry(self) -> None:
        """Leave without the rest of the grace period."""
        if self.worker is not None:
            self.worker.partitions.hurry()

    async def _leave(self) -> None:
        if self.watching is not None:  # a start may fail before that
            self.watching.cancel()
        if self.worker is not None:
            await self.worker.release(broken=self.exit_code is not None)
            if not await self.consumer.leave_group():
                session_s = self.parley.session_timeout_s
                log.warning("Kafka has not confirmed that this worker leaves; the group notices within %g s", session_s)

    async def on_start(self) -> None:
        assert self.loaded is not None
        self.worker = Worker(
            self.parley, self.loaded, ConsumerFlow(self), self.end_with, observer=self.telemetry.observer
        )
        try:
            await self.worker.start()
        except CheckpointError as error:
            # This check has to compute an embedding, so it runs after the others; the group has not been joined yet.
            await asyncio.gather(*(engine.stop() for engine in self.worker.engines), return_exceptions=True)
            report(str(error))
            end_process(EXIT_WRONG_USE)
        self.telemetry.start()
        self.watching = asyncio.ensure_future(self._watch_membership())
        await super().on_start()

    async def _watch_membership(self) -> None:
        """A member whose group coordination has failed would stay silent for ever: end it, so that another worker takes
        over.
        """
        while self.exit_code is None and not self.should_stop:
            await asyncio.sleep(_WATCH_S)
            if (error := self.consumer.coordination_ended()) is not None:
                self.end_with(error)

    def end_with(self, error: BaseException) -> None:
        """End the process; the next owners continue what is unfinished."""
        if self.exit_code is None:
            is_mismatch = isinstance(error, IndexMismatchError)
            is_wrong_setup = is_mismatch or (isinstance(error, StoreError) and error.is_wrong_setup)
            self.exit_code = EXIT_WRONG_USE if is_wrong_setup else EXIT_FAILED
            is_explained = is_wrong_setup or isinstance(error, StoreError)
            log.critical("the worker stops: %s", error, exc_info=None if is_explained else error)
            self._ending = asyncio.ensure_future(self.crash(error))


class ParleyWorker(faust.Worker):
    """Faust's worker process; it loads the models before it starts, and its exit code says why it ended."""

    app: ParleyApp
    _signals = 0

    def install_signal_handlers(self) -> None:
        super().install_signal_handlers()
        for number in (signal.SIGINT, signal.SIGTERM):
            self.loop.add_signal_handler(number, self._signalled, number)

    def _signalled(self, number: signal.Signals) -> None:
        """The first signal makes the worker leave, the second one ends the grace period, the third one the process.

        Faust's way of stopping takes two seconds more, and logs what it interrupts.
        """
        self._signals += 1
        if self._signals == 1:
            self._flag_as_shutdown_by_signal()
            log.info("%s: the worker leaves; a second signal ends the grace period", number.name)
            self._leaving = asyncio.ensure_future(self._leave())
        elif self._signals == 2:
            self.app.hurry()
            self.loop.call_later(_HURRY_S, end_process, self.app.exit_code or 0)
        else:
            end_process(self.app.exit_code or 0)

    async def _leave(self) -> None:
        try:
            await self.app.leave()
        except Exception as error:  # noqa: BLE001 - what is left ends with the process
            log.warning("the worker could not close everything: %r", error)
        log.info("the worker has left")
        end_process(self.app.exit_code or 0)

    def execute_from_commandline(self) -> NoReturn:
        try:
            prepare(self.app)
        except (Unusable, KafkaAwayError) as error:
            report(str(error))
            raise SystemExit(EXIT_WRONG_USE if isinstance(error, Unusable) else EXIT_FAILED) from None
        try:
            super().execute_from_commandline()
        except SystemExit as end:
            code = end.code if self.app.exit_code is None else self.app.exit_code
        else:
            code = self.app.exit_code
        end_process(code if isinstance(code, int) else EXIT_FAILED if code else 0)


def prepare(app: ParleyApp) -> None:
    """Check the setup and load the models; raises `Unusable` and `KafkaAwayError`."""
    began = time.monotonic()
    check_setup(app.parley, app.held, (app.conf.web_bind, app.conf.web_port) if app.conf.web_enabled else None)
    try:
        app.loaded = load(app.parley, lambda line: app.end_with(RuntimeError(line)))
    except LoadError as error:
        raise Unusable(str(error)) from None
    tune_interpreter()
    versions = ", ".join(serving.model_version for serving in app.loaded.servings)
    log.info("model %s loaded in %.1f s", versions, time.monotonic() - began)


def create_app(parley: Settings) -> ParleyApp:
    app = ParleyApp(
        parley.group,
        broker=parley.broker,
        broker_credentials=_credentials(parley.cluster),
        datadir=str(parley.data_dir / "faust"),
        Worker=ParleyWorker,
        PartitionAssignor=Assignor,
        TableManager=NoTables,
        broker_session_timeout=parley.session_timeout_s,
        # A heartbeat tells members of a rebalance; until then, the partitions of a worker that left have no owner.
        broker_heartbeat_interval=min(_HEARTBEAT_S, parley.session_timeout_s / 4),
        broker_request_timeout=max(40.0, parley.session_timeout_s),
        consumer_auto_offset_reset="earliest",
        # A batch may hold a million records; between two polls, the event loop does something else.
        broker_max_poll_records=_POLL_RECORDS,
        consumer_group_instance_id=_instance_id(parley.data_dir),
        table_standby_replicas=parley.standby_replicas,
        topic_disable_leader=True,
        topic_allow_declare=False,
        stream_wait_empty=False,
        stream_recovery_delay=0.0,
        worker_redirect_stdouts=False,
        # Health and metrics name tenants; `--web-bind` opens them to other machines.
        web_bind="127.0.0.1",
        web_router_enabled=False,
        web_tables_enabled=False,
        web_graph_enabled=False,
        web_stats_enabled=False,
        logging_config=dict(FAUST_LOGGING) if parley.log_format == "json" else None,
    )
    app.parley = parley
    app.unhurried = frozenset({parley.topic(TURNS)})
    app.held = ExitStack()
    for name in SOURCES:
        topic = app.topic(
            parley.topic(name), value_serializer="raw", value_type=bytes, key_serializer="raw", key_type=bytes
        )
        app.agent(topic, name=name)(_taker(app, name))
    app.on_partitions_revoked.connect(_revoked, weak=False)
    app.telemetry = Telemetry(parley, lambda: app.worker)
    app.telemetry.add_pages(app)
    app.on_partitions_assigned.connect(_assigned, weak=False)
    app.on_before_shutdown.connect(_close, weak=False)
    return app


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


def _taker(app: ParleyApp, topic: str) -> Callable[[Any], Awaitable[None]]:
    async def take(stream: AsyncIterable[Any]) -> None:
        async for event in stream.noack().events():  # type: ignore[attr-defined]
            assert app.worker is not None
            try:
                record = _record(topic, event.message, app.consumer.handed_before(event.message))
                if (partition := app.worker.partitions.accept(record)) is not None:
                    app.worker.receive(partition, record)
            except Exception as error:  # noqa: BLE001 - Faust would go on with the next record and lose this one
                app.end_with(error)
                return

    take.__qualname__ = topic  # the agent's name in Faust's log
    return take


def _record(topic: str, message: Any, after: int) -> Record:
    return Record(
        topic=topic,
        partition=message.partition,
        offset=message.offset,
        after=after,
        timestamp=round(message.timestamp * 1000),
        key=message.key,
        value=message.value,
        headers=tuple(message.headers or ()),
        unreadable=message.unreadable,
    )


async def _assigned(app: ParleyApp, assigned: Iterable[TP], **_: Any) -> None:
    if app.worker is not None:
        standbys = {tp.partition for tp in app.assignor.assigned_standbys()}
        await app.worker.partitions.assigned({tp.partition for tp in assigned}, standbys)


async def _revoked(app: ParleyApp, _revoked: Iterable[TP], **_: Any) -> None:
    if app.worker is not None:
        await app.worker.partitions.revoked()


async def _close(app: ParleyApp, **_: Any) -> None:
    if app.worker is not None:
        await app.telemetry.stop()
        await app.worker.stop()
        asyncio.get_running_loop().call_later(_GOODBYE_S, _leave_without_goodbye, app)


def _leave_without_goodbye(app: ParleyApp) -> None:
    """Skip the wait for Faust's open requests to an unreachable broker, which takes a minute; ours are done."""
    end_process(app.exit_code or 0)


def _create() -> ParleyApp:
    try:
        with warnings.catch_warnings(record=True) as reported:
            warnings.simplefilter("always", UnknownSettingWarning)
            parley = settings()
        for warning in reported:
            report(f"warning: {warning.message}")
        return create_app(parley)
    except (SettingsError, TracingError) as error:
        report(str(error))
        raise SystemExit(EXIT_WRONG_USE) from None


app = _create()
