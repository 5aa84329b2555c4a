"""The chart's network policies, enforced by kube-network-policies of Kubernetes' own project.

go install sigs.k8s.io/kube-network-policies/cmd@v0.8.0   # the program is called `cmd`; rename it
"""

from __future__ import annotations

import shutil
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from app.local.ports import LOOPBACK, free_port
from tests.integration.deploy.control_plane import TOKEN, ControlPlane
from tests.pods.chart import BESIDE, BROKER, Chart
from tests.pods.image import PARLEY
from tests.pods.node import PODS, Node

PROGRAM = "kube-network-policies"
MONITORING = "monitoring"
HTTPS, OUTSIDE, MILVUS = 443, 8000, 19530
_ACCOUNT = "/run/secrets/kubernetes.io/serviceaccount"
_CHAIN = "PARLEY-POLICIES"
_QUEUE = 100  # the program's default
_RULES = (
    "-m owner --uid-owner 0 -j RETURN",  # the kubelet's probes
    "-m conntrack --ctstate ESTABLISHED,RELATED -j RETURN",
    *(f"{side} {PODS} -j NFQUEUE --queue-num {_QUEUE} --queue-bypass" for side in ("-s", "-d")),
)
# It believes to be a pod: where a pod's account is mounted, in a mount namespace of its own.
_AS_A_POD = f'mount -t tmpfs none /run && mkdir -p {_ACCOUNT} && cp "$0"/* {_ACCOUNT} && exec "$@"'


def missing() -> str:
    return "" if shutil.which(PROGRAM) else f"{PROGRAM} is not on the PATH"


class PolicyEngine:
    """It drops the first packet of a connection that no policy allows.

    A rule here brings it the packets, because its own needs CONFIG_NFT_QUEUE, which some kernels lack.
    """

    def __init__(self, folder: Path, plane: ControlPlane, node: Node) -> None:
        self._folder = folder
        self._plane = plane
        self._node = node

    def __enter__(self) -> Self:
        account = self._folder / "account"
        account.mkdir(parents=True)
        (account / "token").write_text(TOKEN)
        shutil.copy(self._plane.certificate, account / "ca.crt")
        program = [PROGRAM, "--disable-nri", f"--hostname-override={self._node.name}"]
        program.append(f"--metrics-bind-address={LOOPBACK}:{free_port()}")
        where = {"KUBERNETES_SERVICE_HOST": LOOPBACK, "KUBERNETES_SERVICE_PORT": str(self._plane.port)}
        command = ["unshare", "--mount", "sh", "-c", _AS_A_POD, str(account), "env"]
        command += [*(f"{name}={value}" for name, value in where.items()), *program]
        with (self._folder / "policies.log").open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        _iptables("-N", _CHAIN)
        for rule in _RULES:
            _iptables("-A", _CHAIN, *rule.split())
        _iptables("-A", "POSTROUTING", "-j", _CHAIN)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        _iptables("-D", "POSTROUTING", "-j", _CHAIN)
        _iptables("-F", _CHAIN)
        _iptables("-X", _CHAIN)
        self._process.send_signal(signal.SIGINT)  # it removes its rules then
        self._process.wait(30)


def _iptables(*arguments: str) -> None:
    subprocess.run(["iptables", "-t", "mangle", *arguments], check=True, capture_output=True)


@dataclass(frozen=True)
class Way:
    name: str
    pod: dict[str, Any]
    address: str
    port: int
    is_allowed: bool


def ways(chart: Chart) -> list[Way]:
    """Each of them is open without policies."""
    (worker, *_), (gateway, other, *_) = chart.pods("worker"), chart.pods("gateway")
    (stranger,) = chart.pods("stranger", BESIDE)
    (monitor,) = chart.pods("stranger", MONITORING)
    at = {name: pod["status"]["podIP"] for name, pod in (("worker", worker), ("other", other), ("stranger", stranger))}
    return [
        Way("worker to Kafka", worker, BROKER, 9092, True),
        Way("gateway to Kafka", gateway, BROKER, 9092, True),
        Way("worker to Milvus' port", worker, at["stranger"], MILVUS, True),
        Way("gateway to the other gateway", gateway, at["other"], 8085, True),
        Way("gateway to port 443 (keys of tokens)", gateway, at["stranger"], HTTPS, True),
        Way("another pod to a gateway's HTTP", stranger, at["other"], 8080, True),
        Way("the monitoring to a worker's metrics", monitor, at["worker"], 6066, True),
        Way("the monitoring to a gateway's metrics", monitor, at["other"], 9464, True),
        Way("another pod to a worker's port", stranger, at["worker"], 6066, False),
        Way("another pod to a gateway's metrics", stranger, at["other"], 9464, False),
        Way("another pod to the port between gateways", stranger, at["other"], 8085, False),
        Way("worker to a gateway", worker, at["other"], 8080, False),
        Way("worker to port 443 of an address outside", worker, at["stranger"], HTTPS, False),
        Way("gateway to another port of an address outside", gateway, at["stranger"], OUTSIDE, False),
    ]


def add_strangers(plane: ControlPlane) -> None:
    """A pod of others, which listens, and one of the monitoring."""
    plane.post("/api/v1/namespaces", {"metadata": {"name": MONITORING}})
    plane.until(lambda: bool(plane.get(f"/api/v1/namespaces/{MONITORING}/serviceaccounts")["items"]))
    for space in (BESIDE, MONITORING):
        plane.create(_stranger(), space)


def _stranger() -> dict[str, Any]:
    listen = f"import socket, time\nkept = [socket.create_server(('', one)) for one in {(HTTPS, OUTSIDE, MILVUS)}]\n"
    container = {
        "name": "stranger",
        "image": PARLEY,
        "imagePullPolicy": "Never",
        "command": ["python3", "-c", f"{listen}time.sleep(1e6)"],
        "securityContext": {"runAsUser": 0},
    }
    spec = {
        "containers": [container],
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 0,
    }
    named = {"name": "stranger", "labels": {"part": "stranger"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": named, "spec": spec}
