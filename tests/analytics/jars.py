"""The jars of Kafka Connect, of its connector and of MirrorMaker, from Maven, with checksums."""

from __future__ import annotations

from pathlib import Path

from app.local.jars import KAFKA_VERSION, JarCache, cache_folder, read_checksums
from app.local.report import Report

CHECKSUMS = Path(__file__).with_name("jars.sha256")
RUNTIME = (
    f"org.apache.kafka:connect-runtime:{KAFKA_VERSION}",
    f"org.apache.kafka:connect-json:{KAFKA_VERSION}",
    f"org.apache.kafka:connect-transforms:{KAFKA_VERSION}",
    "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4",
)
MIRROR = (f"org.apache.kafka:connect-mirror:{KAFKA_VERSION}", *RUNTIME)
JDBC = ("io.debezium:debezium-connector-jdbc:3.3.1.Final", "org.postgresql:postgresql:42.7.8")


def runtime_jars(report: Report) -> list[Path]:
    """The class path of a worker of Connect."""
    return _jars("Kafka Connect", RUNTIME, report)


def mirror_jars(report: Report) -> list[Path]:
    """The class path of MirrorMaker, which is a worker of Connect with connectors of its own."""
    return _jars("MirrorMaker", MIRROR, report)


def jdbc_jars(report: Report) -> list[Path]:
    """The plugin: Debezium's JDBC sink and PostgreSQL's driver, without the jars that the runtime has."""
    provided = {_artifact(jar) for jar in runtime_jars(report)}
    return [jar for jar in _jars("Debezium JDBC", JDBC, report) if _artifact(jar) not in provided]


def _artifact(jar: Path) -> str:
    """A repository keeps a jar in the folder of its version, in that of its artifact."""
    return jar.parent.parent.name


def _jars(title: str, coordinates: tuple[str, ...], report: Report) -> list[Path]:
    return JarCache(cache_folder(), title, coordinates, read_checksums(CHECKSUMS)).jars(report)
