"""A real model in a pod, on a claim, as the chart's values `model.claim` and `model.name` say.

`PODS_MODEL` is a .gguf file or a folder of a checkpoint. The image has no PyTorch, so this environment's packages are
mounted beside it, as a claim of their own.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import httpx

from tests.integration.deploy.control_plane import ControlPlane
from tests.integration.deploy.test_control_plane import CUSTOM
from tests.operations.stage import KEY
from tests.pods.chart import PATIENCE_S, SPACE, VALUES, Chart, volume

RELEASE = "real"
_BEGINNING = "The capital of France is"
_PACKAGES = Path(sys.prefix) / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
_PYTHON_OF_IMAGE = 11


def missing() -> str:
    if not _model().exists():
        return "PODS_MODEL names no model"
    is_same = sys.version_info.minor == _PYTHON_OF_IMAGE
    return "" if is_same else f"this environment's packages are not for Python 3.{_PYTHON_OF_IMAGE}"


def _model() -> Path:
    return Path(os.environ.get("PODS_MODEL", "none"))


def ask(chart: Chart, plane: ControlPlane) -> str:
    """What the model writes behind the beginning of a sentence, which a base model can do, too."""
    for name, folder in (("models", _model().parent), ("packages", _PACKAGES)):
        plane.post("/api/v1/persistentvolumes", volume(name, folder.resolve(), name, "ReadOnlyMany"))
        spec = {
            "storageClassName": name,
            "accessModes": ["ReadOnlyMany"],
            "resources": {"requests": {"storage": "1Gi"}},
        }
        plane.post(f"/api/v1/namespaces/{SPACE}/persistentvolumeclaims", {"metadata": {"name": name}, "spec": spec})
    chart.add_volume("volume-of-the-model")
    began = time.monotonic()
    for manifest in chart.manifests(_values(), RELEASE):
        if manifest["apiVersion"] not in CUSTOM:
            plane.create(manifest, SPACE)
    chart.until_ready(SPACE, 2, release=RELEASE)
    chart.say(f"the worker with {_model().name} is ready after {time.monotonic() - began:.0f} s")
    body = {"prompt": _BEGINNING, "max_tokens": 8, "temperature": 0, "user": "nina", "model": "default"}
    headers = {"Authorization": f"Bearer {KEY}"}
    with httpx.Client(base_url=chart.address(RELEASE), timeout=PATIENCE_S, trust_env=False) as http:
        asked = time.monotonic()
        answer = http.post("/v1/completions", json=body, headers=headers).raise_for_status().json()
    said = str(answer["choices"][0]["text"])
    chart.say(f"{_BEGINNING}{said!r}, {time.monotonic() - asked:.1f} s, {answer['usage']['completion_tokens']} tokens")
    return said


def _values() -> dict[str, Any]:
    config = {name: value for name, value in VALUES["config"].items() if not name.startswith("PARLEY_PACED")}
    config |= {"PARLEY_ENGINE": "torch", "PARLEY_TOPIC_PREFIX": f"{RELEASE}-", "PARLEY_PARTITIONS": "1"}
    worker = VALUES["worker"] | {
        "replicas": 1,
        "extraEnv": [{"name": "PYTHONPATH", "value": "/packages"}],
        "extraVolumes": [{"name": "packages", "persistentVolumeClaim": {"claimName": "packages", "readOnly": True}}],
        "extraVolumeMounts": [{"name": "packages", "mountPath": "/packages", "readOnly": True}],
        "resources": {"requests": {"cpu": "1", "memory": "100Mi"}, "limits": {"memory": "6Gi"}},
    }
    model = {"name": f"/models/{_model().name}", "claim": "models"}
    return VALUES | {"config": config, "worker": worker, "model": model, "gateway": VALUES["gateway"] | {"replicas": 1}}
