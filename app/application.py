"""The Faust application of `faust -A app worker`: the life of its process, web server and command line."""

import asyncio
import logging
import signal
import sys
import time
import warnings
from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any, NoReturn

from faust.types import TP

from app.faust import commands, consumer, group, quiet, tuning
from app.faust.group import FaustGroup
from app.kafka.errors import KafkaAwayError, KafkaSetupError
from app.policy.check import read_policy
from app.policy.file import PolicyError
from app.preflight import Unusable, check_setup, report
from app.process.process_end import ExitCode, end_process
from app.process.tune_interpreter import tune_interpreter, uncollected
from app.search.vector_store import IndexMismatchError
from app.serving.loading import LoadError
from app.settings import Settings, UnknownSettingWarning, settings
from app.settings.sources import SettingsError
from app.telemetry.log_format import faust_logging
from app.telemetry.start_log import TakeOvers, told_while_it_lasts
from app.telemetry.telemetry import Telemetry
from app.telemetry.tracing import TracingError
from app.watch.watcher import Watcher
from app.worker import Loaded, Worker, load
from models.files.errors import CheckpointError
from tables.store_errors import StoreError

log = logging.getLogger(__name__)

_GOODBYE_S = 10.0
_HURRY_S = 2.0


class ParleyApp(consumer.App):
    """`loaded` is set once the command line has prepared the worker, `worker` while it runs."""

    parley: Settings
    group: FaustGroup
    loaded: Loaded | None = None
    worker: Worker | None = None
    telemetry: Telemetry
    watcher: Watcher
    take_overs: TakeOvers
    watching: asyncio.Task[None] | None = None
    held: ExitStack
    exit_code: int | None = None
    leaving: asyncio.Future[None] | None = None

    async def stop(self) -> None:
        """Hand the partitions on while records still flow, so that no request waits for what is closed after that."""
        try:
            await self._leave_once()
        finally:
            await super().stop()

    async def leave(self) -> None:
        """As `stop`, but for a process that ends right after: Faust's own services stay as they are."""
        try:
            await self._leave_once()
        finally:
            await _close(self)

    def hurry(self) -> None:
        """Leave without the rest of the grace period."""
        if self.worker is not None:
            self.worker.partitions.hurry()

    async def _leave_once(self) -> None:
        """Leave, or wait for a departure that has begun: signals and Faust may both ask for it."""
        if self.leaving is None:
            self.leaving = asyncio.ensure_future(self._leave())
        await self.leaving

    async def _leave(self) -> None:
        if self.watching is not None:  # a start may fail before that
            self.watching.cancel()
        if self.worker is not None:
            await self.worker.release(broken=self.exit_code is not None)
            if await self.group.leave():
                await self.watcher.left()
                log.info("the group goes on without this worker")
            else:
                session_s = self.parley.session_timeout_s
                log.warning("Kafka has not confirmed that this worker leaves; the group notices within %g s", session_s)

    async def on_start(self) -> None:
        assert self.loaded is not None
        self.worker = worker = Worker(
            self.parley,
            self.loaded,
            self.group,
            self.end_with,
            observer=self.telemetry.observer,
            taken_over=lambda one: self.take_overs.add(one, worker.partitions.all.values()),
        )
        try:
            await self.worker.start()
        except CheckpointError as error:
            # This check has to compute an embedding, so it runs after the others; the group has not been joined yet.
            await asyncio.gather(*(engine.stop() for engine in self.worker.engines), return_exceptions=True)
            report(str(error))
            end_process(ExitCode.WRONG_USE)
        self.telemetry.start()
        self.watching = asyncio.ensure_future(self.group.watch())
        self.watcher.serve()
        await super().on_start()

    def end_with(self, error: BaseException) -> None:
        """End the process; the next owners continue what is unfinished."""
        if self.exit_code is None:
            is_mismatch = isinstance(error, IndexMismatchError)
            is_wrong_setup = is_mismatch or (isinstance(error, StoreError) and error.is_wrong_setup)
            self.exit_code = ExitCode.WRONG_USE if is_wrong_setup else ExitCode.FAILED
            is_explained = is_wrong_setup or isinstance(error, StoreError)
            log.critical("the worker stops: %s", error, exc_info=None if is_explained else error)
            quiet.end_told()
            self._ending = asyncio.ensure_future(self.crash(error))


class ParleyWorker(quiet.QuietWorker):
    """Faust's worker process; it loads the models before it starts, and its exit code says why it ended."""

    app: ParleyApp
    _signals = 0

    def __init__(self, *services: Any, loop: asyncio.AbstractEventLoop, **options: Any) -> None:
        super().__init__(*services, loop=tuning.quick_loop(loop), **options)

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
        self.open_log()
        try:
            prepare(self.app)
        except (Unusable, KafkaAwayError) as error:
            report(str(error))
            raise SystemExit(ExitCode.WRONG_USE if isinstance(error, Unusable) else ExitCode.FAILED) from None
        try:
            super().execute_from_commandline()
        except SystemExit as end:
            code = end.code if self.app.exit_code is None else self.app.exit_code
        else:
            code = self.app.exit_code
        end_process(code if isinstance(code, int) else ExitCode.FAILED if code else 0)


def prepare(app: ParleyApp) -> None:
    """Check the setup and load the models; raises `Unusable` and `KafkaAwayError`."""
    if (strangers := app.group.strangers()) is not None:
        raise Unusable(strangers)
    with quiet.unheard("aiokafka"):  # it logs each try
        check_setup(app.parley, app.held, (app.conf.web_bind, app.conf.web_port) if app.conf.web_enabled else None)
    app.watcher.start()
    what, began = _what_is_loaded(app.parley), time.monotonic()
    log.info("Kafka at %s answers; loading %s", app.parley.cluster, what)
    try:
        with told_while_it_lasts(f"loading {what}"), uncollected():
            app.loaded = load(app.parley, lambda line: app.end_with(RuntimeError(line)))
    except LoadError as error:
        raise Unusable(str(error)) from None
    tune_interpreter()
    log.debug("loaded in %.1f s", time.monotonic() - began)


def _what_is_loaded(parley: Settings) -> str:
    try:
        others = [spec.path or name for name, spec in read_policy(parley).models.items()]
    except PolicyError as error:
        raise Unusable(str(error)) from None
    models = list(dict.fromkeys([parley.model if parley.engine != "paced" else "paced", *others]))
    embedder = f" and the embedder {parley.embedder}" if parley.has_index else ""
    return f"the model{'s' if models[1:] else ''} {', '.join(models)}{embedder}"


def _about(app: ParleyApp) -> str:
    """What whoever starts a worker wants to know once it is ready."""
    parley, worker = app.parley, app.worker
    assert worker is not None, "a worker is ready once it has started"
    index = "no index"
    if parley.has_index:
        trouble = worker.index_figures.trouble
        index = f"index in Milvus at {parley.milvus_uri}{f' ({trouble})' if trouble else ''}"
    web = f"health and metrics at http://{app.conf.web_bind}:{app.conf.web_port}"
    return "; ".join([
        f"{len(worker.partitions.all)} of {parley.partitions} partitions of the group {parley.group}",
        index,
        *([web] if app.conf.web_enabled else []),
        "try `parley chat --user you`, or `parley gateway` for HTTP",
    ])  # fmt: skip


def create_app(parley: Settings) -> ParleyApp:
    quiet.hide_banner()
    quiet.tell_wrong_use_in_one_line()
    commands.tell_about_parley(parley)
    quiet.as_libraries(ParleyApp, ParleyWorker, *consumer.SERVICES)
    app = ParleyApp(
        parley.group,
        datadir=str(parley.data_dir / "faust"),
        Worker=ParleyWorker,
        worker_redirect_stdouts=False,
        # Health and metrics name tenants; `--web-bind` opens them to other machines.
        web_bind="127.0.0.1",
        web_router_enabled=False,
        web_tables_enabled=False,
        web_graph_enabled=False,
        web_stats_enabled=False,
        logging_config=faust_logging(parley.log_format, is_terminal=sys.stdout.isatty()),
        **group.options(parley),
    )
    app.parley = parley
    app.held = ExitStack()
    app.watcher = Watcher(parley)
    app.group = FaustGroup(app, parley, lambda: app.worker, app.end_with, app.watcher.joined)
    app.take_overs = TakeOvers(lambda: _about(app))
    app.on_partitions_assigned.connect(_assigned, weak=False)
    app.telemetry = Telemetry(parley, lambda: app.worker, lambda: app.watcher.figures)
    app.telemetry.add_pages(app)
    app.on_before_shutdown.connect(_close, weak=False)
    return app


async def _assigned(app: ParleyApp, assigned: Iterable[TP], **_: Any) -> None:
    app.take_overs.assigned({at.partition for at in assigned})


async def _close(app: ParleyApp, **_: Any) -> None:
    app.take_overs.stop()
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
    except (SettingsError, TracingError, KafkaSetupError) as error:
        report(str(error))
        raise SystemExit(ExitCode.WRONG_USE) from None


app = _create()
