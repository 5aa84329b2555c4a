"""The Helm chart in a real Kubernetes control plane, where one is installed."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.deploy.control_plane import MISSING, VOLUMES, ControlPlane

CHART = Path(__file__).parents[3] / "deploy" / "helm" / "parley"
PRESETS = sorted(path.stem for path in (CHART / "presets").glob("*.yaml"))
CUSTOM = {"keda.sh/v1alpha1", "monitoring.coreos.com/v1"}
"""Their definitions belong to other projects."""
MIG = "nvidia.com/mig.config"
HELM = shutil.which("helm")
pytestmark = [
    pytest.mark.skipif(bool(MISSING), reason=f"not on the PATH: {', '.join(MISSING)}"),
    pytest.mark.skipif(HELM is None, reason="helm is not on the PATH"),
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with ControlPlane(tmp_path_factory.mktemp("control-plane")) as running:
        yield running


def chart(namespace: str, *options: str) -> list[dict[str, Any]]:
    command = [str(HELM), "template", "parley", str(CHART), "--namespace", namespace, *options]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=180)
    return [one for one in yaml.safe_load_all(ran.stdout) if one and one["apiVersion"] not in CUSTOM]


def create(cluster: ControlPlane, namespace: str, manifests: list[dict[str, Any]]) -> None:
    cluster.add_namespace(namespace)
    for manifest in manifests:
        cluster.create(manifest, namespace)


@pytest.mark.parametrize("preset", PRESETS)
def test_api_server_takes_the_chart_with_each_preset(cluster: ControlPlane, preset: str) -> None:
    values = str(CHART / "presets" / f"{preset}.yaml")
    create(cluster, preset, chart(preset, "--values", values, "--set", "gateway.hpa.enabled=true,warm.replicas=1"))


def test_a_new_worker_takes_the_room_of_a_warm_pod_at_once(cluster: ControlPlane, tmp_path: Path) -> None:
    """Two nodes have one slice of a GPU each: one for a worker, one for a warm pod. A second worker comes."""
    for number in (1, 2):
        room = {"cpu": "4", "memory": "16Gi", "nvidia.com/mig-1g.10gb": "1"}
        cluster.add_node(f"node-{number}", {MIG: "test-of-warm"}, room)
        cluster.add_volume(f"volume-{number}", "20Gi")
    values = {
        "worker": {"replicas": 1, "nodeSelector": {MIG: "test-of-warm"}, "storage": {"className": VOLUMES}},
        "warm": {"replicas": 1},
    }
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    preset = str(CHART / "presets" / "mig.yaml")
    create(cluster, "warm", chart("warm", "--values", preset, "--values", str(file)))

    def nodes(part: str) -> list[str | None]:
        pods = [one for one in cluster.pods("warm") if one["metadata"]["labels"].get("part") == part]
        return sorted((one["spec"].get("nodeName") for one in pods), key=str)

    cluster.until(lambda: sorted([*nodes("worker"), *nodes("warm")], key=str) == ["node-1", "node-2"])
    cluster.scale("statefulsets", "parley-worker", "warm", 2)
    cluster.until(lambda: nodes("worker") == ["node-1", "node-2"])
    cluster.until(lambda: nodes("warm") == [None])
