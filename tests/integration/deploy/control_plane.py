"""A Kubernetes control plane on this machine: etcd, API server, controllers and scheduler, without kubelets.

Pods are made, scheduled and evicted as in any cluster, but none runs. The nodes are objects that `add_node` creates.
The binaries have to be on the PATH; `etcd` is a package of Debian, the others are built from Kubernetes' Go modules.
"""

from __future__ import annotations

import json
import shutil
import ssl
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import httpx

from app.local.ports import LOOPBACK, free_port

BINARIES = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
MISSING = [name for name in BINARIES if shutil.which(name) is None]
CONTROLLERS = (
    "deployment-controller,replicaset-controller,statefulset-controller,persistentvolume-binder-controller,"
    "serviceaccount-controller"
)
VOLUMES = "made-by-the-test"
_START_S = 180.0
TOKEN = "admin"


class ControlPlane:
    """`api_options`: further options of the API server."""

    def __init__(self, folder: Path, controllers: str = CONTROLLERS, api_options: Sequence[str] = ()) -> None:
        self._folder = folder
        self._controllers = controllers
        self._api_options = api_options
        self.port = free_port()
        self.certificate = folder / "certificates" / "apiserver.crt"
        self._processes: list[subprocess.Popen[bytes]] = []
        self.kubeconfig = folder / "kubeconfig.json"
        self._api: httpx.Client | None = None

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._api is not None:
            self._api.close()
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def create(self, manifest: Mapping[str, Any], namespace: str) -> dict[str, Any]:
        """Create an object with strict validation of its fields; raises `AssertionError` with the server's words."""
        return self._call("POST", f"{self.path(manifest, namespace)}?fieldValidation=Strict", manifest)

    def get(self, path: str) -> dict[str, Any]:
        return self._call("GET", path)

    def patch(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return self._call("PATCH", path, body)

    def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return self._call("POST", path, body)

    def delete(self, path: str, grace_s: int | None = None) -> None:
        self._call("DELETE", path, None if grace_s is None else {"gracePeriodSeconds": grace_s})

    def pods(self, namespace: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._call("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]
        return found

    def scale(self, kind: str, name: str, namespace: str, replicas: int) -> None:
        self._call(
            "PATCH", f"/apis/apps/v1/namespaces/{namespace}/{kind}/{name}/scale", {"spec": {"replicas": replicas}}
        )

    def add_namespace(self, name: str) -> None:
        """A namespace that takes only pods of the restricted Pod Security Standard."""
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        self._call("POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
        self.until(lambda: self._exists(f"/api/v1/namespaces/{name}/serviceaccounts/default"))

    def add_node(self, name: str, labels: Mapping[str, str], room: Mapping[str, str]) -> None:
        self._call("POST", "/api/v1/nodes", {"metadata": {"name": name, "labels": {**labels}}})
        self._call("PATCH", f"/api/v1/nodes/{name}", {"spec": {"taints": None}})
        room = {"pods": "110", **room}
        ready = [{"type": "Ready", "status": "True"}]
        self._call(
            "PATCH",
            f"/api/v1/nodes/{name}/status",
            {"status": {"capacity": room, "allocatable": room, "conditions": ready}},
        )

    def add_volume(self, name: str, size: str) -> None:
        """A volume that only claims of the class `VOLUMES` take."""
        spec = {
            "storageClassName": VOLUMES,
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteOnce"],
            "hostPath": {"path": "/none"},
        }
        self._call("POST", "/api/v1/persistentvolumes", {"metadata": {"name": name}, "spec": spec})

    def path(self, manifest: Mapping[str, Any], namespace: str) -> str:
        """The collection that objects of this kind belong to, as the server names it."""
        version = manifest["apiVersion"]
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        (kind,) = (
            one
            for one in self._call("GET", root)["resources"]
            if one["kind"] == manifest["kind"] and "/" not in one["name"]
        )
        return f"{root}/namespaces/{namespace}/{kind['name']}" if kind["namespaced"] else f"{root}/{kind['name']}"

    @staticmethod
    def until(holds: Callable[[], bool], timeout_s: float = _START_S) -> None:
        give_up_at = time.monotonic() + timeout_s
        while not holds():
            assert time.monotonic() < give_up_at, f"it does not hold after {timeout_s:g} s"
            time.sleep(0.1)

    def _start(self) -> None:
        etcd, peers = f"http://{LOOPBACK}:{free_port()}", f"http://{LOOPBACK}:{free_port()}"
        self._run(
            "etcd",
            f"--data-dir={self._folder / 'etcd'}",
            f"--listen-client-urls={etcd}",
            f"--advertise-client-urls={etcd}",
            f"--listen-peer-urls={peers}",
            f"--initial-advertise-peer-urls={peers}",
            f"--initial-cluster=default={peers}",
        )
        key, tokens, certificates = self._folder / "key.pem", self._folder / "tokens.csv", self._folder / "certificates"
        subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
        tokens.write_text(f"{TOKEN},admin,admin,system:masters\n")
        self._run(
            "kube-apiserver",
            f"--etcd-servers={etcd}",
            f"--bind-address={LOOPBACK}",
            f"--secure-port={self.port}",
            f"--cert-dir={certificates}",
            f"--token-auth-file={tokens}",
            "--authorization-mode=RBAC",
            "--service-account-issuer=https://parley.test",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            *self._api_options,
        )
        self.until((certificates / "apiserver.key").exists)  # it is written behind the certificate
        self._api = httpx.Client(
            base_url=f"https://{LOOPBACK}:{self.port}",
            headers={"Authorization": f"Bearer {TOKEN}"},
            verify=ssl.create_default_context(cafile=str(self.certificate)),
            trust_env=False,
            timeout=60,
        )
        self.until(lambda: self._exists("/readyz"))
        self._write_kubeconfig()
        self._run(
            "kube-controller-manager",
            f"--kubeconfig={self.kubeconfig}",
            f"--controllers={self._controllers}",
            "--leader-elect=false",
            f"--bind-address={LOOPBACK}",
            f"--secure-port={free_port()}",
            f"--cert-dir={certificates}",
        )
        self._call(
            "POST",
            "/apis/storage.k8s.io/v1/storageclasses",
            {"metadata": {"name": VOLUMES}, "provisioner": "kubernetes.io/no-provisioner"},
        )
        self._run(
            "kube-scheduler",
            f"--kubeconfig={self.kubeconfig}",
            "--leader-elect=false",
            f"--bind-address={LOOPBACK}",
            f"--secure-port={free_port()}",
            f"--cert-dir={certificates}",
        )

    def _run(self, name: str, *options: str) -> None:
        with (self._folder / f"{name}.log").open("wb") as log:
            self._processes.append(subprocess.Popen([name, *options], stdout=log, stderr=log))

    def _write_kubeconfig(self) -> None:
        server = {"server": f"https://{LOOPBACK}:{self.port}", "insecure-skip-tls-verify": True}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "local", "cluster": server}],
            "users": [{"name": "admin", "user": {"token": TOKEN}}],
            "contexts": [{"name": "local", "context": {"cluster": "local", "user": "admin"}}],
            "current-context": "local",
        }
        self.kubeconfig.write_text(json.dumps(config))

    def _exists(self, path: str) -> bool:
        assert self._api is not None
        try:
            return self._api.get(path).status_code == httpx.codes.OK
        except httpx.TransportError:
            return False

    def _call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        assert self._api is not None
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        content = None if body is None else json.dumps(body)
        answer = self._api.request(method, path, content=content, headers={"Content-Type": kind})
        assert answer.is_success, f"{method} {path}: {answer.text}"
        found: dict[str, Any] = answer.json()
        return found
