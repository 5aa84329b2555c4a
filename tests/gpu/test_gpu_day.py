"""The day of a GPU without one: its steps on the CPU, and what becomes of a step that breaks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.gpu import day
from tests.gpu.scale import TINY

SHORT = ("roofline", "sampling", "tiny bfloat16", "tiny gptq4", "broker")
TROUBLES = ("raises", "hangs", "dies", "lacks")
CODE = """
import sys
from tests.gpu import day

troubles = [day.Step(kind, "trouble", 3 if kind == "hangs" else 30, (kind,)) for kind in {troubles}]
works = [day.Step("lacks packages of forms", "trouble", 60, ("stands in",))]
steps = day.steps_of
day.steps_of = lambda scale: troubles + works + [step for step in steps(scale) if step.name in {short}]
sys.exit(day.main(sys.argv[1:]))
"""


def test_the_steps_run_without_a_gpu_and_one_that_breaks_ends_no_other(tmp_path: Path) -> None:
    code = CODE.format(troubles=TROUBLES, short=SHORT)
    command = [sys.executable, "-c", code, "--device", "cpu", "--scale", "tiny", "--out", str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    lines = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    assert ended.returncode == 1
    assert all({"t", "device", "torch", "commit"} <= line.keys() for line in lines)
    wrong = {line["step"]: line.get("error") or line.get("missing") for line in lines}
    assert {name: why for name, why in wrong.items() if why} == {
        "raises": "RuntimeError: broken",
        "hangs": "ended after 3 s",
        "dies": "ended by signal 11",
        "lacks": "nothing_of_that_name",
    }, ended.stdout + ended.stderr
    steps = [step.name for step in day.steps_of(TINY) if step.name in SHORT]
    steps.insert(0, "lacks packages of forms")
    assert [line["stand_ins"] for line in lines if "stand_ins" in line] == [["llguidance", "msgspec"]]
    assert list(wrong) == [*TROUBLES, *steps]
    assert all(f"did not run: {kind}: " in ended.stdout for kind in TROUBLES)
    assert f"{len(steps)} of {len(steps) + len(TROUBLES)} steps ran" in ended.stdout


def test_a_machine_without_a_gpu_is_told_what_can_be_tried(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    assert day.main(["--out", str(tmp_path)]) == 2
    assert "DEVICE=cpu SCALE=tiny" in capsys.readouterr().out
