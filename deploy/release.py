"""Make what a release consists of, twice the same from the same tag: `python deploy/release.py v0.2.0 dist`.

`dist` gets the wheels of Parley and its Python packages, the changelog's section, the bill of materials of the locked
packages (CycloneDX), a provenance statement (in-toto, SLSA 1.0) and `SHA256SUMS` of all of them. Built is what the tag
has, and not what lies in the folder. The statement is not signed here: the release workflow does that.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from io import BytesIO
from pathlib import Path

ROOT = Path(__file__).parents[1]
WHEELS = (Path(), Path("deploy/packages/python"), Path("deploy/packages/quantize"))
SUMS = "SHA256SUMS"
_BUILD = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"


class ReleaseError(Exception):
    """The tag, the version and the changelog do not fit together; one line."""


def release(tag: str, dist: Path, *, with_sbom: bool = True) -> list[Path]:
    """The files of the release, `SHA256SUMS` last."""
    dist.mkdir(parents=True, exist_ok=True)
    commit, committed_at = _git("show", "--no-patch", "--format=%H %ct", f"{tag}^{{commit}}").split()
    with tempfile.TemporaryDirectory(prefix="parley-release-") as name:
        source = Path(name)
        _unpack(commit, source)
        version = tomllib.loads((source / "pyproject.toml").read_text())["project"]["version"]
        if tag not in {f"v{version}", commit}:
            raise ReleaseError(f"the tag is {tag}, and pyproject.toml has the version {version}: tag v{version}")
        notes = dist / "CHANGES.md"
        notes.write_text(changes((source / "CHANGELOG.md").read_text(), version))
        made = [notes, *(_wheel(source / folder, dist, committed_at) for folder in WHEELS)]
        if with_sbom:
            made.append(_sbom(source, dist))
    provenance = dist / "provenance.json"
    provenance.write_text(json.dumps(statement(made, commit), indent=1) + "\n")
    made.append(provenance)
    sums = dist / SUMS
    sums.write_text("".join(f"{sha256(one)}  {one.name}\n" for one in sorted(made)))
    return [*made, sums]


def changes(changelog: str, version: str) -> str:
    """The section of the changelog. Raises `ReleaseError` if there is none, or if it is still open."""
    found = re.search(rf"^## {re.escape(version)} \(([^)]*)\)\n(.*?)(?=^## |\Z)", changelog, re.DOTALL | re.MULTILINE)
    if found is None:
        raise ReleaseError(f"CHANGELOG.md has no section {version}")
    return f"# Parley {version} ({found[1]})\n{found[2].rstrip()}\n"


def statement(files: list[Path], commit: str) -> dict[str, object]:
    """What was built from what, as in-toto and SLSA name it."""
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": one.name, "digest": {"sha256": sha256(one)}} for one in files],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "deploy/release.py",
                "externalParameters": {"commit": commit},
                "resolvedDependencies": [{"uri": "git+parley", "digest": {"gitCommit": commit}}],
            },
            "runDetails": {"builder": {"id": "deploy/release.py"}},
        },
    }


def sha256(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _unpack(commit: str, folder: Path) -> None:
    """What git has, with the same rights on every machine."""
    archive = subprocess.run(["git", "archive", commit], cwd=ROOT, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=BytesIO(archive)) as opened:
        opened.extractall(folder, filter="data")
    for path in folder.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)


def _wheel(source: Path, dist: Path, committed_at: str) -> Path:
    """Its entries have the time of the commit."""
    environment = os.environ | {"SOURCE_DATE_EPOCH": committed_at, "PYTHONHASHSEED": "0"}
    with tempfile.TemporaryDirectory() as name:
        command = [sys.executable, "-c", _BUILD, name]
        ran = subprocess.run(command, cwd=source, env=environment, check=False, capture_output=True, text=True)
        if ran.returncode:
            raise ReleaseError(f"the wheel of {source.name} cannot be built: {ran.stderr.strip().splitlines()[-1:]}")
        (wheel,) = Path(name).glob("*.whl")
        return Path(shutil.move(wheel, dist / wheel.name))


def _sbom(source: Path, dist: Path) -> Path:
    file = dist / "sbom.cdx.json"
    uv = shutil.which("uv") or str(Path(sys.executable).with_name("uv"))
    tool = [uv, "tool", "run", "--from", "cyclonedx-bom==7.1.0", "cyclonedx-py", "requirements"]
    options = ["--pyproject", "pyproject.toml", "--output-reproducible", "-o", str(file.absolute()), "constraints.txt"]
    subprocess.run([*tool, *options], cwd=source, check=True, capture_output=True)
    return file


def _git(*arguments: str) -> str:
    ran = subprocess.run(["git", *arguments], cwd=ROOT, check=False, capture_output=True, text=True)
    if ran.returncode:
        raise ReleaseError(f"git {arguments[0]}: {ran.stderr.strip()}")
    return ran.stdout.strip()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tag", help="vVERSION, or a commit for a trial")
    parser.add_argument("dist", type=Path)
    options = parser.parse_args()
    try:
        for file in release(options.tag, options.dist):
            print(f"{sha256(file)}  {file}")
    except ReleaseError as error:
        sys.exit(f"release: {error}")
