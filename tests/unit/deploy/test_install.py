"""What `make` installs: no more than is needed, and nothing twice."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("install", ROOT / "deploy" / "install.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "has_gpu", lambda: False)
    return module


def test_a_build_for_cpus_needs_nothing_of_cuda_and_keeps_all_other_hashes(install: ModuleType) -> None:
    locked = (ROOT / "constraints.txt").read_text()
    kept = install.without_cuda(locked)
    names = re.findall(r"^([a-z0-9.-]+)==", locked, re.MULTILINE)
    gone = set(names) - set(re.findall(r"^([a-z0-9.-]+)==", kept, re.MULTILINE))
    assert {"triton", "nvidia-cublas", "cuda-toolkit"} <= gone
    assert all(re.match("nvidia-|cuda-|triton", name) for name in gone)
    assert f"\n{install.torch_requirement()}\n" in kept
    for entry in kept.replace("\\\n", "").splitlines():
        assert "--hash=sha256:" in entry or entry == install.torch_requirement(), entry


def test_a_machine_without_a_gpu_gets_the_build_for_cpus_or_no_triton(install: ModuleType, tmp_path: Path) -> None:
    cpu = install.command_of("local,minilm", "cpu", tmp_path)
    assert cpu[-2:] == ["--torch-backend", "cpu"]
    assert (install.ROOT / cpu[cpu.index("-e", cpu.index("-e") + 1) + 1] / "parley_client").is_dir()
    assert "nvidia" not in (tmp_path / "constraints.txt").read_text()
    pypi = install.command_of("local,minilm", "", tmp_path)
    assert pypi[pypi.index("--excludes") + 1] == str(tmp_path / "excluded.txt")
    assert (tmp_path / "excluded.txt").read_text() == "triton"
    assert pypi[-2:] == ["-c", "constraints.txt"]


def test_the_tests_get_what_is_locked(install: ModuleType, tmp_path: Path) -> None:
    command = install.command_of("local,dev", "", tmp_path)
    assert "--excludes" not in command
    assert install.backend_for("local,dev") == "", "no index is asked for another build"


def test_packages_that_were_there_before_are_compiled_too(
    install: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "good.py").write_text("x = 1\n")
    (tmp_path / "template.py").write_text("class {{ name }}:\n")
    monkeypatch.setattr(install.sysconfig, "get_path", lambda _name: str(tmp_path))
    install.compile_packages()
    assert [path.name.split(".")[0] for path in tmp_path.glob("__pycache__/*")] == ["good"]


@pytest.mark.parametrize(("version", "is_replaced"), [("2.15.0+cpu", True), ("2.15.0", False)])
def test_the_tests_replace_the_build_that_the_demo_has_taken(
    install: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, *, is_replaced: bool
) -> None:
    monkeypatch.setattr(install.metadata, "version", lambda _: version)
    assert ("--reinstall-package" in install.command_of("local,dev", "", tmp_path)) is is_replaced
    assert "--reinstall-package" not in install.command_of("local,minilm", "", tmp_path)


def test_an_index_that_does_not_answer_is_left_at_once(install: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """This proxy refuses every connection, so no index can be reached."""
    for name in ("ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.setenv("UV_NO_CACHE", "1")
    assert install.backend_of_this_machine() == ""


def test_a_gpu_asks_no_index(install: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "has_gpu", lambda: True)
    monkeypatch.setattr(install.subprocess, "run", lambda *_, **__: pytest.fail("nothing is to be asked"))
    assert install.backend_of_this_machine() == ""


def made(folder: Path, target: str) -> str:
    """What `make` would do."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    run = subprocess.run(
        ["make", "-n", target], cwd=folder, env=environment, check=True, capture_output=True, text=True
    )
    return run.stdout


@pytest.mark.parametrize(
    ("stamps", "target", "installs"),
    [
        ({}, "demo", ["local,minilm"]),
        ({}, "lint", ["local,minilm,guard,gpu,dev"]),
        ({".demo": "here"}, "demo", []),
        ({".demo": "here"}, "lint", ["local,minilm,guard,gpu,dev"]),
        ({".demo": "here", ".installed": "here"}, "demo", []),
        ({".demo": "here", ".installed": "here"}, "test", []),
        ({".demo": "/elsewhere", ".installed": "/elsewhere"}, "demo", ["local,minilm"]),
        ({".demo": "/elsewhere", ".installed": "/elsewhere"}, "lint", ["local,minilm,guard,gpu,dev"]),
    ],
)
def test_nothing_is_installed_twice(stamps: dict[str, str], target: str, installs: list[str], tmp_path: Path) -> None:
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / ".venv").mkdir()
    for name, place in stamps.items():
        (tmp_path / ".venv" / name).write_text(str(tmp_path) if place == "here" else place)
    assert re.findall(r"deploy/install\.py (\S+)", made(tmp_path, target)) == installs
