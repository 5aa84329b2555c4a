"""The images of the pods, as one archive that containerd imports: Debian with Parley's packages and Kafka's jars.

PyTorch is left out, 5 GB with its CUDA, because the paced engine does not import it. Otherwise the image is as
deploy/container/Containerfile makes it: packages by `constraints.txt` in /opt/parley, user 10001. No registry of images
is asked; packages come from where uv and apt take them on this machine.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from app.local.jars import kafka_jars

ROOT = Path(__file__).parents[2]
PROGRAMS = ("debootstrap", "chroot", "tar")
PARLEY, KAFKA, SANDBOX = (
    "docker.io/library/parley:pods",
    "docker.io/apache/kafka:4.3.1",
    "docker.io/parley/sandbox:pods",
)
_USER = 10001
_SOURCES = Path("/etc/apt/sources.list.d/debian.sources")
_TORCH = re.compile(r"(torch|nvidia-|cuda-|triton)")
_PATH = "PATH=/opt/parley/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_RUN_KAFKA = """#!/bin/sh
# As Apache Kafka's own image: settings are variables KAFKA_*, the folder is formatted, the broker runs.
set -e
jars=$(echo /opt/kafka/libs/*.jar | tr ' ' ':')
env | grep '^KAFKA_' | while IFS='=' read -r name value; do
    printf '%s=%s\\n' "$(echo "${name#KAFKA_}" | tr 'A-Z_' 'a-z.')" "$value"
done >/opt/kafka/server.properties
java -Xmx128m -cp "$jars" kafka.tools.StorageTool format --ignore-formatted -t MkU3OEVBNTcwNTJENDM2Qk \\
    -c /opt/kafka/server.properties
exec java -Xmx400m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp "$jars" kafka.Kafka /opt/kafka/server.properties
"""


def make_images(archive: Path) -> None:
    """Takes some three minutes, needs root and 3 GB."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="images-", dir=archive.parent) as made:
        root = Path(made) / "root"
        _make_base(root)
        _add_parley(root)
        _add_kafka(root)
        layer = Path(made) / "layer.tar"
        _run(
            "tar",
            "-C",
            root,
            "--numeric-owner",
            *(f"--exclude=./{one}/*" for one in ("proc", "sys", "dev")),
            "-cf",
            layer,
            ".",
        )
        part = archive.with_suffix(".part")
        _pack(layer, part)
        part.rename(archive)


def _make_base(root: Path) -> None:
    mirror = re.findall(r"^URIs: *(\S+)", _SOURCES.read_text() if _SOURCES.exists() else "", re.MULTILINE)[:1]
    packages = "python3-venv,ca-certificates,openjdk-17-jre-headless"
    _run("debootstrap", "--variant=minbase", f"--include={packages}", "bookworm", root, *mirror)
    for folder in ("var/cache/apt/archives", "var/lib/apt/lists"):
        shutil.rmtree(root / folder)
    with (root / "etc" / "passwd").open("a") as users:
        users.write(f"parley:x:{_USER}:{_USER}::/tmp:/usr/sbin/nologin\n")
    data = root / "var" / "lib" / "parley"
    data.mkdir()
    os.chown(data, _USER, _USER)


def _add_parley(root: Path) -> None:
    _run("chroot", root, "python3", "-m", "venv", "--without-pip", "/opt/parley")
    (packages,) = (root / "opt" / "parley" / "lib").glob("python3.*/site-packages")
    version = packages.parent.name.removeprefix("python")
    uv = (sys.executable, "-m", "uv", "pip")
    listed = _run(
        *uv, "compile", "-q", "--no-header", "--no-annotate", "--no-emit-index-url", "--python-version", version,
        "-c", ROOT / "constraints.txt", ROOT / "pyproject.toml",
    )  # fmt: skip
    wanted = root.parent / "requirements.txt"
    wanted.write_text("".join(f"{one}\n" for one in listed.splitlines() if not _TORCH.match(one)))
    source = root.parent / "source"
    for name in ("app", "agents", "tables", "models", "deploy/packages/python"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", "node_modules"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    install = (
        *uv,
        "install",
        "-q",
        "--no-deps",
        "--python-version",
        version,
        "--link-mode",
        "copy",
        "--target",
        packages,
    )
    _run(*install, "-r", wanted)
    _run(*install, source)
    for script in (packages / "bin").iterdir():
        text = script.read_bytes()
        if text.startswith(b"#!") and b"python" in text.partition(b"\n")[0]:
            here = root / "opt" / "parley" / "bin" / script.name
            here.write_bytes(b"#!/opt/parley/bin/python\n" + text.partition(b"\n")[2])
            here.chmod(0o755)
    _run("chroot", root, "/opt/parley/bin/python", "-m", "compileall", "-q", "/opt/parley/lib", check=False)


def _add_kafka(root: Path) -> None:
    folder = root / "opt" / "kafka"
    (folder / "libs").mkdir(parents=True)
    for jar in kafka_jars(print):
        shutil.copy(jar, folder / "libs")
    (folder / "run").write_text(_RUN_KAFKA)
    (folder / "run").chmod(0o755)


def _pack(layer: Path, archive: Path) -> None:
    """An archive as `docker save` writes it; all images have the same layer."""
    with layer.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    home = ["PARLEY_DATA_DIR=/var/lib/parley", "PARLEY_GATEWAY_HOST=0.0.0.0", "HOME=/tmp"]
    images = {
        PARLEY: {"Env": [_PATH, *home], "User": str(_USER), "WorkingDir": "/tmp"},
        KAFKA: {"Env": [_PATH], "Cmd": ["/opt/kafka/run"]},
        SANDBOX: {"Env": [_PATH], "Cmd": ["sleep", "infinity"], "User": "65535"},
    }
    manifest = []
    with tarfile.open(archive, "w") as packed:

        def put(name: str, content: bytes) -> None:
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            packed.addfile(entry, io.BytesIO(content))

        packed.add(layer, f"{digest}.tar")
        for tag, config in images.items():
            layers = {"type": "layers", "diff_ids": [f"sha256:{digest}"]}
            made = json.dumps({"architecture": "amd64", "os": "linux", "config": config, "rootfs": layers}).encode()
            name = f"{hashlib.sha256(made).hexdigest()}.json"
            put(name, made)
            manifest.append({"Config": name, "RepoTags": [tag], "Layers": [f"{digest}.tar"]})
        put("manifest.json", json.dumps(manifest).encode())


def _run(*command: str | Path, check: bool = True) -> str:
    ran = subprocess.run([str(one) for one in command], capture_output=True, text=True, check=False)
    assert not check or ran.returncode == 0, f"{command[0]}: {ran.stdout[-500:]}{ran.stderr[-500:]}"
    return ran.stdout
