"""Everything that can be wrong with a worker's setup, checked before the worker joins its group."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import sys
from contextlib import ExitStack, suppress
from pathlib import Path

from app.delivery.commits.changelog import create_changelogs
from app.faust import pins
from app.kafka.broker_version import check_version
from app.kafka.errors import KafkaAwayError, KafkaUnusableError
from app.kafka.patience import once_kafka_answers
from app.kafka.topic_config import TopicConfigError
from app.kafka.topics import TopicsError, check_topics, configure_topics, create_topics
from app.policy.check import read_policy
from app.policy.file import PolicyError
from app.process.folder_lock import LockedError, is_locked, locked
from app.serving.loading import LoadError, check_folders
from app.settings import Settings

_UNUSABLE = (
    pins.PinError,
    LockedError,
    TopicConfigError,
    TopicsError,
    KafkaUnusableError,
    LoadError,
    PolicyError,
)
_LOCK_S = 3.0
_PORTS = 100


class Unusable(Exception):  # noqa: N818
    """The worker cannot start with these settings; the message is one line."""


def check_setup(parley: Settings, held: ExitStack, web: tuple[str, int] | None) -> None:
    """Check the setup and lock the data directory until `held` is closed. `web`: where the web server will listen.

    Raises:
        Unusable: the setup has to be changed.
        KafkaAwayError: Kafka was unreachable for as long as the settings allow.
    """
    os.umask(0o077)  # tables hold conversations
    try:
        pins.check()
        check_folders(parley, read_policy(parley))
        _lock(parley.data_dir, held, web)
        if web is not None:
            _check_port(*web)
        asyncio.run(_check_kafka(parley))
    except KafkaAwayError:
        raise
    except _UNUSABLE as error:
        raise Unusable(str(error)) from None


def _lock(folder: Path, held: ExitStack, web: tuple[str, int] | None) -> None:
    """Lock the data directory. Two workers with one directory would be the same group member to Kafka and evict each
    other.
    """
    busy = f"{folder} is in use by another worker"
    own = f"PARLEY_DATA_DIR={_free_folder(folder)}"
    if web is not None and (port := _free_port(*web)) != web[1]:
        own += f" and --web-port {port}"
    remedy = f"stop that one, or give this one its own: {own}"
    held.enter_context(locked(folder / "lock", busy, report, _LOCK_S, remedy=remedy))


def _free_folder(folder: Path) -> Path:
    """One beside it that no worker uses."""
    others = (folder.with_name(f"{folder.name}-{number}") for number in range(2, 1000))
    return next(one for one in others if not is_locked(one / "lock"))


def _free_port(host: str, port: int) -> int:
    """This one, or the next one that is free; itself if none is."""
    for one in range(port, min(port + _PORTS, 1 << 16)):
        with suppress(Unusable):
            _check_port(host, one)
            return one
    return port


def _check_port(host: str, port: int) -> None:
    """Raise `Unusable` if the web server cannot listen, before the model is loaded."""
    try:
        addresses = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, address in addresses:
            with socket.socket(family, kind, protocol) as probe:
                # Like the server: connections of a former process in TIME_WAIT do not count.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                probe.bind(address)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise Unusable(f"port {port} is in use: choose another with --web-port") from None
        if error.errno != errno.EAFNOSUPPORT:  # a machine without IPv6 is fine
            why = error.strerror or error
            raise Unusable(f"port {port} of {host}: {why}; choose with --web-bind and --web-port") from None


async def _check_kafka(parley: Settings) -> None:
    async def check() -> None:
        if warning := await check_version(parley.cluster):
            report(f"warning: {warning}")
        await check_topics(parley)
        await create_topics(parley)
        await configure_topics(parley)
        await create_changelogs(parley)

    await once_kafka_answers(check, report)


def report(line: str) -> None:
    print(f"parley: {line}", file=sys.__stderr__, flush=True)
