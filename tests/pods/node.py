"""One Kubernetes node on this machine. It needs root, cgroup v1 or v2, and these programs on the PATH.

Debian has containerd, runc and the CNI plugins; kubelet and kube-proxy 1.31 are built from Kubernetes' Go modules.
"""

from __future__ import annotations

import json
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

from app.local.ports import free_port
from tests.integration.deploy.control_plane import ControlPlane
from tests.pods.image import SANDBOX

PROGRAMS = ("kubelet", "kube-proxy", "containerd", "ctr", "runc", "iptables")
NAME = "node-1"
BRIDGE = "parley0"
_PODS = "10.77.0.0/24"
_CNI = "/usr/lib/cni"
_CONNTRACK = ("established", "close-wait")


class Node:
    """Containerd with the images of this archive, kubelet and kube-proxy, beside a control plane."""

    def __init__(self, folder: Path, plane: ControlPlane, images: Path) -> None:
        self._folder = folder
        self._plane = plane
        self._images = images
        self._socket = folder / "containerd.sock"
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        self._folder.mkdir()
        try:
            self._start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for process in reversed(self._processes):
            process.terminate()
            process.wait(30)
        subprocess.run(["kube-proxy", "--cleanup"], check=False, capture_output=True, timeout=60)
        subprocess.run(["ip", "link", "delete", BRIDGE], check=False, capture_output=True)
        _remove_leftovers_of_kubelet()
        for mount in psutil.disk_partitions(all=True):
            if Path(mount.mountpoint).is_relative_to(self._folder):
                subprocess.run(["umount", "--lazy", mount.mountpoint], check=False)

    def _start(self) -> None:
        config = self._folder / "containerd.toml"
        config.write_text(_containerd(self._folder))
        self._run("containerd", f"--config={config}")
        ctr = ["ctr", f"--address={self._socket}", "--namespace=k8s.io"]
        ask = [*ctr, "--connect-timeout=1s", "version"]
        self._plane.until(lambda: subprocess.run(ask, capture_output=True, check=False).returncode == 0)
        subprocess.run([*ctr, "images", "import", str(self._images)], check=True, capture_output=True)
        config = self._folder / "kubelet.json"
        config.write_text(json.dumps(self._kubelet()))
        common = [f"--kubeconfig={self._plane.kubeconfig}", f"--hostname-override={NAME}"]
        directories = [f"--root-dir={self._folder / 'kubelet'}", f"--cert-dir={self._folder / 'pki'}"]
        self._run("kubelet", *common, f"--config={config}", *directories, f"--node-ip={_own_address()}")
        quiet = [f"--healthz-bind-address=127.0.0.1:{free_port()}", f"--metrics-bind-address=127.0.0.1:{free_port()}"]
        # Zero leaves the machine's own values.
        quiet += ["--conntrack-max-per-core=0", *(f"--conntrack-tcp-timeout-{one}=0s" for one in _CONNTRACK)]
        self._run("kube-proxy", *common, "--proxy-mode=iptables", f"--cluster-cidr={_PODS}", *quiet)
        self._plane.until(self._is_ready)

    def suspend(self, pod: dict[str, Any]) -> None:
        for process in list(_in_cgroup(pod["metadata"]["uid"])):
            process.send_signal(signal.SIGSTOP)

    def _is_ready(self) -> bool:
        nodes = self._plane.get("/api/v1/nodes")["items"]
        conditions = [one for node in nodes for one in node["status"].get("conditions", [])]
        return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

    def _run(self, name: str, *options: str) -> None:
        with (self._folder / f"{name}.log").open("wb") as log:
            self._processes.append(subprocess.Popen([name, *options], stdout=log, stderr=log))

    def _kubelet(self) -> dict[str, Any]:
        return {
            "kind": "KubeletConfiguration",
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "cgroupDriver": "cgroupfs",
            "failSwapOn": False,
            "containerRuntimeEndpoint": f"unix://{self._socket}",
            "clusterDNS": ["10.0.0.10"],  # nothing is there: the pods know addresses
            "authentication": {"webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "address": "127.0.0.1",
            "enforceNodeAllocatable": [],
            "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        }


def _containerd(folder: Path) -> str:
    network = {
        "cniVersion": "0.4.0",
        "name": "parley",
        "plugins": [
            {
                "type": "bridge",
                "bridge": BRIDGE,
                "isGateway": True,
                "ipMasq": True,
                "hairpinMode": True,
                "ipam": {"type": "host-local", "ranges": [[{"subnet": _PODS}]], "routes": [{"dst": "0.0.0.0/0"}]},
            }
        ],
    }
    (folder / "cni").mkdir(parents=True, exist_ok=True)
    (folder / "cni" / "10-parley.conflist").write_text(json.dumps(network))
    return f"""\
version = 2
root = "{folder}/root"
state = "{folder}/state"
[grpc]
  address = "{folder}/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{SANDBOX}"
  restrict_oom_score_adj = true  # without CAP_SYS_RESOURCE no score can be lowered
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{_CNI}"
    conf_dir = "{folder}/cni"
"""


def _own_address() -> str:
    """A node's address may not be that of the loopback."""
    addresses = [one.address for some in psutil.net_if_addrs().values() for one in some if one.family == socket.AF_INET]
    return next(address for address in addresses if not address.startswith(("127.", "172.17.", "10.77.")))


def _remove_leftovers_of_kubelet() -> None:
    """Its own rules of iptables, and the cgroups of its pods."""
    for table in ("mangle", "filter", "nat"):
        command = ["iptables", "-t", table]
        listed = subprocess.run([*command, "-S"], capture_output=True, text=True, check=False).stdout.splitlines()
        chains = [line.split()[1] for line in listed if line.startswith("-N KUBE-")]
        for line in listed:
            rule = line.split()
            if rule[0] == "-A" and rule[1] not in chains and rule[-1] in chains:
                subprocess.run([*command, "-D", *rule[1:]], check=False)
        for option in ("-F", "-X"):
            for chain in chains:
                subprocess.run([*command, option, chain], check=False)
    for folder in sorted(
        Path("/sys/fs/cgroup").glob("**/kubepods/**/"), key=lambda path: len(path.parts), reverse=True
    ):
        with suppress(OSError):
            folder.rmdir()


def _in_cgroup(uid: str) -> Iterator[psutil.Process]:
    """Those of a pod's containers, without the sandbox's."""
    for process in psutil.process_iter():
        try:
            groups = Path(f"/proc/{process.pid}/cgroup").read_text()
            is_sandbox = Path(process.exe()).name == "sleep"
        except (OSError, psutil.Error):
            continue
        if uid in groups and not is_sandbox:
            yield process
