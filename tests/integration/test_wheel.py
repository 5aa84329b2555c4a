"""The wheel has everything that a worker, the gateway and the commands need, and nothing of the tests."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("app", "agents", "tables", "models", "parley_client")
CLIENT = "deploy/packages/python/"
LEFT_OUT = ("app/gateway/page/",)
BUILD = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of what git has, unpacked; nothing is downloaded for it."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    for name in tracked():
        place = source / name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, place)
    return _built(folder)


def unpacked_wheel(source: Path, folder: Path) -> Path:
    """The wheel of that folder, unpacked; nothing is downloaded for it."""
    shutil.copytree(source, folder / "source", ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
    return _built(folder)


def _built(folder: Path) -> Path:
    """Of the sources in it."""
    command = [sys.executable, "-c", BUILD, str(folder)]
    subprocess.run(command, cwd=folder / "source", check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(folder / "unpacked")
    return folder / "unpacked"


def tracked() -> list[str]:
    wanted = [*PACKAGES[:-1], f"{CLIENT}parley_client", "pyproject.toml", "README.md", "LICENSE"]
    listed = subprocess.run(["git", "ls-files", "--", *wanted], cwd=ROOT, check=True, capture_output=True, text=True)
    return [name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]


def test_wheel_has_every_module_and_all_data(unpacked: Path) -> None:
    names = [name.removeprefix(CLIENT) for name in tracked()]
    needed = [name for name in names if name.startswith(PACKAGES) and not name.startswith(LEFT_OUT)]
    documents = ("README.md", ".pyi", "generate.py")
    missing = [name for name in needed if not name.endswith(documents) and not (unpacked / name).is_file()]
    assert not missing
    assert len(needed) > 400


def test_wheel_has_neither_tests_nor_what_builds_the_page(unpacked: Path) -> None:
    names = {path.relative_to(unpacked).parts[0] for path in unpacked.rglob("*.py")}
    assert names == set(PACKAGES)
    assert not any((unpacked / name).exists() for name in LEFT_OUT)


@pytest.mark.parametrize(
    "arguments", [["--version"], ["settings", "--markdown"], ["schema", "turns"], ["gateway", "--help"]]
)
def test_wheel_runs_commands_from_anywhere(unpacked: Path, tmp_path: Path, arguments: list[str]) -> None:
    place = repr(str(unpacked))
    program = f"import sys; sys.path.insert(0, {place}); import app; assert app.__file__.startswith({place})"
    ran = subprocess.run(
        [sys.executable, "-P", "-c", f"{program}; from app.commands import main; main()", *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout
