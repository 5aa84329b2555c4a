"""The jars of Kafka Connect, of its connector and of MirrorMaker, from Maven, with checksums."""

from __future__ import annotations

from pathlib import Path

from app.local.jars import JarCache, cache_folder, read_checksums
from app.local.report import Report

FOLDER = Path(__file__).parent
CONNECT = FOLDER / "connect_jars.sha256"
MIRROR = FOLDER / "mirror_jars.sha256"
"""What it needs beside Connect's."""
JDBC = FOLDER / "jdbc_jars.sha256"
"""Debezium's JDBC sink and PostgreSQL's driver."""


def runtime_jars(report: Report) -> list[Path]:
    """The class path of a worker of Connect."""
    return JarCache(cache_folder(), "Kafka Connect", read_checksums(CONNECT)).jars(report)


def mirror_jars(report: Report) -> list[Path]:
    """The class path of MirrorMaker, which is a worker of Connect with connectors of its own."""
    return JarCache(cache_folder(), "MirrorMaker", read_checksums(CONNECT) | read_checksums(MIRROR)).jars(report)


def jdbc_jars(report: Report) -> list[Path]:
    """The plugin, without the jars that the runtime has."""
    provided = {_artifact(jar) for jar in runtime_jars(report)}
    plugin = JarCache(cache_folder(), "Debezium JDBC", read_checksums(JDBC)).jars(report)
    return [jar for jar in plugin if _artifact(jar) not in provided]


def _artifact(jar: Path) -> str:
    """A repository keeps a jar in the folder of its version, in that of its artifact."""
    return jar.parent.parent.name
