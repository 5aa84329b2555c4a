"""`parley-quantize` brings a command to Parley; without it one line says where it is."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from app.process.process_end import ExitCode
from tests.integration.test_wheel import ROOT, unpacked_wheel

SOURCE = ROOT / "deploy" / "packages" / "quantize"


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpacked_wheel(SOURCE, tmp_path_factory.mktemp("wheel"))


def parley(*arguments: str, beside: Path | None = None) -> subprocess.CompletedProcess[str]:
    program = "from app.commands import main; main()"
    path = os.pathsep.join(map(str, (ROOT, beside) if beside else (ROOT,)))
    return subprocess.run(
        [sys.executable, "-P", "-c", program, *arguments],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_package_brings_its_command(unpacked: Path) -> None:
    assert "Quantize a model to a GPTQ checkpoint." in parley("--help", beside=unpacked).stdout
    ran = parley("quantize", "demo", beside=unpacked)
    assert (ran.returncode, ran.stderr.splitlines()[-1][:23]) == (ExitCode.WRONG_USE, "Error: OUT is required ")


def test_dialogues_of_the_shop_are_in_it(unpacked: Path) -> None:
    made, source = (
        {path.name for path in (folder / "parley_quantize").iterdir() if path.is_file()}
        for folder in (unpacked, SOURCE)
    )
    assert made == source
    assert {"calibration.jsonl", "held_out.jsonl"} <= made


def test_without_the_package_one_line_names_it() -> None:
    ran = parley("quantize", "demo")
    assert ran.returncode == ExitCode.WRONG_USE
    (line,) = ran.stderr.splitlines()
    assert "pip install deploy/packages/quantize" in line
    assert "quantize" not in parley("--help").stdout


def test_a_package_that_does_not_load_is_one_line(unpacked: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(unpacked, broken)
    (broken / "parley_quantize" / "command.py").write_text("import not_there")
    ran = parley("quantize", "demo", beside=broken)
    assert ran.returncode == ExitCode.WRONG_USE
    (line,) = ran.stderr.splitlines()
    assert "parley_quantize.command:quantize cannot be loaded" in line
