"""What a page is executed on: brokers, Milvus, settings, Kafka's own tools, and the machines' owner who breaks them."""

from __future__ import annotations

import asyncio
import os
import secrets
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from app.local import ports
from app.local.jars import JarCache, cache_folder, kafka_jars, read_checksums
from app.local.kafka import KafkaCluster, KafkaNode, find_java
from app.local.milvus import MilvusNode
from app.local.ports import LOOPBACK, free_port
from app.settings import Settings
from tests.environment import environment_of

ROOT = Path(__file__).parents[2]
PARTITIONS = 4
KEY = "a-key-of-the-tenant-shop"
TOOLS = {
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
    "kafka-configs.sh": "kafka.admin.ConfigCommand",
    "kafka-consumer-groups.sh": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-console-consumer.sh": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-get-offsets.sh": "org.apache.kafka.tools.GetOffsetShell",
}
"""As `kafka-run-class.sh` starts them."""
_OFFSETS = (range(1, 10), range(11, 15), range(31, 35))
"""What the shell of the pages adds to PORTS."""
_ASK = """#!/bin/sh
name=$(basename "$0")
echo "$@" >"$ACTS/$name.part" && mv "$ACTS/$name.part" "$ACTS/$name"
while [ -e "$ACTS/$name" ]; do sleep 0.1; done
"""


@dataclass
class Stage:
    folder: Path
    nodes: list[KafkaNode]
    settings: Settings
    milvus: MilvusNode | None = None
    variables: dict[str, str] = field(default_factory=dict)
    acts: dict[str, Callable[[str], object]] = field(default_factory=dict)
    """What stands for a loss or for a new machine in a page, by the name that the page calls."""
    at_end: list[Callable[[], object]] = field(default_factory=list)
    token: Callable[[str, str], str] = lambda _user, key: key
    """As of `Callers`."""
    scheme: str = "http"
    ca_file: Path | None = None
    """The authority of the gateways' certificates."""

    def __post_init__(self) -> None:
        self.work.mkdir(parents=True)
        self._base = free_base()
        self.key_file.write_text(f"{KEY}\n")

    @property
    def work(self) -> Path:
        return self.folder / "work"

    @property
    def key_file(self) -> Path:
        return self.work / "api-key"

    @property
    def urls(self) -> list[str]:
        return [f"{self.scheme}://{LOOPBACK}:{self._base + 10 + number}" for number in (1, 2)]

    def environment(self) -> Mapping[str, str]:
        tools = self.folder / "bin"
        _write_tools(tools, [*self.acts])
        path = os.pathsep.join((str(tools), str(Path(sys.executable).parent), os.environ["PATH"]))
        return environment_of(self.settings) | {
            "PATH": path,
            "PYTHONPATH": str(ROOT),
            "KAFKA": ",".join(node.address for node in self.nodes),
            "REPOSITORY": str(ROOT),
            "PORTS": str(self._base),
            "ACTS": str(tools),
            **self.variables,
        }

    async def perform(self) -> None:
        """Do what the page's shell asks for, until this is cancelled."""
        while True:
            for name, act in self.acts.items():
                asked = self.folder / "bin" / f"{name}.asked"
                if asked.exists():
                    await asyncio.to_thread(act, asked.read_text().strip())
                    asked.unlink()
            await asyncio.sleep(0.05)

    def end(self) -> None:
        """End the servers."""
        if self.milvus is not None:
            self.milvus.kill()
        for node in self.nodes:
            node.kill()
        for finish in self.at_end:
            finish()


def new_settings(folder: Path, nodes: list[KafkaNode], **values: object) -> Settings:
    given = {
        "broker": ";".join(node.uri for node in nodes),
        "partitions": PARTITIONS,
        "replication": min(3, len(nodes)),
        "engine": "paced",
        "paced_tokens_per_s": 20.0,
        "embedder": "none",
        "standby_replicas": 1,
        "drain_s": 3.0,
        "gateway_api_keys": f"{KEY}=shop/*",
        "gateway_peer_secret": secrets.token_hex(32),
        "milvus_uri": f"http://{LOOPBACK}:{free_port()}",
        "data_dir": folder / "work" / "data" / "command",
    }
    return Settings(_env_file=None, **{**given, **values})


def kafka(folder: Path, brokers: int = 1) -> list[KafkaNode]:
    cluster = KafkaCluster(folder / "kafka", brokers)
    cluster.start()
    return cluster.nodes


def free_base() -> int:
    """A port behind which all ports of a page's parts are free."""
    while True:
        base = free_port()
        if base < 60_000 and all(_is_given(base + one) for some in _OFFSETS for one in some):
            return base


def _is_given(port: int) -> bool:
    """Whether the port is free; then no other process of this machine is given it."""
    is_given = port not in ports._held and ports.port_is_free(port) and ports._hold(port)
    if is_given:
        ports._held.add(port)
    return is_given


def mount(place: Path, megabytes: int) -> None:
    place.mkdir(parents=True)
    options = f"size={megabytes}m"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)], check=True)


def can_mount() -> bool:
    return os.geteuid() == 0 and shutil.which("mount") is not None


def _write_tools(folder: Path, acts: list[str]) -> None:
    folder.mkdir(exist_ok=True)
    tools = JarCache(
        cache_folder(), "Kafka's tools", read_checksums(Path(__file__).with_name("kafka_tools_jars.sha256"))
    )
    path = ":".join(map(str, [*kafka_jars(print), *tools.jars(print)]))
    java = shlex.join([str(find_java()), "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", path])
    for name, program in TOOLS.items():
        _write_program(folder / name, f'#!/bin/sh\nexec {java} {program} "$@"\n')
    for name in acts:
        _write_program(folder / name, _ASK.replace('"$ACTS/$name"', '"$ACTS/$name.asked"'))


def _write_program(file: Path, text: str) -> None:
    file.write_text(text)
    file.chmod(0o755)
