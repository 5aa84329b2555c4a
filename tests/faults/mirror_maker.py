"""MirrorMaker 2 on this machine: copies Parley's topics from one cluster to another under their own names."""

from __future__ import annotations

from pathlib import Path

from app.local.kafka import find_java
from app.local.process import BackgroundProcess
from app.local.report import Report, silent
from app.local.server_properties import LOGGING, as_text
from app.settings import Settings
from tests.analytics.jars import mirror_jars

_ONE_REPLICA = (
    "replication.factor", "offset-syncs.topic.replication.factor", "checkpoints.topic.replication.factor",
    "heartbeats.topic.replication.factor", "config.storage.replication.factor", "offset.storage.replication.factor",
    "status.storage.replication.factor",
)  # fmt: skip


class MirrorMaker:
    """`source` and `target` are `host:port`. The settings name the topics."""

    def __init__(self, folder: Path, source: str, target: str, settings: Settings) -> None:
        self._folder = folder
        self._properties = {
            "clusters": "a, b",
            "a.bootstrap.servers": source,
            "b.bootstrap.servers": target,
            "a->b.enabled": "true",
            "b->a.enabled": "false",
            "a->b.topics": mirrored_topics(settings),
            "replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
            # What a transaction has not committed must not reach the other cluster, where nothing would abort it.
            "a.consumer.isolation.level": "read_committed",
            "refresh.topics.interval.seconds": "2",
            "offset.lag.max": "0",
            "emit.heartbeats.enabled": "false",
            "emit.checkpoints.enabled": "false",
            **dict.fromkeys(_ONE_REPLICA, "1"),
        }
        self.process = BackgroundProcess("MirrorMaker", f"-Dparley.folder={folder}", folder / "mirror.log")

    def start(self, report: Report = silent) -> None:
        """Start it; it begins to copy within seconds."""
        self._folder.mkdir(parents=True, exist_ok=True)
        config = self._folder / "mm2.properties"
        config.write_text(as_text(self._properties))
        (self._folder / "log4j2.properties").write_text(LOGGING)
        self.process.spawn(
            [
                str(find_java()),
                self.process.marker,
                "-Xmx384m",
                "-XX:+UseSerialGC",
                "-XX:TieredStopAtLevel=1",
                "-XX:-UsePerfData",
                f"-Dlog4j2.configurationFile={self._folder}/log4j2.properties",
                "-cp",
                ":".join(map(str, mirror_jars(report))),
                "org.apache.kafka.connect.mirror.MirrorMaker",
                str(config),
            ]
        )

    def kill(self) -> None:
        self.process.kill()


def mirrored_topics(settings: Settings) -> str:
    """A regular expression for what a second region needs: all but `tokens`, and what others derive from it."""
    names = [settings.topic(name) for name in ("requests", "controls", "turns", "erasures", "audit")]
    return "|".join([*names, settings.topic(f"{settings.app_id}-.*-changelog")])
