"""One folder, one Kafka, one Milvus: `parley local up`, `down` and `status`.

`up` checks what is running and starts the rest, on the same ports as before, so that connected clients find it again.
Two commands on one folder run one after the other.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from app.kafka.topics import create_topics
from app.local.env_file import EnvFile
from app.local.kafka import KafkaCluster, KafkaNode
from app.local.milvus import MilvusNode
from app.local.ports import free_port, port_is_free
from app.local.report import LocalError, LocalUsageError, Report, silent
from app.process.folder_lock import locked
from app.settings import load_settings

PORTS_FILE = "ports.json"
Part = KafkaNode | MilvusNode


@dataclass(frozen=True, slots=True)
class Endpoints:
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


@dataclass(frozen=True, slots=True)
class InstancePorts:
    """Chosen once and stored in the folder, so that a restarted server keeps its address."""

    kafka: int
    kafka_controller: int
    milvus: int


class LocalInstance:
    def __init__(self, folder: Path, working_directory: Path | None = None, *, owns_env_file: bool = True) -> None:
        """`owns_env_file`: write the address file even if it belongs to another instance."""
        self.folder = folder.absolute()
        self.owns_env_file = owns_env_file
        self.env_file = EnvFile(working_directory or Path.cwd(), self.folder)

    def up(self, kafka_port: int | None = None, milvus_port: int | None = None, report: Report = silent) -> Endpoints:
        """Start what is not running. On a failure, what this call started is stopped again."""
        with self._locked(report):
            before = remembered_ports(self.folder)
            ports = _chosen_ports(before, kafka_port, milvus_port)
            if before is not None:
                self._refuse_moves(before, ports)
            kafka, milvus = self._parts(ports)
            if kafka.pid is None:
                _require_free("Kafka", ports.kafka, kafka_port)
                ports = _with_free_controller_port(ports)
                kafka, milvus = self._parts(ports)
            if milvus.pid is None:
                _require_free("Milvus", ports.milvus, milvus_port)
            remember_ports(self.folder, ports)
            parts: tuple[Part, Part] = (kafka, milvus)
            missing = [part for part in parts if part.pid is None]
            addresses = Endpoints(kafka.uri, milvus.uri)
            try:
                _start(missing, report)
                _wait(parts, missing, report)
                _create_topics(addresses)
            except BaseException:
                for part in missing:
                    part.kill()
                raise
            if self.owns_env_file or not self.env_file.is_of_another:
                self._write_env_file(addresses, report)
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

    def _write_env_file(self, addresses: Endpoints, report: Report) -> None:
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
            before.env_file.write(Endpoints(kafka.uri, milvus.uri).as_settings())
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


def _create_topics(addresses: Endpoints) -> None:
    settings = load_settings().model_copy(update={"broker": addresses.broker})
    asyncio.run(create_topics(settings))


def remembered_ports(folder: Path) -> InstancePorts | None:
    path = folder / PORTS_FILE
    try:
        values = json.loads(path.read_text())
        return InstancePorts(**{name: int(port) for name, port in values.items()})
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise LocalError(f"{path} cannot be read ({error}): delete it") from error


def remember_ports(folder: Path, ports: InstancePorts) -> None:
    partial = folder / f"{PORTS_FILE}.part"
    partial.write_text(json.dumps(asdict(ports)))
    partial.replace(folder / PORTS_FILE)


def _chosen_ports(before: InstancePorts | None, kafka: int | None, milvus: int | None) -> InstancePorts:
    """None: as before. 0: a new free port."""
    ports = before or InstancePorts(kafka=free_port(), kafka_controller=free_port(), milvus=free_port())
    if kafka is not None:
        ports = replace(ports, kafka=kafka or free_port())
    if milvus is not None:
        ports = replace(ports, milvus=milvus or free_port())
    if ports.kafka == ports.milvus:
        raise LocalUsageError(f"Kafka and Milvus cannot both have port {ports.kafka}")
    return ports


def _with_free_controller_port(ports: InstancePorts) -> InstancePorts:
    """No client knows the controller's port, so it may change."""
    used = {ports.kafka, ports.milvus}
    while ports.kafka_controller in used or not port_is_free(ports.kafka_controller):
        ports = replace(ports, kafka_controller=free_port())
    return ports


def _require_free(name: str, port: int, given: int | None) -> None:
    if port_is_free(port):
        return
    option = f"--{name.lower()}-port"
    if given:
        raise LocalUsageError(f"port {port} is in use by another process: choose another one for {name} with {option}")
    raise LocalError(
        f"port {port}, which {name} had before, is in use by another process: "
        f"stop that process, or choose a new port with {option} 0"
    )
