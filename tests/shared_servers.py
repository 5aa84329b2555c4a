"""One Kafka and one Milvus for all processes of `make test`: it starts them, and its processes read where they are."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from app.local.kafka import KafkaCluster, archive_of_classes
from app.local.milvus import MilvusNode
from app.local.ports import free_port
from app.local.report import LocalError

KAFKA, MILVUS = "TESTS_KAFKA", "TESTS_MILVUS"
COMPILE = "from models.kernels import library; library.load()"


@contextmanager
def running_servers() -> Iterator[dict[str, str]]:
    """Gives the variables of the processes that share them."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        _archive_classes(folder / "first")
        # Else each part that computes compiles them, six at a time.
        kernels = stack.enter_context(subprocess.Popen([sys.executable, "-c", COMPILE]))
        kafka = KafkaCluster(folder / "kafka")
        milvus = MilvusNode(folder / "milvus", free_port())
        stack.callback(kafka.kill)
        stack.callback(milvus.kill)
        kafka.start()
        milvus.start()
        kernels.wait()
        yield {KAFKA: str(kafka.nodes[0].port), MILVUS: str(milvus.port)}


def shared_kafka(folder: Path) -> KafkaCluster | None:
    port = os.environ.get(KAFKA)
    return KafkaCluster(folder, ports=[(int(port), 0)]) if port else None


def shared_milvus(folder: Path) -> MilvusNode | None:
    port = os.environ.get(MILVUS)
    return MilvusNode(folder, int(port)) if port else None


def _archive_classes(folder: Path) -> None:
    """A broker leaves them when it is stopped; those of the tests are many, and most are killed."""
    with suppress(LocalError):
        if not archive_of_classes().path.is_file():
            cluster = KafkaCluster(folder)
            cluster.start()
            cluster.stop()
