"""Faults at a seam inside a worker: each patches one function of a real worker before it starts.

`python -m tests.faults.plugs NAME AT -- faust arguments` is a worker in which NAME happens at the AT-th call. Several
names are joined by `+`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

from aiokafka import AIOKafkaProducer
from faust.cli.faust import cli

from app.delivery.clients import Clients
from app.delivery.commits.commit import GroupCommitter
from app.delivery.resume.answer_log import AnswerLog
from app.delivery.resume.tokens import TokenLog
from app.wire.event import WAITING
from models.interface.generation import Delta, Failure, StreamEvent
from models.served import paced
from models.served.paced import VERSION, PacedStream
from tables.asleep import Part, Sleep
from tables.records import RowChange, Table, prefix_of
from tables.store import PartitionStore
from tests.faults.load import TWO_TOOLS
from tests.faults.tool_verdict import call_of

BROKER_PORTS = {
    int(address.rsplit(":", 1)[1]) for address in os.environ.get("PARLEY_BROKER", "").split(";") if ":" in address
}


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


class Countdown:
    def __init__(self, at: int) -> None:
        self._left = at

    def due(self) -> bool:
        self._left -= 1
        return self._left == 0


def _before(owner: type, name: str, at: int, happens: Callable[[], None], counts: Callable[..., bool]) -> None:
    function, countdown = getattr(owner, name), Countdown(at)

    def patched(*args: Any, **options: Any) -> Any:
        if counts(*args, **options) and countdown.due():
            happens()
        return function(*args, **options)

    setattr(owner, name, patched)


def _after(owner: type, name: str, at: int, happens: Callable[[], None]) -> None:
    function, countdown = getattr(owner, name), Countdown(at)

    async def patched(*args: Any, **options: Any) -> Any:
        result = await function(*args, **options)
        if countdown.due():
            happens()
        return result

    setattr(owner, name, patched)


def kill_in_transaction(at: int) -> None:
    """Records are sent, the transaction is open."""
    _before(GroupCommitter, "_commit_offsets", at, _die, lambda _committer, finished: bool(finished))


def kill_after_commit(at: int) -> None:
    """The transaction is committed, RocksDB does not know."""
    _before(PartitionStore, "apply", at, _die, lambda _store, changes, *_, **__: bool(changes))


def kill_after_token(at: int) -> None:
    """A token is handed to the producer, and maybe on its way."""
    _after(TokenLog, "_send", at, _die)


def kill_after_plan(at: int) -> None:
    """A decision is handed to the producer, and no token depends on it yet."""
    _after(AnswerLog, "decide", at, _die)


def kill_after_done(at: int) -> None:
    """The end is in the log, and the request is not finished."""
    _after(AnswerLog, "_end", at, _die)


def disk_full(at: int) -> None:
    def happens() -> None:
        raise RuntimeError("IO error: No space left on device")

    _before(PartitionStore, "apply", at, happens, lambda _store, changes, *_, **__: bool(changes))


def clock_jumps(at: int) -> None:
    """An hour ahead, `at` seconds after the start."""
    jumps_at = time.monotonic() + at
    clock, clock_ns = time.time, time.time_ns
    time.time = lambda: clock() + (3600 if time.monotonic() > jumps_at else 0)  # type: ignore[assignment]
    time.time_ns = lambda: clock_ns() + (3_600_000_000_000 if time.monotonic() > jumps_at else 0)  # type: ignore[assignment]


def loop_hangs(at: int) -> None:
    """The event loop stands still for longer than the session, `at` tokens after the start."""
    _after(TokenLog, "_send", at, lambda: time.sleep(12))


def through_proxy(at: int) -> None:
    """Every connection goes through the proxy on port `at`, whatever address the broker gives."""
    create = asyncio.base_events.BaseEventLoop.create_connection

    def patched(
        loop: Any, factory: Any, host: Any = None, port: Any = None, **options: Any
    ) -> Coroutine[Any, Any, Any]:
        return create(loop, factory, host, at if port in BROKER_PORTS else port, **options)

    asyncio.base_events.BaseEventLoop.create_connection = patched  # type: ignore[method-assign, assignment]


class Untransacted(AIOKafkaProducer):
    """Sends at once and commits nothing: what the finish costs is measured against it."""

    async def begin_transaction(self) -> None: ...

    async def send_offsets_to_transaction(self, offsets: Any, group_id: Any) -> None: ...

    async def commit_transaction(self) -> None: ...


def no_transactions(_at: int) -> None:
    """A former owner is not fenced, and a crash leaves halves behind."""

    def untransacted(clients: Clients, _partition: int) -> AIOKafkaProducer:
        return Untransacted(**clients.settings.cluster.options(), enable_idempotence=True, linger_ms=0)

    Clients.transactional_producer = untransacted  # type: ignore[method-assign]


def model_fails(_at: int) -> None:
    """In one of three answers the default model fails, at a token that the answer's id determines."""
    speak = PacedStream.__aiter__

    async def patched(stream: PacedStream) -> AsyncIterator[StreamEvent]:
        place = crc32(stream._job.id.encode())
        at = place // 3 % 12 if place % 3 == 0 and stream._version == VERSION else None
        async for event in speak(stream):
            if at is not None and isinstance(event, Delta) and event.index + len(event.tokens) > at:
                yield Failure(event.index, "engine_error", "the model has failed")
                return
            yield event

    PacedStream.__aiter__ = patched  # type: ignore[method-assign]


def _kill_before_head(at: int, state: Sleep) -> None:
    def counts(_store: PartitionStore, changes: Sequence[RowChange], *_: Any, **__: Any) -> bool:
        prefix, word = prefix_of(Part.WAIT.value), f'"{state.value}"'.encode()
        heads = [one for one in changes if one.table is Table.ASLEEP and one.key.startswith(prefix)]
        return any(word in (one.value or b"") for one in heads)

    _before(PartitionStore, "apply", at, _die, counts)


def kill_asleep(at: int) -> None:
    """An answer is asleep in Kafka, and RocksDB does not know."""
    _kill_before_head(at, Sleep.ASLEEP)


def kill_woken(at: int) -> None:
    """The record that wakes an answer is committed, and RocksDB does not know."""
    _kill_before_head(at, Sleep.AWAKE)


def kill_waiting(at: int) -> None:
    """The notice that an answer waits is handed to the producer, and it is not asleep yet."""
    notice, countdown = AnswerLog.notice, Countdown(at)

    async def patched(log: AnswerLog, code: str, *args: Any, **options: Any) -> None:
        await notice(log, code, *args, **options)
        if code == WAITING and countdown.due():
            _die()

    AnswerLog.notice = patched  # type: ignore[method-assign, assignment]


def two_tools(_at: int) -> None:
    """Of two tools, an answer calls the one that its prompt determines."""
    names = [tool["function"]["name"] for tool in TWO_TOOLS]
    paced.called = lambda prompt, index: call_of(prompt, index, names)


PLUGS = {
    plug.__name__: plug
    for plug in (
        kill_in_transaction,
        kill_after_commit,
        kill_after_token,
        kill_after_done,
        kill_after_plan,
        disk_full,
        clock_jumps,
        loop_hangs,
        through_proxy,
        no_transactions,
        model_fails,
        kill_asleep,
        kill_woken,
        kill_waiting,
        two_tools,
    )
}


def plug_of(name: str) -> Callable[[int], None]:
    if name.startswith("engine_"):
        from tests.faults import engine_plugs  # noqa: PLC0415 - imports torch

        return engine_plugs.PLUGS[name]
    return PLUGS[name]


def main() -> None:
    name, at, _, *arguments = sys.argv[1:]
    assert threading.current_thread() is threading.main_thread()
    for one in name.split("+"):
        plug_of(one)(int(at))
    sys.argv = [str(Path(sys.executable).with_name("faust")), *arguments]
    cli()


if __name__ == "__main__":
    main()
