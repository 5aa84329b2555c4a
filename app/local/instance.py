"""One folder, one Kafka, one Milvus: `parley local up`, `down` and `status`.

`up` checks what is running and starts the rest, on the same ports as before, so that connected clients find it again.
Two commands on one folder run one after the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from app.folder_lock import locked
from app.local.env_file import EnvFile
from app.local.errors import LocalError, LocalUsageError
from app.local.instance_ports import (
    InstancePorts,
    choose_ports,
    free_controller_port,
    remember_ports,
    remembered_ports,
    require_free,
)
from app.local.kafka import KafkaCluster, KafkaNode
from app.local.milvus import MilvusNode
from app.local.report import Report, silent
from app.settings import load_settings

Part = KafkaNode | MilvusNode


@dataclass(frozen=True, slots=True)
class Addresses:
    """Addresses in the format of the settings."""

    broker: str
    milvus_uri: str

    def as_settings(self) -> dict[str, str]:
        return {"PARLEY_BROKER": self.broker, "PARLEY_MILVUS_URI": self.milvus_uri}


@dataclass(frozen=True, slots=True)
class PartStatus:
    name: str
    where: str
    pid: int | None
    answers: bool


class LocalInstance:
    def __init__(self, folder: Path, working_directory: Path | None = None, *, takes_env_file: bool = True) -> None:
        """`takes_env_file`: write the address file even if it belongs to another instance."""
        self.folder = folder.absolute()
        self.takes_env_file = takes_env_file
        self.env_file = EnvFile(working_directory or Path.cwd(), self.folder)

    def up(self, kafka_port: int | None = None, milvus_port: int | None = None, report: Report = silent) -> Addresses:
        """Start what is not running. On a failure, what this call started is stopped again."""
        with self._locked(report):
            before = remembered_ports(self.folder)
            ports = choose_ports(before, kafka_port, milvus_port)
            if before is not None:
                self._refuse_moves(before, ports)
            kafka, milvus = self._parts(ports)
            if kafka.pid is None:
                require_free("Kafka", ports.kafka, kafka_port)
                ports = free_controller_port(ports)
                kafka, milvus = self._parts(ports)
            if milvus.pid is None:
                require_free("Milvus", ports.milvus, milvus_port)
            remember_ports(self.folder, ports)
            parts: tuple[Part, Part] = (kafka, milvus)
            missing = [part for part in parts if part.pid is None]
            addresses = Addresses(kafka.uri, milvus.uri)
            try:
                _start(missing, report)
                _wait(parts, missing, report)
                _create_topics(addresses)
            except BaseException:
                for part in missing:
                    part.kill()
                raise
            if self.takes_env_file or not self.env_file.is_of_another:
                self._take_env_file(addresses, report)
            return addresses

    def down(self, report: Report = silent) -> bool:
        """Stop everything and wait until it has exited; False if nothing was running."""
        if not self.folder.is_dir():
            return False
        with self._locked(report):
            ports = remembered_ports(self.folder)
            running = [part for part in self._parts(ports) if part.pid is not None] if ports else []
            with ThreadPoolExecutor(2) as pool:
                for part, _ in zip(running, pool.map(lambda part: part.stop(), running), strict=True):
                    report(f"{part.process.name} stopped")
            self._leave_env_file(report)
            return bool(running)

    def status(self) -> list[PartStatus]:
        """The instance's servers; empty if `up` was never called."""
        ports = remembered_ports(self.folder)
        if ports is None:
            return []
        return [
            PartStatus(part.process.name, part.uri, pid := part.pid, answers=pid is not None and part.answers())
            for part in self._parts(ports)
        ]

    def _take_env_file(self, addresses: Addresses, report: Report) -> None:
        if self.env_file.is_of_another:
            whose = self.env_file.former or "another instance"
            report(f"{self.env_file.path} had the settings of {whose}, which are replaced")
        self.env_file.write(addresses.as_settings())

    def _leave_env_file(self, report: Report) -> None:
        """Remove the file if it is this instance's, and restore the replaced settings if that instance still runs
        completely.
        """
        former = self.env_file.former
        if not self.env_file.remove() or former is None:
            return
        before = LocalInstance(former, self.env_file.path.parents[1])
        ports = remembered_ports(former)
        if ports is not None and all(part.pid is not None for part in before._parts(ports)):
            kafka, milvus = before._parts(ports)
            before.env_file.write(Addresses(kafka.uri, milvus.uri).as_settings())
            report(f"{self.env_file.path} has the settings of {former} again")

    def _parts(self, ports: InstancePorts) -> tuple[KafkaNode, MilvusNode]:
        cluster = KafkaCluster(self.folder / "kafka", ports=[(ports.kafka, ports.kafka_controller)])
        return cluster.nodes[0], MilvusNode(self.folder / "milvus", ports.milvus)

    def _refuse_moves(self, before: InstancePorts, ports: InstancePorts) -> None:
        parts: tuple[Part, Part] = self._parts(before)
        for part, port in zip(parts, (ports.kafka, ports.milvus), strict=True):
            if part.port != port and part.pid is not None:
                raise LocalUsageError(
                    f"{part.process.name} of {self.folder} is already running, on port {part.port}: "
                    "omit the port, or run `parley local down` first"
                )

    @contextmanager
    def _locked(self, report: Report) -> Iterator[None]:
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            (self.folder / "lock").touch()
        except OSError as error:
            raise LocalUsageError(f"the data folder {self.folder} cannot be used: {error.strerror}") from error
        with locked(
            self.folder / "lock", f"another `parley local` is working on {self.folder}", report, failure=LocalError
        ):
            yield


def _start(missing: Sequence[Part], report: Report) -> None:
    # Milvus first: it starts while Kafka's jars are checked and its storage is formatted.
    for part in reversed(missing):
        part.spawn(report)


def _wait(parts: Sequence[Part], missing: Sequence[Part], report: Report) -> None:
    for part in parts:
        if part not in missing:
            if not part.answers():
                raise LocalError(
                    f"{part.process.name} is running (pid {part.pid}) but does not answer on port {part.port}: "
                    f"run `parley local down` first; log: {part.process.log}"
                )
            report(f"{part.process.name} is already running at {part.uri}")
            continue
        part.wait_ready()
        report(f"{part.process.name} is up at {part.uri}")


def _create_topics(addresses: Addresses) -> None:
    from app.kafka.topics import create_topics  # noqa: PLC0415  # aiokafka takes time to import; Kafka starts meanwhile

    settings = load_settings().model_copy(update={"broker": addresses.broker})
    asyncio.run(create_topics(settings))
