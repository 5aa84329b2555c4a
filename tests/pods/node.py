"""Kubernetes nodes on this machine, which share its network. They need root, and these programs on the PATH.

Debian has containerd, runc and the CNI plugins; kubelet and kube-proxy 1.31 are built from Kubernetes' Go modules.
"""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
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
PODS = "10.77.0.0/16"
_CNI = "/usr/lib/cni"
_CONNTRACK = ("established", "close-wait")
_CGROUPS = Path("/sys/fs/cgroup")
_KERNEL = ("vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops")
"""What a kubelet changes for the whole machine."""
_CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 3)"


class Node:
    """Containerd with the images of this archive, and a kubelet, beside a control plane. The first node has the
    kube-proxy, because all have one network.
    """

    def __init__(self, folder: Path, plane: ControlPlane, images: Path, number: int = 1) -> None:
        self.name = f"node-{number}"
        self._number = number
        self._bridge = f"parley{number}"
        self._kernel = {name: Path("/proc/sys", name).read_text() for name in _KERNEL}
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
        if self._number == 1:
            subprocess.run(["kube-proxy", "--cleanup"], check=False, capture_output=True, timeout=60)
            _remove_rules_of_kubelet()
        subprocess.run(["ip", "link", "delete", self._bridge], check=False, capture_output=True)
        for folder in self._cgroups():
            _remove_cgroups(folder)
        for name, value in self._kernel.items():
            Path("/proc/sys", name).write_text(value)
        for mount in psutil.disk_partitions(all=True):
            if Path(mount.mountpoint).is_relative_to(self._folder):
                subprocess.run(["umount", "--lazy", mount.mountpoint], check=False)

    @property
    def _cgroup(self) -> str:
        return f"parley-{self.name}"

    def _cgroups(self) -> list[Path]:
        """One, or with version 1 one of each controller."""
        is_unified = (_CGROUPS / "cgroup.controllers").exists()
        return [one / self._cgroup for one in ([_CGROUPS] if is_unified else _CGROUPS.iterdir())]

    def _start(self) -> None:
        for folder in self._cgroups():
            folder.mkdir(exist_ok=True)
        config = self._folder / "containerd.toml"
        config.write_text(_containerd(self._folder, self._bridge, f"10.77.{self._number}.0/24"))
        self._run("containerd", f"--config={config}")
        ctr = ["ctr", f"--address={self._socket}", "--namespace=k8s.io"]
        ask = [*ctr, "--connect-timeout=1s", "version"]
        self._plane.until(lambda: subprocess.run(ask, capture_output=True, check=False).returncode == 0)
        subprocess.run([*ctr, "images", "import", str(self._images)], check=True, capture_output=True)
        config = self._folder / "kubelet.json"
        config.write_text(json.dumps(self._kubelet()))
        common = [f"--kubeconfig={self._plane.kubeconfig}", f"--hostname-override={self.name}"]
        directories = [f"--root-dir={self._folder / 'kubelet'}", f"--cert-dir={self._folder / 'pki'}"]
        self._run("kubelet", *common, f"--config={config}", *directories, f"--node-ip={_own_address()}")
        if self._number == 1:
            self._proxy(common)
        self._plane.until(self._is_ready)

    def _proxy(self, common: list[str]) -> None:
        quiet = [f"--healthz-bind-address=127.0.0.1:{free_port()}", f"--metrics-bind-address=127.0.0.1:{free_port()}"]
        # Zero leaves the machine's own values.
        quiet += ["--conntrack-max-per-core=0", *(f"--conntrack-tcp-timeout-{one}=0s" for one in _CONNTRACK)]
        self._run("kube-proxy", *common, "--proxy-mode=iptables", f"--cluster-cidr={PODS}", *quiet)

    def suspend(self, pod: dict[str, Any]) -> None:
        for process in list(_in_cgroup(pod["metadata"]["uid"])):
            process.send_signal(signal.SIGSTOP)

    def connects(self, pod: dict[str, Any], address: str, port: int) -> bool:
        """Whether the pod's network reaches this address."""
        (first, *_) = _in_cgroup(pod["metadata"]["uid"])
        command = ["nsenter", f"--target={first.pid}", "--net", sys.executable, "-c", _CONNECT, address, str(port)]
        return subprocess.run(command, check=False, capture_output=True).returncode == 0

    def _is_ready(self) -> bool:
        nodes = [one for one in self._plane.get("/api/v1/nodes")["items"] if one["metadata"]["name"] == self.name]
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
            "cgroupRoot": f"/{self._cgroup}",
            "port": free_port(),
            "healthzPort": free_port(),
            "failSwapOn": False,
            "containerRuntimeEndpoint": f"unix://{self._socket}",
            "clusterDNS": ["10.0.0.10"],  # nothing is there: the pods know addresses
            "authentication": {"webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "address": "127.0.0.1",
            "enforceNodeAllocatable": [],
            "imageGCHighThresholdPercent": 100,  # no registry would give the sandbox's image again
            "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        }


def _containerd(folder: Path, bridge: str, pods: str) -> str:
    network = {
        "cniVersion": "0.4.0",
        "name": bridge,
        "plugins": [
            {
                "type": "bridge",
                "bridge": bridge,
                "isGateway": True,
                "hairpinMode": True,
                "ipam": {
                    "type": "host-local",
                    "ranges": [[{"subnet": pods}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                    "dataDir": f"{folder}/addresses",
                },
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


def _remove_rules_of_kubelet() -> None:
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


def _remove_cgroups(folder: Path) -> None:
    inner = [path for path in folder.glob("**/") if path != folder]
    for one in [*sorted(inner, key=lambda path: len(path.parts), reverse=True), folder]:
        with suppress(OSError):
            one.rmdir()


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
