"""KEDA, which reads the chart's ScaledObject and scales by it, as processes beside the control plane.

Its operator, its adapter and its definitions come from its Go module; `KEDA` is a folder with the programs `keda` and
`keda-adapter`, and with the files of the module's config/crd/bases in `crd`.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import trustme
import yaml

from app.local.ports import LOOPBACK, free_port
from tests.integration.deploy.control_plane import ControlPlane

SPACE = "keda"
_GROUP, _VERSION = "external.metrics.k8s.io", "v1beta1"


def folder() -> Path | None:
    """Where KEDA is, if it is anywhere."""
    given = os.environ.get("KEDA")
    return Path(given) if given and (Path(given) / "keda").exists() else None


def missing() -> str:
    return "" if folder() else "KEDA names no folder with the program keda"


def api_options(made: Path) -> list[str]:
    """What an API server needs to pass calls on to the adapter."""
    made.mkdir(parents=True, exist_ok=True)
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(made / "front-ca.pem"))
    client = authority.issue_cert("front-proxy")
    client.cert_chain_pems[0].write_to_path(str(made / "front.pem"))
    client.private_key_pem.write_to_path(str(made / "front-key.pem"))
    headers = (("username", "User"), ("group", "Group"))
    return [
        f"--requestheader-client-ca-file={made / 'front-ca.pem'}",
        f"--proxy-client-cert-file={made / 'front.pem'}",
        f"--proxy-client-key-file={made / 'front-key.pem'}",
        *(f"--requestheader-{one}-headers=X-Remote-{name}" for one, name in headers),
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
    ]


class Keda:
    def __init__(self, programs: Path, made: Path, plane: ControlPlane) -> None:
        self._programs = programs
        self._folder = made
        self._plane = plane
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._plane.post("/api/v1/namespaces", {"metadata": {"name": SPACE}})
        for file in sorted((self._programs / "crd").glob("*.yaml")):
            definition = yaml.safe_load(file.read_text())
            self._plane.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
        self._certificates()
        link, port = f"{LOOPBACK}:{free_port()}", free_port()
        certificates = f"--cert-dir={self._folder}"
        quiet = [
            f"--metrics-bind-address={LOOPBACK}:{free_port()}",
            f"--health-probe-bind-address={LOOPBACK}:{free_port()}",
        ]
        self._run("keda", certificates, f"--metrics-service-bind-address={link}", *quiet)
        config = str(self._plane.kubeconfig)
        files = [f"--tls-cert-file={self._folder / 'tls.crt'}", f"--tls-private-key-file={self._folder / 'tls.key'}"]
        roles = [f"--{one}-kubeconfig={config}" for one in ("authentication", "authorization", "lister")]
        ports = [f"--secure-port={port}", f"--bind-address={LOOPBACK}", f"--port={free_port()}"]
        self._run("keda-adapter", certificates, f"--metrics-service-address={link}", *files, *roles, *ports)
        self._pass_on(port)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.wait(60)

    def is_serving(self) -> bool:
        status = self._plane.get(f"/apis/apiregistration.k8s.io/v1/apiservices/{_VERSION}.{_GROUP}").get("status", {})
        return any(one["type"] == "Available" and one["status"] == "True" for one in status.get("conditions", ()))

    def _certificates(self) -> None:
        authority = trustme.CA()
        both = authority.issue_cert(LOOPBACK, "localhost")
        authority.cert_pem.write_to_path(str(self._folder / "ca.crt"))
        both.cert_chain_pems[0].write_to_path(str(self._folder / "tls.crt"))
        both.private_key_pem.write_to_path(str(self._folder / "tls.key"))

    def _run(self, name: str, *options: str) -> None:
        own = {
            "KUBECONFIG": str(self._plane.kubeconfig),
            "POD_NAMESPACE": SPACE,
            "KEDA_CLUSTER_OBJECT_NAMESPACE": SPACE,
            "WATCH_NAMESPACE": "",
        }
        with (self._folder / f"{name}.log").open("wb") as log:
            command = [str(self._programs / name), *options]
            self._processes.append(subprocess.Popen(command, stdout=log, stderr=log, env=os.environ | own))

    def _pass_on(self, port: int) -> None:
        """The API server asks the adapter for metrics."""
        service = {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port}]}
        self._plane.post(f"/api/v1/namespaces/{SPACE}/services", {"metadata": {"name": "adapter"}, "spec": service})
        spec: dict[str, Any] = {"group": _GROUP, "version": _VERSION, "insecureSkipTLSVerify": True}
        spec |= {"service": {"name": "adapter", "namespace": SPACE, "port": port}}
        spec |= {"groupPriorityMinimum": 100, "versionPriority": 100}
        named = {"metadata": {"name": f"{_VERSION}.{_GROUP}"}, "spec": spec}
        self._plane.post("/apis/apiregistration.k8s.io/v1/apiservices", named)
