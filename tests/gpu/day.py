"""The steps one after the other, each in a process of its own."""

from __future__ import annotations

import argparse
import importlib
import json
import multiprocessing
import os
import signal
import sys
import time
import traceback
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from tests.gpu.report import Report, commit_here, table
from tests.gpu.scale import SCALES, Scale
from tests.gpu.stand_ins import put_in

ROOT = Path(__file__).parents[2]
LONGEST_S = 570.0
"""Of all steps together."""
LEAST_S = 2.0
PRELOADED = ("torch", "transformers.models.llama.modeling_llama")
"""They take seconds to import, and begin nothing on a device."""
MISSING, FAILED = 3, 1


@dataclass(frozen=True)
class Step:
    """`module` of tests/gpu/steps, with arguments of its own. `stands_in`: packages of forms may be missing."""

    name: str
    module: str
    budget_s: float
    arguments: tuple[str, ...] = ()
    stands_in: bool = True


def steps_of(scale: Scale) -> list[Step]:
    """The smallest models first."""
    decoding = [
        Step(f"{shape} {form}", "decode", 75, (shape, form)) for shape in scale.shapes for form in ("bfloat16", "gptq4")
    ]
    small, large = decoding[:2], decoding[2:]
    return [
        Step("machine", "machine", 30, stands_in=False),
        Step("roofline", "roofline", 20),
        Step("kernel", "kernel", 60),
        Step("sampling", "sampling", 25),
        Step("independence", "independence", 60),
        *small,
        Step("chunks", "chunks", 60),
        Step("prompts in between", "mixed", 40),
        Step("broken graph", "broken", 20),
        *large,
        Step("broker", "broker", 40, stands_in=False),
        Step("tests", "suite", 120, stands_in=False),
    ]


def compute(step: Step, report: Report, scale: Scale) -> None:
    """In the process of the step."""
    os.setsid()
    try:
        stand_ins = put_in() if step.stands_in else []
        if stand_ins:
            report.write(stand_ins=stand_ins)
        importlib.import_module(f"tests.gpu.steps.{step.module}").run(report, scale, *step.arguments)
    except ModuleNotFoundError as error:
        report.write(missing=error.name)
        os._exit(MISSING)
    except BaseException as error:  # noqa: BLE001 - whatever it is, the next step goes on
        traceback.print_exc()
        report.write(error=f"{type(error).__name__}: {error}".splitlines()[0][:300])
        os._exit(FAILED)
    sys.stdout.flush()
    os._exit(0)  # what is left of an engine's threads must not delay it


def failure_of(step: Step, report: Report, scale: Scale, left_s: float) -> str | None:
    """Run the step; why it did not do all of its work, or None."""
    seconds = min(step.budget_s, left_s)
    if seconds < LEAST_S:
        return "no time was left"
    process = multiprocessing.get_context("forkserver").Process(target=compute, args=(step, report, scale))
    process.start()
    process.join(seconds)
    if process.is_alive():
        _kill(process.pid)
        process.join()
        report.write(error=f"ended after {seconds:.0f} s")
        return f"it took longer than {seconds:.0f} s"
    if process.exitcode == MISSING:
        return "a package is missing"
    if process.exitcode is not None and process.exitcode < 0:
        report.write(error=f"ended by signal {-process.exitcode}")
    return None if process.exitcode == 0 else f"it ended with {process.exitcode}"


def _kill(group: int | None) -> None:
    """The step, and what it has started."""
    assert group is not None
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:  # it has not become a group yet
        os.kill(group, signal.SIGKILL)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--scale", choices=tuple(SCALES), default="full")
    parser.add_argument("--seconds", type=float, default=LONGEST_S)
    parser.add_argument("--only", nargs="+", default=[], help="modules of tests/gpu/steps")
    parser.add_argument("--wheels", type=Path, help="a folder with packages that this machine lacks")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "gpu")
    options = parser.parse_args(arguments)
    if options.device == "cuda" and not torch.cuda.is_available():
        print("there is no CUDA device here; DEVICE=cpu SCALE=tiny tries the steps without one")
        return 2
    options.out.mkdir(parents=True, exist_ok=True)
    results = options.out / "results.jsonl"
    results.write_text("")
    _prepare(options.device, options.wheels, options.out)
    scale = SCALES[options.scale]
    report = partial(Report, results, device=options.device, began=time.time(), commit=commit_here())
    wanted = [step for step in steps_of(scale) if not options.only or step.module in options.only]
    until = time.monotonic() + options.seconds
    failures = {step.name: failure_of(step, report(step.name), scale, until - time.monotonic()) for step in wanted}
    print("\n" + table(map(json.loads, results.read_text().splitlines())))
    failed = {name: why for name, why in failures.items() if why is not None}
    for name, why in failed.items():
        print(f"did not run: {name}: {why}")
    print(f"{len(wanted) - len(failed)} of {len(wanted)} steps ran; {results}")
    return bool(failed)


def _prepare(device: str, wheels: Path | None, out: Path) -> None:
    """What the steps' processes inherit."""
    carried = out / "site"
    for wheel in sorted(wheels.glob("*.whl")) if wheels is not None else ():
        with zipfile.ZipFile(wheel) as files:
            files.extractall(carried)
    ours = [str(carried), *(str(ROOT / "deploy" / "packages" / name) for name in ("python", "quantize"))]
    sys.path[:0] = ours  # a step has the paths of this process; what a step starts, the variable's
    paths = [str(ROOT), *ours, *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false", PYTHONUNBUFFERED="1")
    if device == "cpu":
        os.environ.update(TRITON_INTERPRET="1", CUDA_VISIBLE_DEVICES="")
    multiprocessing.get_context("forkserver").set_forkserver_preload([*PRELOADED])
