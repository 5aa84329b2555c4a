"""The chart in a namespace of the restricted Pod Security Standard, beside one broker that is a pod as well."""

from __future__ import annotations

import os
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from tests.integration.deploy.control_plane import VOLUMES, ControlPlane
from tests.integration.deploy.test_control_plane import CHART, CUSTOM
from tests.operations.stage import KEY
from tests.pods.image import KAFKA, PARLEY

SPACE, BESIDE = "chat", "beside"
RELEASE = "parley"
BROKER = "10.0.0.50"
PARTITIONS = 4
PATIENCE_S = 300.0
_USER = 10001
_VOLUMES = 3
_TOLD = {"Killing", "SuccessfulCreate", "SuccessfulDelete", "Scheduled", "Started", "Unhealthy", "BackOff"}


class Chart:
    def __init__(self, folder: Path, plane: ControlPlane) -> None:
        self._folder = folder
        self._plane = plane
        self.began = time.monotonic()

    def say(self, line: str) -> None:
        print(f"{time.monotonic() - self.began:6.1f} s  {line}", flush=True)

    def install(self) -> None:
        self._plane.post("/api/v1/namespaces", {"metadata": {"name": BESIDE}})
        self._plane.add_namespace(SPACE)
        self._plane.until(lambda: bool(self._plane.get(f"/api/v1/namespaces/{BESIDE}/serviceaccounts")["items"]))
        for manifest in kafka():
            self._plane.create(manifest, BESIDE)
        self.until_ready(BESIDE, 1)
        for number in range(_VOLUMES):
            self.add_volume(f"volume-{number}")
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "parley-gateway"}}
        self._plane.create(secret | {"stringData": {"PARLEY_GATEWAY_API_KEYS": f"{KEY}=shop/*"}}, SPACE)
        for manifest in self.manifests(VALUES):
            if manifest["apiVersion"] not in CUSTOM:
                self._plane.create(manifest, SPACE)

    def add_volume(self, name: str) -> None:
        folder = self._folder / name
        folder.mkdir()
        os.chown(folder, _USER, _USER)
        self._plane.post("/api/v1/persistentvolumes", volume(name, folder))

    def manifests(self, values: dict[str, Any], release: str = RELEASE) -> list[dict[str, Any]]:
        file = self._folder / f"{release}.yaml"
        file.write_text(yaml.safe_dump(values))
        command = ["helm", "template", release, str(CHART), "--namespace", SPACE, "--values", str(file)]
        made = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
        return [one for one in yaml.safe_load_all(made) if one]

    def pods(self, part: str, space: str = SPACE, release: str = RELEASE) -> list[dict[str, Any]]:
        labels = {"part": part} | ({"release": release} if space == SPACE else {})
        found = [one for one in self._plane.pods(space) if labels.items() <= one["metadata"]["labels"].items()]
        return sorted(found, key=lambda one: one["metadata"]["name"])

    def until_ready(self, space: str, pods: int, newer_than: float = 0.0, release: str = RELEASE) -> None:
        """Wait until so many pods are ready, none older, and the release has no other pod."""

        def hold() -> bool:
            found = [one for one in self._plane.pods(space) if one["status"].get("phase") != "Succeeded"]
            found = [one for one in found if one["metadata"]["labels"].get("release", RELEASE) == release]
            return len(found) == pods and all(is_ready(one) and born(one) >= newer_than for one in found)

        self._plane.until(hold, PATIENCE_S)

    def show(self, space: str = SPACE) -> None:
        self.say(f"{'NAME':34} READY  STATUS     RESTARTS  AGE   NODE")
        for pod in self._plane.pods(space):
            status = pod["status"]
            age = time.time() - born(pod)
            name = pod["metadata"]["name"]
            line = f"{name:34} {int(is_ready(pod))}/1    {status['phase']:10} {restarts(pod):8}  {age:3.0f}s"
            self.say(f"{line}  {pod['spec'].get('nodeName', '')}")

    def address(self, release: str = RELEASE) -> str:
        service = self._plane.get(f"/api/v1/namespaces/{SPACE}/services/{release}-gateway")
        return f"http://{service['spec']['clusterIP']}"

    def endpoints(self) -> int:
        subsets = self._plane.get(f"/api/v1/namespaces/{SPACE}/endpoints/parley-gateway").get("subsets") or []
        return sum(len(one.get("addresses") or ()) for one in subsets)

    def upgrade(self) -> None:
        """As `helm upgrade` with another value: the pods' template changes."""
        changed = {"spec": {"template": {"metadata": {"annotations": {"upgraded": datetime.now(UTC).isoformat()}}}}}
        for kind, name in (("statefulsets", "parley-worker"), ("deployments", "parley-gateway")):
            self._plane.patch(f"/apis/apps/v1/namespaces/{SPACE}/{kind}/{name}", changed)

    def remove(self, pod: dict[str, Any], grace_s: int | None = None) -> None:
        self._plane.delete(f"/api/v1/namespaces/{SPACE}/pods/{pod['metadata']['name']}", grace_s)

    def evict(self, pod: dict[str, Any]) -> None:
        """What `kubectl drain` asks for each pod, until the disruption budget lets it."""
        name = pod["metadata"]["name"]
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": SPACE}}

        def evicted() -> bool:
            try:
                self._plane.post(f"/api/v1/namespaces/{SPACE}/pods/{name}/eviction", body)
            except AssertionError as refused:
                if "disruption budget" not in str(refused):
                    raise
                return False
            return True

        self._plane.until(evicted, PATIENCE_S)

    def events(self, since: float) -> None:
        """Those of the pods that begin, end or fail, by the second since then."""
        found = self._plane.get(f"/api/v1/namespaces/{SPACE}/events")["items"]
        told = [(at, one) for one in found if one["reason"] in _TOLD and (at := event_at(one)) >= int(since)]
        for at, one in sorted(told, key=lambda both: both[0]):
            name, message = one["involvedObject"]["name"], one["message"][:70]
            self.say(f"event at {at - since:4.0f} s: {name}: {one['reason']}: {message}")


VALUES: dict[str, Any] = {
    "image": dict(zip(("repository", "tag"), PARLEY.rsplit(":", 1), strict=True)) | {"pullPolicy": "Never"},
    "config": {
        "PARLEY_BROKER": f"kafka://{BROKER}:9092",
        "PARLEY_PARTITIONS": str(PARTITIONS),
        "PARLEY_REPLICATION": "1",
        "PARLEY_ENGINE": "paced",
        "PARLEY_PACED_TOKENS_PER_S": "20",
        "PARLEY_EMBEDDER": "none",
        "PARLEY_DRAIN_S": "3",
    },
    "worker": {
        "replicas": 2,
        "resources": {"requests": {"cpu": "50m", "memory": "100Mi"}, "limits": {"memory": "3Gi"}},
        "storage": {"size": "1Gi", "className": VOLUMES},
    },
    "gateway": {"replicas": 2, "resources": {"requests": {"cpu": "50m", "memory": "100Mi"}}},
}


def volume(name: str, folder: Path, storage_class: str = VOLUMES, mode: str = "ReadWriteOnce") -> dict[str, Any]:
    spec = {"storageClassName": storage_class, "capacity": {"storage": "1Gi"}, "accessModes": [mode]}
    return {"metadata": {"name": name}, "spec": spec | {"hostPath": {"path": str(folder)}}}


def kafka() -> list[dict[str, Any]]:
    compose = yaml.safe_load((CHART.parents[1] / "compose.yaml").read_text())["services"]["kafka"]
    settings = {name: str(value) for name, value in compose["environment"].items()}
    settings |= {
        "KAFKA_ADVERTISED_LISTENERS": f"PLAINTEXT://{BROKER}:9092",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9093",
    }
    container = {
        "name": "kafka",
        "image": KAFKA,
        "imagePullPolicy": "Never",
        "env": [{"name": name, "value": value} for name, value in settings.items()],
        "readinessProbe": {"tcpSocket": {"port": 9092}, "periodSeconds": 2},
    }
    spec = {"containers": [container], "automountServiceAccountToken": False, "enableServiceLinks": False}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "kafka", "labels": {"part": "kafka"}}, "spec": spec}
    ports = {"selector": {"part": "kafka"}, "clusterIP": BROKER, "ports": [{"port": 9092}]}
    return [pod, {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "kafka"}, "spec": ports}]


def is_ready(pod: dict[str, Any]) -> bool:
    conditions = {one["type"]: one["status"] for one in pod["status"].get("conditions", ())}
    return conditions.get("Ready") == "True" and "deletionTimestamp" not in pod["metadata"]


def restarts(pod: dict[str, Any]) -> int:
    return sum(one["restartCount"] for one in pod["status"].get("containerStatuses", ()))


def instant(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def event_at(event: dict[str, Any]) -> float:
    return instant(event["lastTimestamp"] or event["eventTime"] or event["metadata"]["creationTimestamp"])


def born(pod: dict[str, Any]) -> float:
    return instant(pod["metadata"]["creationTimestamp"])
