"""The Helm chart, rendered by a real helm where one is installed; HELM names another one."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import jsonschema
import kubernetes_validate
import pytest
import yaml
from parley_client.http import SILENT_S

from app.commands import parley
from app.settings import Settings
from app.settings.names import PREFIX
from tests.unit.deploy.chart_schema import SCHEMA, schema
from tests.unit.deploy.chart_schema import document as schema_document
from tests.unit.deploy.chart_table import DOCUMENT, document

CHART = Path(__file__).parents[3] / "deploy" / "helm" / "parley"
MODEL_SERVERS = CHART.parents[1] / "keda" / "model-servers.yaml"
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
HELM = os.environ.get("HELM") or shutil.which("helm")
VERSION = "1.31"
CUSTOM = {"ScaledObject", "PodMonitor"}
PRESETS = sorted((CHART / "presets").glob("*.yaml"))
OPTIONS = {
    "defaults": {},
    "everything": {
        "keda": {
            "enabled": True,
            "prometheus": {
                "address": "http://prometheus:9090",
                "requestsPerWorker": 20,
                "gpuUtilization": 0.8,
                "kvCacheUsage": 0.9,
            },
            "schedule": [{"start": "0 8 * * 1-5", "end": "0 18 * * 1-5", "replicas": 8}],
        },
        "monitoring": {"podMonitor": True},
        "gateway": {"hpa": {"enabled": True}},
        "policy": "[cache]\nttl_s = 30\n",
        "worker": {
            "gpu": {"enabled": True, "resource": "nvidia.com/mig-1g.10gb"},
            "env": {"PARLEY_ENGINE": "vllm"},
            "watch": "sidecar",
            "nodeSelector": {"spot": "true"},
            "tolerations": [{"key": "spot", "operator": "Exists"}],
        },
        "warm": {"replicas": 1},
    },
    "an own model": {
        "model": {"name": "/models/chat", "claim": "models", "folder": "llm", "adapters": "/models/adapters"},
        "image": {"pullSecrets": ["registry"]},
        "serviceAccount": {"create": True, "annotations": {"example.com/role": "chat"}},
        "worker": {
            "extraEnv": [{"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "own", "key": "token"}}}],
            "extraVolumes": [{"name": "scratch", "emptyDir": {}}],
            "extraVolumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
            "runtimeClassName": "nvidia",
        },
        "gateway": {
            "tls": {"secret": "parley-tls"},
            "ingress": {"enabled": True, "className": "nginx", "host": "chat.example.com", "tlsSecret": "chat"},
        },
    },
    "a model of the hub": {"model": {"name": "Qwen/Qwen2.5-0.5B-Instruct", "fromHub": True}},
    **{preset.stem: yaml.safe_load(preset.read_text()) for preset in PRESETS},
}
needs_helm = pytest.mark.skipif(HELM is None, reason="helm is not installed: neither HELM nor the PATH names it")


def rendered(folder: Path, values: dict[str, Any], chart: Path = CHART) -> list[dict[str, Any]]:
    file = folder / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    command = [str(HELM), "template", "parley", str(chart), "--values", str(file)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert ran.returncode == 0, ran.stderr
    return [one for one in yaml.safe_load_all(ran.stdout) if one]


def pods(manifests: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    return ((one["kind"], one["spec"]["template"]["spec"]) for one in manifests if "template" in one.get("spec", {}))


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
def test_commands_and_probes_are_those_of_parley(tmp_path: Path) -> None:
    for _, pod in pods(rendered(tmp_path, {})):
        (container,) = pod["containers"]
        program, *arguments = [one for one in container["command"] if one != "parley-init"]
        assert program in {"parley", "faust"}
        if program == "parley":
            assert arguments[0] in parley.list_commands(click.Context(parley))
        for kind, path in (("startup", "/healthz"), ("liveness", "/healthz"), ("readiness", "/readyz")):
            if (probe := container.get(f"{kind}Probe")) is not None:
                assert probe["httpGet"]["path"] == path
                assert probe["httpGet"]["port"] in {port["name"] for port in container["ports"]}


@needs_helm
def test_a_worker_and_the_watcher_beside_it_share_a_socket(tmp_path: Path) -> None:
    (pod,) = [pod for _, pod in pods(rendered(tmp_path, {"worker": {"watch": "sidecar"}})) if "initContainers" in pod]
    both = (*pod["initContainers"], *pod["containers"])
    assert [(one["name"], one.get("restartPolicy")) for one in both] == [("watch", "Always"), ("worker", None)]
    (socket,) = {value["value"] for one in both for value in one["env"] if value["name"] == "PARLEY_WATCH"}
    mounts = [{at["mountPath"]: at["name"] for at in one["volumeMounts"]} for one in both]
    assert {mount[str(Path(socket).parent)] for mount in mounts} == {"watch"}
    assert any(volume["name"] == "watch" for volume in pod["volumes"])


@needs_helm
@pytest.mark.parametrize("name", OPTIONS)
def test_a_pod_keeps_to_the_restricted_pod_security_standard(name: str, tmp_path: Path) -> None:
    for _, pod in pods(rendered(tmp_path, OPTIONS[name])):
        assert pod["automountServiceAccountToken"] is False
        assert pod["enableServiceLinks"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        known = {"emptyDir", "configMap", "secret", "persistentVolumeClaim"}
        assert all(known & volume.keys() for volume in pod.get("volumes", ()))
        (container,) = pod["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert "memory" in container["resources"]["limits"]


@needs_helm
def test_a_part_gets_only_its_own_secrets(tmp_path: Path) -> None:
    given = {
        name: {
            source["secretRef"]["name"] for source in pod["containers"][0].get("envFrom", ()) if "secretRef" in source
        }
        for name, pod in pods(rendered(tmp_path, {}))
    }
    assert given == {
        "Deployment": {"parley-gateway", "parley-gateway-peers", "parley-kafka", "parley-milvus"},
        "StatefulSet": {"parley-kafka", "parley-milvus", "parley-hub"},
        "Job": {"parley-kafka"},
    }


def environment(pod: dict[str, Any]) -> dict[str, Any]:
    return {one["name"]: one.get("value") for one in pod["containers"][0]["env"]}


@needs_helm
def test_an_own_model_is_served_from_its_claim(tmp_path: Path) -> None:
    manifests = rendered(tmp_path, OPTIONS["an own model"])
    by_kind = dict(pods(manifests))
    worker, gateway = by_kind["StatefulSet"], by_kind["Deployment"]
    assert environment(worker)["PARLEY_MODEL"] == environment(gateway)["PARLEY_MODEL"] == "/models/chat"
    assert environment(worker)["HF_HUB_OFFLINE"] == "1"
    (mount,) = [one for one in worker["containers"][0]["volumeMounts"] if one["name"] == "models"]
    assert mount == {"name": "models", "mountPath": "/models", "readOnly": True, "subPath": "llm"}
    assert {"name": "models", "persistentVolumeClaim": {"claimName": "models", "readOnly": True}} in worker["volumes"]
    assert all(pod["serviceAccountName"] == "parley" for pod in by_kind.values())
    assert all(pod["imagePullSecrets"] == [{"name": "registry"}] for pod in by_kind.values())


@needs_helm
def test_only_a_model_of_the_hub_opens_the_way_to_it(tmp_path: Path) -> None:
    for name, is_open in (("a model of the hub", True), ("an own model", False)):
        manifests = rendered(tmp_path, OPTIONS[name])
        policies = {one["metadata"]["name"]: one["spec"] for one in manifests if one["kind"] == "NetworkPolicy"}
        ports = [port["port"] for rule in policies["parley-worker"]["egress"] for port in rule["ports"]]
        assert ports == ([443] if is_open else [])
        assert ("HF_HUB_OFFLINE" in environment(dict(pods(manifests))["StatefulSet"])) != is_open


@needs_helm
def test_tls_of_gateways_is_that_of_their_probes_and_of_the_ingress_behind_it(tmp_path: Path) -> None:
    manifests = rendered(tmp_path, OPTIONS["an own model"])
    gateway = dict(pods(manifests))["Deployment"]
    (container,) = gateway["containers"]
    assert {container[f"{kind}Probe"]["httpGet"]["scheme"] for kind in ("startup", "liveness", "readiness")} == {
        "HTTPS"
    }
    assert environment(gateway)["PARLEY_GATEWAY_ADVERTISE"].startswith("https://")
    ingress = of_kind(manifests, "Ingress")
    assert ingress["metadata"]["annotations"]["nginx.ingress.kubernetes.io/backend-protocol"] == "HTTPS"
    assert ingress["metadata"]["annotations"]["nginx.ingress.kubernetes.io/proxy-buffering"] == "off"
    assert ingress["spec"]["tls"] == [{"hosts": ["chat.example.com"], "secretName": "chat"}]


def test_the_schema_is_that_of_the_values_and_settings() -> None:
    assert SCHEMA.read_text() == schema_document(), "python -m tests.unit.deploy.chart_schema"
    jsonschema.Draft7Validator.check_schema(schema())
    jsonschema.validate(VALUES, schema())


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"modle": {}}, "modle"),
        ({"model": {"nam": "x"}}, "nam"),
        ({"config": {"PARLEY_MODLE": "x"}}, "PARLEY_MODLE"),
        ({"worker": {"env": {"PARLEY_ENGIN": "vllm"}}}, "PARLEY_ENGIN"),
        ({"worker": {"env": {"PARLEY_VLLM_ARGS": {"tensor_parallel_size": 4}}}}, "tensor_parallel_size"),
        ({"worker": {"replicas": "two"}}, "two"),
        ({"worker": {"replicas": -1}}, "-1"),
        ({"worker": {"watch": "sidecars"}}, "sidecars"),
        ({"gateway": {"service": {"type": "Loadbalancer"}}}, "Loadbalancer"),
        ({"gateway": {"resources": {"limts": {}}}}, "limts"),
        ({"keda": {"schedule": [{"start": "0 8 * * *", "stop": "0 9 * * *", "replicas": 8}]}}, "stop"),
        ({"image": {"tag": 1.25}}, "1.25"),
        ({"networkPolicy": {"ports": {"kafka": "kafka"}}}, "'kafka'"),
    ],
)
def test_what_is_misspelt_is_refused_by_name(values: dict[str, Any], named: str) -> None:
    with pytest.raises(jsonschema.ValidationError, match=re.escape(named)):
        jsonschema.validate(values, schema())


def test_other_variables_and_what_helm_adds_are_no_typos() -> None:
    others = {"HF_TOKEN": "x", "OMP_NUM_THREADS": 2, "PATH": "/bin", "PARLEY_HISTORY_TURNS": 4}
    jsonschema.validate({"global": {"a": 1}, "enabled": True, "config": others, "worker": {"env": others}}, schema())


AS_WRITTEN = {
    "image": {"tag": 20261128},
    "config": {"PARLEY_PARTITIONS": 64, "PARLEY_MAX_PROMPT_BYTES": 1048576, "PARLEY_GATEWAY_KEEP": True, "A": 0.25},
    "worker": {"env": {"PARLEY_CONTEXT_LENGTH": 1000000, "B": False}, "nodeSelector": {"spot": True, "zone": 12345678}},
    "model": {"name": "/models/7", "claim": "models", "folder": 20261128},
    "gateway": {"podAnnotations": {"scrape": False}, "service": {"annotations": {"weight": 10000000}}},
    "warm": {"replicas": 1, "priority": -5000000},
    "keda": {"enabled": True, "lagThreshold": 2000000},
}


@needs_helm
def test_numbers_and_booleans_are_texts_as_they_were_written(tmp_path: Path) -> None:
    manifests = rendered(tmp_path, AS_WRITTEN)
    for manifest in manifests:
        if manifest["kind"] not in CUSTOM:
            kubernetes_validate.validate(manifest, VERSION, strict=True)
    (config,) = [one["data"] for one in manifests if one["kind"] == "ConfigMap"]
    texts = {
        "PARLEY_PARTITIONS": "64",
        "PARLEY_MAX_PROMPT_BYTES": "1048576",
        "PARLEY_GATEWAY_KEEP": "true",
        "A": "0.25",
    }
    assert texts.items() <= config.items()
    worker = of_kind(manifests, "StatefulSet")["spec"]["template"]["spec"]
    assert {"PARLEY_CONTEXT_LENGTH": "1000000", "B": "false"}.items() <= environment(worker).items()
    assert worker["nodeSelector"] == {"spot": "true", "zone": "12345678"}
    assert worker["containers"][0]["image"] == "parley:20261128"
    assert {one["name"]: one.get("subPath") for one in worker["containers"][0]["volumeMounts"]}["models"] == "20261128"
    (gateway,) = [one for one in manifests if one["kind"] == "Deployment" and "gateway" in one["metadata"]["name"]]
    annotations = gateway["spec"]["template"]["metadata"]["annotations"]
    assert annotations["scrape"] == "false"
    (service,) = [one for one in manifests if one["metadata"].get("annotations") == {"weight": "10000000"}]
    assert service["kind"] == "Service"
    assert of_kind(manifests, "PriorityClass")["value"] == -5000000
    assert of_kind(manifests, "ScaledObject")["spec"]["triggers"][0]["metadata"]["lagThreshold"] == "2000000"


@needs_helm
def test_a_variable_that_is_taken_away_is_not_there(tmp_path: Path) -> None:
    taken = {
        "config": {"PARLEY_MILVUS_URI": None, "PARLEY_LOG_FORMAT": None},
        "worker": {"env": {"PARLEY_ENGINE": None}},
    }
    manifests = rendered(tmp_path, taken)
    (config,) = [one["data"] for one in manifests if one["kind"] == "ConfigMap"]
    assert not {"PARLEY_MILVUS_URI", "PARLEY_LOG_FORMAT"} & config.keys()
    assert "PARLEY_ENGINE" not in environment(dict(pods(manifests))["StatefulSet"])


@needs_helm
def test_the_notes_name_the_secret_that_has_to_be_there(tmp_path: Path) -> None:
    chart = tmp_path / "parley"
    shutil.copytree(CHART, chart)
    text = (chart / "templates" / "NOTES.txt").read_text()  # which only an installation shows
    shown = '{{ define "notes" }}' + text + '{{ end }}\n{kind: Notes, text: {{ include "notes" . | quote }}}\n'
    (chart / "templates" / "notes.yaml").write_text(shown)
    notes = of_kind(rendered(tmp_path, {"secrets": {"gateway": "own"}}, chart), "Notes")["text"]
    assert "create secret generic own" in notes
    assert "PARLEY_GATEWAY_API_KEYS" in notes


def test_the_table_of_values_is_that_of_the_chart() -> None:
    assert DOCUMENT.read_text() == document(), "python -m tests.unit.deploy.chart_table"


@needs_helm
def test_metrics_are_for_the_monitoring(tmp_path: Path) -> None:
    manifests = rendered(tmp_path, {})
    policies = {one["metadata"]["name"]: one["spec"] for one in manifests if one["kind"] == "NetworkPolicy"}
    assert "ingress" not in policies["parley"]
    for policy, port in (("parley-gateway", "metrics"), ("parley-worker", "web")):
        (rule,) = [one for one in policies[policy]["ingress"] if {"port": port, "protocol": "TCP"} in one["ports"]]
        assert rule["from"]


def test_the_settings_of_the_values_are_valid() -> None:
    Settings(_env_file=None, **{name.removeprefix(PREFIX).lower(): value for name, value in VALUES["config"].items()})


def test_a_pod_is_killed_only_after_its_drain() -> None:
    assert VALUES["worker"]["gracePeriodSeconds"] >= 2 * float(VALUES["config"]["PARLEY_DRAIN_S"])


@needs_helm
def test_a_gateway_serves_until_its_service_has_forgotten_it(tmp_path: Path) -> None:
    pod = of_kind(rendered(tmp_path, {}), "Deployment")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    program, seconds = container["lifecycle"]["preStop"]["exec"]["command"]
    assert program == "sleep"
    drain_s = float(VALUES["config"]["PARLEY_DRAIN_S"])
    assert 0 < float(seconds) < pod["terminationGracePeriodSeconds"] - drain_s


@needs_helm
def test_a_gateway_that_hangs_is_forgotten_before_its_readers_connect_again(tmp_path: Path) -> None:
    (container,) = of_kind(rendered(tmp_path, {}), "Deployment")["spec"]["template"]["spec"]["containers"]
    probe = container["readinessProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] + probe["timeoutSeconds"] < SILENT_S


def test_keda_never_scales_beyond_the_partitions() -> None:
    assert VALUES["keda"]["max"] == int(VALUES["config"]["PARLEY_PARTITIONS"])


def test_the_workers_folder_is_on_its_volume() -> None:
    worker = (CHART / "templates" / "worker.yaml").read_text()
    (folder,) = re.findall(r"name: data, mountPath: (\S+?)}", worker)
    assert f"{{name: PARLEY_DATA_DIR, value: {folder}}}" in worker
    assert f"PARLEY_DATA_DIR={folder}" in (CHART.parents[1] / "container" / "Containerfile").read_text()


@needs_helm
def test_workers_come_by_the_objective_of_the_first_token_and_by_what_gpus_have_left(tmp_path: Path) -> None:
    values = OPTIONS["everything"] | {"config": {"PARLEY_FIRST_TOKEN_OBJECTIVE_S": "1.5"}}
    (scaled,) = (one for one in rendered(tmp_path, values) if one["kind"] == "ScaledObject")
    triggers = [one["metadata"] for one in scaled["spec"]["triggers"] if one["type"] == "prometheus"]
    thresholds = {re.findall(r"parley:\w+", one["query"])[0]: one["threshold"] for one in triggers}
    assert thresholds["parley:time_to_first_token_seconds_bucket"] == "1.5"
    assert (thresholds["parley:gpu_utilization_ratio"], thresholds["parley:kv_cache_usage_perc"]) == ("0.8", "0.9")


def test_the_manifest_of_model_servers_is_one_of_kubernetes() -> None:
    for one in yaml.safe_load_all(MODEL_SERVERS.read_text()):
        if one["kind"] not in CUSTOM:
            kubernetes_validate.validate(one, VERSION, strict=True)


@needs_helm
@pytest.mark.skipif("KEDA" not in os.environ, reason="KEDA names no folder with its definitions")
def test_kedas_own_definition_accepts_each_scaled_object(tmp_path: Path) -> None:
    """Its schema, with what it does not name refused."""
    definition = yaml.safe_load((Path(os.environ["KEDA"]) / "crd" / "keda.sh_scaledobjects.yaml").read_text())
    (version,) = definition["spec"]["versions"]
    wanted = closed(version["schema"]["openAPIV3Schema"])
    manifests = [*rendered(tmp_path, OPTIONS["everything"]), *yaml.safe_load_all(MODEL_SERVERS.read_text())]
    scaled = [one for one in manifests if one["kind"] == "ScaledObject"]
    assert len(scaled) == 2
    for one in scaled:
        jsonschema.validate(one, wanted)
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(one | {"spec": one["spec"] | {"trigger": []}}, wanted)


def closed(schema: dict[str, Any]) -> dict[str, Any]:
    """As the API server reads it: a field that the schema of an object does not name is none."""
    inner = {name: closed(one) for name, one in schema.get("properties", {}).items()}
    is_open = not inner or "additionalProperties" in schema or schema.get("x-kubernetes-preserve-unknown-fields")
    items = {"items": closed(schema["items"])} if isinstance(schema.get("items"), dict) else {}
    limit = {} if is_open else {"additionalProperties": False}
    return schema | ({"properties": inner} if inner else {}) | items | limit


@needs_helm
def test_chart_passes_the_values_on(tmp_path: Path) -> None:
    manifests = rendered(tmp_path, OPTIONS["everything"])
    worker = of_kind(manifests, "StatefulSet")["spec"]
    assert "replicas" not in worker, "KEDA decides"
    (container,) = worker["template"]["spec"]["containers"]
    assert container["resources"]["limits"]["nvidia.com/mig-1g.10gb"] == 1
    assert {"name": "PARLEY_ENGINE", "value": "vllm"} in container["env"]
    triggers = of_kind(manifests, "ScaledObject")["spec"]["triggers"]
    assert [one["type"] for one in triggers] == ["kafka", *["prometheus"] * 6, "cron"]
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
