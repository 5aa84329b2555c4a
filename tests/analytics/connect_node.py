"""A worker of Kafka Connect in distributed mode on this machine."""

from __future__ import annotations

import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from app.local.kafka import find_java
from app.local.ports import LOOPBACK, free_port
from app.local.process import BackgroundProcess
from app.local.report import Report, silent
from app.local.server_properties import LOGGING, as_text
from tests.analytics.jars import jdbc_jars, runtime_jars

DEPLOY = Path(__file__).parents[2] / "deploy" / "connect"
START_TIMEOUT_S = 180.0


class ConnectNode:
    """It has the configuration of `deploy/connect/worker.properties`, for one broker and with short timeouts."""

    def __init__(self, folder: Path, broker: str, name: str, environment: Mapping[str, str]) -> None:
        """`broker` is `host:port`; `name` is the group's; `environment` is for the connectors."""
        self._folder = folder
        self._port = free_port()
        self._environment = {**os.environ, "CONNECT_BOOTSTRAP_SERVERS": broker, **environment}
        self._properties = {
            **_properties(DEPLOY / "worker.properties"),
            "group.id": name,
            **{f"{kind}.storage.topic": f"{name}-{kind}s" for kind in ("config", "offset", "status")},
            **{f"{kind}.storage.replication.factor": "1" for kind in ("config", "offset", "status")},
            "offset.storage.partitions": "1",
            "status.storage.partitions": "1",
            "plugin.discovery": "service_load",
            "plugin.path": str(folder / "plugins"),
            "listeners": f"http://{LOOPBACK}:{self._port}",
            "session.timeout.ms": "6000",
            "heartbeat.interval.ms": "1000",
            "rebalance.timeout.ms": "6000",
            "scheduled.rebalance.max.delay.ms": "0",
            "consumer.session.timeout.ms": "6000",
            "consumer.heartbeat.interval.ms": "1000",
            "offset.flush.interval.ms": "1000",
        }
        self.process = BackgroundProcess("Kafka Connect", f"-Dparley.folder={folder}", folder / "connect.log")

    def start(self, report: Report = silent) -> None:
        """Start it and wait until it has joined its group."""
        self.spawn(report)
        self.process.wait_until(self._has_joined, START_TIMEOUT_S)

    def spawn(self, report: Report = silent) -> None:
        runtime, plugin = runtime_jars(report), jdbc_jars(report)
        jdbc = self._folder / "plugins" / "debezium-jdbc"
        jdbc.mkdir(parents=True, exist_ok=True)
        for jar in plugin:
            if not (jdbc / jar.name).exists():
                (jdbc / jar.name).symlink_to(jar)
        config = self._folder / "worker.properties"
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
                ":".join(map(str, runtime)),
                "org.apache.kafka.connect.cli.ConnectDistributed",
                str(config),
            ],
            self._environment,
        )

    def kill(self) -> None:
        self.process.kill()

    def stop(self) -> None:
        self.process.stop()

    def put(self, file: Path, **changes: str) -> str:
        """Create or change the connector of a file of `deploy/connect`; returns its name."""
        connector = json.loads(file.read_text())
        name = connector["name"]
        self._ask("PUT", f"/connectors/{name}/config", {**connector["config"], **changes})
        return str(name)

    def failures(self, name: str) -> list[str]:
        """The first line of what has ended the connector or a task of it."""
        status = self._ask("GET", f"/connectors/{name}/status")
        failed = [one for one in (status["connector"], *status["tasks"]) if one["state"] == "FAILED"]
        return [one.get("trace", "").splitlines()[0] for one in failed]

    def _has_joined(self) -> bool:
        try:
            self._ask("GET", "/connectors")
        except OSError:
            return False
        return True

    def _ask(self, method: str, path: str, body: object = None) -> Any:
        url = f"http://{LOOPBACK}:{self._port}{path}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
        for _ in range(60):
            try:
                with urllib.request.urlopen(request, timeout=30) as answer:  # our own address
                    return json.load(answer)
            except urllib.error.HTTPError as error:
                # The group rebalances, or the status has not been written yet.
                if error.code not in {404, 409, 500, 503}:
                    raise ValueError(f"{method} {path}: {error.read().decode()[:500]}") from error
                time.sleep(0.5)
        raise TimeoutError(f"{method} {path}")


def _properties(file: Path) -> dict[str, str]:
    lines = (line.strip() for line in file.read_text().splitlines())
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
