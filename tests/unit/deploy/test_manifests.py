"""What stands in the manifests exists: the settings, the commands, the paths of probes, the folders of the image."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import kubernetes_validate
import pytest
import yaml

from app.commands import parley
from app.local.server_properties import Voter, server_properties
from app.settings import PREFIX, Settings

DEPLOY = Path(__file__).parents[3] / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
OLDEST, NEWEST = "1.30", "1.34"
NOT_OF_KUBERNETES = {"kustomize.config.k8s.io/v1beta1", "keda.sh/v1alpha1"}
SETTINGS = {PREFIX + name.upper() for name in Settings.model_fields}


def manifests() -> Iterator[tuple[str, dict[str, Any]]]:
    for path in sorted(KUBERNETES.glob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text()):
            yield f"{path.stem}-{document['kind']}", document


def pods() -> Iterator[tuple[str, dict[str, Any]]]:
    return ((name, one["spec"]["template"]["spec"]) for name, one in manifests() if "template" in one.get("spec", {}))


def of_kind(kind: str, name: str) -> dict[str, Any]:
    return next(one for _, one in manifests() if one["kind"] == kind and one["metadata"]["name"] == name)


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
@pytest.mark.parametrize(("name", "manifest"), list(manifests()))
def test_kubernetes_takes_it(name: str, manifest: dict[str, Any], version: str) -> None:
    if manifest["apiVersion"] not in NOT_OF_KUBERNETES:
        kubernetes_validate.validate(manifest, version, strict=True)


def test_every_setting_that_is_named_exists() -> None:
    for path in (*KUBERNETES.glob("*.yaml"), DEPLOY / "compose.yaml", DEPLOY / "container" / "Containerfile"):
        named = set(re.findall(rf"\b{PREFIX}[A-Z_]+", path.read_text())) - {"PARLEY_KEY"}
        assert named <= SETTINGS, path.name


def test_the_values_of_the_config_map_are_valid() -> None:
    (generated,) = of_kustomization()["configMapGenerator"]
    values = dict(literal.split("=", 1) for literal in generated["literals"])
    Settings(_env_file=None, **{name.removeprefix(PREFIX).lower(): value for name, value in values.items()})


def of_kustomization() -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((KUBERNETES / "kustomization.yaml").read_text())
    return content


@pytest.mark.parametrize(("name", "pod"), list(pods()))
def test_commands_and_probes_are_those_of_parley(name: str, pod: dict[str, Any]) -> None:
    (container,) = pod["containers"]
    program, *arguments = container["command"]
    assert program in {"parley", "faust"}
    if program == "parley":
        assert arguments[0] in parley.list_commands(click.Context(parley))
    for kind, path in (("startup", "/healthz"), ("liveness", "/healthz"), ("readiness", "/readyz")):
        if (probe := container.get(f"{kind}Probe")) is not None:
            assert probe["httpGet"]["path"] == path
            assert probe["httpGet"]["port"] in {port["name"] for port in container["ports"]}


def test_a_pod_is_killed_only_after_its_drain() -> None:
    (generated,) = of_kustomization()["configMapGenerator"]
    values = dict(literal.split("=", 1) for literal in generated["literals"])
    grace = of_kind("StatefulSet", "parley-worker")["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert grace >= 2 * float(values["PARLEY_DRAIN_S"])


def test_the_workers_folder_is_on_its_volume() -> None:
    (container,) = of_kind("StatefulSet", "parley-worker")["spec"]["template"]["spec"]["containers"]
    (mount,) = [mount for mount in container["volumeMounts"] if mount["name"] == "data"]
    assert {"name": "PARLEY_DATA_DIR", "value": mount["mountPath"]} in container["env"]
    assert f"PARLEY_DATA_DIR={mount['mountPath']}" in (DEPLOY / "container" / "Containerfile").read_text()


def test_keda_never_scales_beyond_the_partitions() -> None:
    (generated,) = of_kustomization()["configMapGenerator"]
    assert "PARLEY_PARTITIONS=32" in generated["literals"]
    assert of_kind("ScaledObject", "parley-worker")["spec"]["maxReplicaCount"] == 32


def test_the_parts_of_compose_wait_for_parts_that_are_there() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    for service in services.values():
        assert set(service.get("depends_on", {})) <= set(services)
    assert {"kafka", "milvus", "topics", "worker", "gateway"} == set(services)


def test_the_broker_of_compose_ends_open_transactions_as_soon_as_a_local_one() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    me = Voter(1, 9092, 9093)
    name = "transaction.max.timeout.ms"
    local = server_properties(me, (me,), Path("data"))[name]
    assert str(services["kafka"]["environment"]["KAFKA_TRANSACTION_MAX_TIMEOUT_MS"]) == local


@pytest.mark.parametrize(("name", "pod"), list(pods()))
def test_a_pod_keeps_to_the_restricted_pod_security_standard(name: str, pod: dict[str, Any]) -> None:
    assert pod["automountServiceAccountToken"] is False
    context = pod["securityContext"]
    assert context["runAsNonRoot"] is True
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    assert all("emptyDir" in volume for volume in pod.get("volumes", ()))
    (container,) = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {"name": "tmp", "mountPath": "/tmp"} in container["volumeMounts"]
    assert "memory" in container["resources"]["limits"]


def test_a_part_gets_only_its_own_secrets() -> None:
    given = {
        name: {source["secretRef"]["name"] for source in pod["containers"][0]["envFrom"] if "secretRef" in source}
        for name, pod in pods()
    }
    assert given == {
        "gateway-Deployment": {"parley-gateway", "parley-kafka", "parley-milvus"},
        "worker-StatefulSet": {"parley-kafka", "parley-milvus"},
        "topics-Job": {"parley-kafka"},
    }


def test_each_pod_has_a_network_policy_and_its_metrics_are_for_the_monitoring() -> None:
    policies = {one["metadata"]["name"]: one["spec"] for _, one in manifests() if one["kind"] == "NetworkPolicy"}
    assert policies["parley"]["podSelector"] == {"matchLabels": {"app": "parley"}}
    assert "ingress" not in policies["parley"]
    for policy, port in (("parley-gateway", "metrics"), ("parley-worker", "web")):
        (rule,) = [one for one in policies[policy]["ingress"] if {"port": port, "protocol": "TCP"} in one["ports"]]
        assert rule["from"]


def test_no_image_floats() -> None:
    assert all(one["newTag"] != "latest" for one in of_kustomization()["images"])
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    for service in services.values():
        assert service["image"] == "parley" or ":" in service["image"]
