"""What compose.see.yaml describes, as processes: Prometheus and Alertmanager with its files, a worker and a gateway.

    unshare --net --mount python -m tests.integration.deploy.see FOLDER

In a network of its own, so that all names and ports are those of the compose file. The worker is stopped then, and what
PagerDuty would get is written as the last line, as JSON, with the targets and rules before.
"""

from __future__ import annotations

import asyncio
import json
import os
import queue
import shutil
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import httpx
import trustme
import yaml

from app.kafka.topics import create_topics
from app.local.kafka import KafkaCluster
from app.settings import Settings
from tests.faults.worker_process import WorkerProcess
from tests.integration.gateway.gateway_process import GatewayProcess

DEPLOY = Path(__file__).parents[3] / "deploy"
COMPOSE = yaml.safe_load((DEPLOY / "compose.see.yaml").read_text())
PROGRAMS = {
    "prometheus": shutil.which("prometheus"),
    "alertmanager": shutil.which("prometheus-alertmanager") or shutil.which("alertmanager"),
}
"""Debian's names, and the projects' own."""
_PAGER = "events.pagerduty.com"
_WORKER, _GATEWAY = 6066, 9464
_PATIENCE_S = 600.0


def command(service: str, made: Path) -> list[str]:
    """As its container runs it, with the files where they are here."""
    described = COMPOSE["services"][service]
    mounted = {target: str(DEPLOY / source) for source, target, *_ in (one.split(":") for one in described["volumes"])}
    options = described.get("command", ["--config.file=/etc/prometheus/prometheus.yml", "--storage.path=/prometheus"])
    for target, source in mounted.items():
        options = [one.replace(target, source) for one in options]
    options = [one.replace("=/", f"={made}/") if "storage" in one else one for one in options]
    if service == "prometheus":
        options = [one.replace("--storage.path", "--storage.tsdb.path") for one in options]
    return [str(PROGRAMS[service]), *options]


def main(folder: Path) -> dict[str, Any]:
    pages: queue.Queue[dict[str, Any]] = queue.Queue()
    _make_machine(folder)
    with ExitStack() as ending:
        _serve_pager(folder, pages)
        parts = _start_parts(folder, ending)
        for service in PROGRAMS:
            _start(service, folder, ending)
        http = ending.enter_context(httpx.Client(base_url="http://prometheus:9090/api/v1", trust_env=False))
        _until(lambda: _health(http) == {"parley-worker": "up", "parley-gateway": "up"})
        seen = {"targets": _health(http), "rules": _rules(http), "managers": _data(http, "alertmanagers")}
        parts.stop()
        return seen | {"page": pages.get(timeout=_PATIENCE_S)}


def _make_machine(folder: Path) -> None:
    names = " ".join(["localhost", "worker", "gateway", *COMPOSE["services"], _PAGER])
    (folder / "hosts").write_text(f"127.0.0.1 {names}\n")
    for line in ("link set lo up", "link add own type bridge", "addr add 10.9.0.1/24 dev own", "link set own up"):
        subprocess.run(["ip", *line.split()], check=True)  # Alertmanager wants a private address
    subprocess.run(["mount", "--bind", folder / "hosts", "/etc/hosts"], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "none", "/run"], check=True)
    Path("/run/secrets").mkdir()
    for name in COMPOSE["secrets"]:
        Path("/run/secrets", name).write_text(f"https://{_PAGER}/{name}" if name.endswith("url") else name)


def _serve_pager(folder: Path, pages: queue.Queue[dict[str, Any]]) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "pager-ca.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(_PAGER).configure_cert(context)

    class Pager(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(202)
            self.end_headers()
            pages.put(json.loads(body))

        def log_message(self, *_: object) -> None:
            """It is seen by what it gives."""

    server = HTTPServer(("127.0.0.1", 443), Pager)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()


def _start_parts(folder: Path, ending: ExitStack) -> WorkerProcess:
    kafka = KafkaCluster(folder / "kafka", 1)
    kafka.start()
    ending.callback(kafka.nodes[0].kill)
    settings = Settings(
        _env_file=None,
        broker=kafka.nodes[0].uri,
        partitions=2,
        replication=1,
        engine="paced",
        embedder="none",
        data_dir=folder / "data",
        gateway_api_keys="key-of-nina-0123=nina",  # with keys the metrics have a port of their own
    )
    asyncio.run(create_topics(settings))
    worker = WorkerProcess(settings, folder / "worker.log")
    worker.web_port = _WORKER
    worker.start()
    ending.callback(worker.stop)
    worker.wait_owning(settings.partitions)
    gateway = GatewayProcess(settings, folder / "gateway.log")
    gateway.settings = gateway.settings.model_copy(update={"gateway_metrics_port": _GATEWAY})
    ending.enter_context(gateway)
    return worker


def _start(service: str, folder: Path, ending: ExitStack) -> None:
    environment = os.environ | {"SSL_CERT_FILE": str(folder / "pager-ca.pem")}
    with (folder / f"{service}.log").open("wb") as log:
        process = subprocess.Popen(command(service, folder), stdout=log, stderr=log, env=environment, cwd=folder)
    ending.callback(process.wait, 30)
    ending.callback(process.terminate)


def _data(http: httpx.Client, what: str) -> Any:
    return http.get(f"/{what}").raise_for_status().json()["data"]


def _health(http: httpx.Client) -> dict[str, str]:
    try:
        return {one["labels"]["job"]: one["health"] for one in _data(http, "targets")["activeTargets"]}
    except httpx.HTTPError:
        return {}


def _rules(http: httpx.Client) -> dict[str, str]:
    """Each alert's rule and its health."""
    groups = _data(http, "rules")["groups"]
    return {rule["name"]: rule["health"] for group in groups for rule in group["rules"]}


def _until(holds: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + _PATIENCE_S
    while not holds():
        assert time.monotonic() < give_up_at, f"it does not hold after {_PATIENCE_S:g} s"
        time.sleep(0.5)


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
