"""The Helm chart, rendered by a real helm where one is installed; HELM names another one."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

CHART = Path(__file__).parents[3] / "deploy" / "helm" / "parley"
KUSTOMIZED = CHART.parents[1] / "kubernetes"
HELM = os.environ.get("HELM") or shutil.which("helm")
VERSION = "1.31"
CUSTOM = {"ScaledObject", "PodMonitor"}
PRESETS = sorted((CHART / "presets").glob("*.yaml"))
OPTIONS = {
    "defaults": {},
    "everything": {
        "keda": {
            "enabled": True,
            "prometheus": {"address": "http://prometheus:9090", "requestsPerWorker": 20},
            "schedule": [{"start": "0 8 * * 1-5", "end": "0 18 * * 1-5", "replicas": 8}],
        },
        "monitoring": {"podMonitor": True},
        "gateway": {"hpa": {"enabled": True}},
        "policy": "[cache]\nttl_s = 30\n",
        "worker": {
            "gpu": {"enabled": True, "resource": "nvidia.com/mig-1g.10gb"},
            "env": {"PARLEY_ENGINE": "vllm"},
            "nodeSelector": {"spot": "true"},
            "tolerations": [{"key": "spot", "operator": "Exists"}],
        },
        "warm": {"replicas": 1},
    },
    **{preset.stem: yaml.safe_load(preset.read_text()) for preset in PRESETS},
}
needs_helm = pytest.mark.skipif(HELM is None, reason="helm is not installed: neither HELM nor the PATH names it")


def rendered(folder: Path, values: dict[str, Any]) -> list[dict[str, Any]]:
    file = folder / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    command = [str(HELM), "template", "parley", str(CHART), "--values", str(file)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert ran.returncode == 0, ran.stderr
    return [one for one in yaml.safe_load_all(ran.stdout) if one]


def of_kind(manifests: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    (found,) = [one for one in manifests if one["kind"] == kind]
    return found


@needs_helm
@pytest.mark.parametrize("name", OPTIONS)
def test_chart_renders_what_kubernetes_accepts(name: str, tmp_path: Path) -> None:
    manifests = rendered(tmp_path, OPTIONS[name])
    for manifest in manifests:
        if manifest["kind"] not in CUSTOM:
            kubernetes_validate.validate(manifest, VERSION, strict=True)
    assert CUSTOM.issubset({one["kind"] for one in manifests}) == (name == "everything")


@needs_helm
def test_chart_runs_pods_as_the_kustomization_does(tmp_path: Path) -> None:
    """Probes, security, commands and grace periods are the same."""
    ours = rendered(tmp_path, {})
    for file, kind in (("worker.yaml", "StatefulSet"), ("gateway.yaml", "Deployment")):
        theirs = of_kind(list(yaml.safe_load_all((KUSTOMIZED / file).read_text())), kind)["spec"]["template"]["spec"]
        pod = of_kind(ours, kind)["spec"]["template"]["spec"]
        for name in ("terminationGracePeriodSeconds", "automountServiceAccountToken"):
            assert pod[name] == theirs[name]
        assert pod["securityContext"].items() >= theirs["securityContext"].items()
        (container,), (other,) = pod["containers"], theirs["containers"]
        for name in ("command", "securityContext", "startupProbe", "livenessProbe", "readinessProbe", "ports"):
            assert container[name] == other[name], name
        assert {one["name"] for one in container["env"]} == {one["name"] for one in other["env"]}


@needs_helm
def test_chart_passes_the_values_on(tmp_path: Path) -> None:
    manifests = rendered(tmp_path, OPTIONS["everything"])
    worker = of_kind(manifests, "StatefulSet")["spec"]
    assert "replicas" not in worker, "KEDA decides"
    (container,) = worker["template"]["spec"]["containers"]
    assert container["resources"]["limits"]["nvidia.com/mig-1g.10gb"] == 1
    assert {"name": "PARLEY_ENGINE", "value": "vllm"} in container["env"]
    triggers = of_kind(manifests, "ScaledObject")["spec"]["triggers"]
    assert [one["type"] for one in triggers] == ["kafka", "prometheus", "prometheus", "prometheus", "cron"]
    assert triggers[1]["metricType"] == "Value", "an average would divide the wait by the workers"
    assert triggers[0]["metadata"]["bootstrapServers"] == "kafka:9092"


@needs_helm
@pytest.mark.parametrize("name", ["mig", "spot"])
def test_warm_pods_fit_where_workers_do(name: str, tmp_path: Path) -> None:
    manifests = rendered(tmp_path, {**OPTIONS[name], "warm": {"replicas": 2}})
    (warm,) = [one for one in manifests if one["metadata"]["name"] == "parley-warm"]
    pod, worker = (one["spec"]["template"]["spec"] for one in (warm, of_kind(manifests, "StatefulSet")))
    assert warm["spec"]["replicas"] == 2
    assert of_kind(manifests, "PriorityClass")["metadata"]["name"] == pod["priorityClassName"]
    for field in ("nodeSelector", "tolerations", "securityContext"):
        assert pod[field] == worker[field]
    for field in ("image", "resources"):
        assert pod["containers"][0][field] == worker["containers"][0][field]
