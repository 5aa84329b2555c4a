"""Write the chart's values.schema.json, by which Helm refuses typos: python -m tests.unit.deploy.chart_schema

A value has the type of its default, and no other names are allowed. `_OF` has what a default cannot tell.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import yaml

from app.settings import Settings
from app.settings.names import PREFIX, RENAMED
from tests.unit.deploy.chart_table import VALUES

SCHEMA = VALUES.with_name("values.schema.json")

_INNERMOST = re.compile(r"[{\[][^{}\[\]]*[}\]]")
"""Objects and lists without others in them have a line to themselves."""
_TEXT = {"type": ["string", "integer"]}
"""What the chart writes as text, whatever YAML takes it for. A number with a point is none: 1.10 would become 1.1."""
_SCALAR = {"type": ["string", "number", "boolean", "null"]}
_TEXTS = {"type": "object", "additionalProperties": _SCALAR}
_QUANTITIES = {"type": "object", "additionalProperties": {"type": ["string", "number"]}}
_OBJECTS = {"type": "array", "items": {"type": "object"}}
_PORTS = {"type": "object", "additionalProperties": {"type": "integer", "minimum": 1, "maximum": 65535}}
_COUNT = {"type": "integer", "minimum": 0}
_NUMBER = {"type": "number", "minimum": 0}
_NOT_OURS = f"^([^P]|{'|'.join(f'{PREFIX[:n]}[^{PREFIX[n]}]' for n in range(1, len(PREFIX)))})"
"""Other variables, as HF_TOKEN: a name that does not begin with `PARLEY_`, where expressions have no "not"."""
_PEAK = {
    "type": "object",
    "properties": {
        "start": {"type": "string"},
        "end": {"type": "string"},
        "replicas": {"type": "integer", "minimum": 1},
    },
    "required": ["start", "end", "replicas"],
    "additionalProperties": False,
}


def _settings() -> dict[str, Any]:
    names = sorted({f"{PREFIX}{name.upper()}" for name in Settings.model_fields} | {*RENAMED})
    return {
        "type": "object",
        "properties": dict.fromkeys(names, _SCALAR),
        "patternProperties": {_NOT_OURS: _SCALAR},
        "additionalProperties": False,
    }


_SETTINGS = {"$ref": "#/definitions/settings"}


_OF: Mapping[str, Any] = {
    "config": _SETTINGS,
    "worker.env": _SETTINGS,
    "image.tag": _TEXT,
    "image.pullPolicy": {"enum": ["Always", "IfNotPresent", "Never"]},
    "image.pullSecrets": {"type": "array", "items": {"type": "string"}},
    "model.name": _TEXT,
    "model.folder": _TEXT,
    "gateway.service.type": {"enum": ["ClusterIP", "NodePort", "LoadBalancer"]},
    "gateway.service.port": _PORTS["additionalProperties"],
    "keda.schedule": {"type": "array", "items": _PEAK},
    "keda.prometheus.firstTokenP95": _NUMBER,
    "keda.prometheus.waitingPerWorker": _NUMBER,
    "keda.prometheus.requestsPerWorker": _NUMBER,
    "keda.prometheus.gpuUtilization": _NUMBER,
    "keda.prometheus.kvCacheUsage": _NUMBER,
    "warm.priority": {"type": "integer", "maximum": 1_000_000_000},
    "networkPolicy.ports": _PORTS,
    "networkPolicy.workerPorts": _PORTS,
    "worker.watch": {"enum": ["child", "sidecar", "off"]},
    "worker.sharedMemory": {"type": ["string", "integer"]},
    "worker.storage.size": {"type": ["string", "integer"]},
}
_BY_NAME: Mapping[str, Any] = {
    "annotations": _TEXTS,
    "podAnnotations": _TEXTS,
    "nodeSelector": _TEXTS,
    "requests": _QUANTITIES,
    "limits": _QUANTITIES,
}


def schema() -> dict[str, Any]:
    made = _of(yaml.safe_load(VALUES.read_text()), "")
    # Helm's own: what a chart around this one gives to all its parts, and whether it has this part.
    made["properties"] |= {"global": {"type": "object"}, "enabled": {"type": "boolean"}}
    return {"$schema": "http://json-schema.org/draft-07/schema#", **made, "definitions": {"settings": _settings()}}


def _of(value: object, path: str) -> dict[str, Any]:
    name = path.rpartition(".")[2]
    if path in _OF:
        return dict(_OF[path])
    if name in _BY_NAME:
        return dict(_BY_NAME[name])
    match value:
        case dict():
            parts = {key: _of(one, f"{path}.{key}" if path else key) for key, one in value.items()}
            return {"type": "object", "properties": parts, "additionalProperties": False}
        case list():
            return _OBJECTS
        case bool():
            return {"type": "boolean"}
        case int():
            return _COUNT
        case str():
            return {"type": "string"}
    raise TypeError(f"{path}: {value!r}")


def document() -> str:
    return _INNERMOST.sub(lambda found: " ".join(found[0].split()), json.dumps(schema(), indent=1)) + "\n"


if __name__ == "__main__":
    SCHEMA.write_text(document())
