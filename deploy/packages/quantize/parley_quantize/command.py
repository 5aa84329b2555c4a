"""`parley quantize`: quantize a model and report the loss of quality."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
from importlib.util import find_spec
from pathlib import Path

import click

from app.commands.terminal import WrongUseError, note, warn_of_unknown_settings

_TOLD_EVERY = 8  # prompts, if standard error is no terminal
TO = ("gptq", "int8", "int8-vocabulary", "fp8")
FILE: click.Path = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command(short_help="Quantize a model to a GPTQ checkpoint.")
@click.argument("model")
@click.argument("out", required=False, type=click.Path(path_type=Path))
@click.option("--to", type=click.Choice(TO), default="gptq", show_default=True, help="All but gptq only report.")
@click.option("--bits", type=click.Choice(("4", "8")), default="4", show_default=True)
@click.option("--group-size", type=int, default=128, show_default=True, help="Inputs that share a scale; -1: all.")
@click.option("--sym/--asym", default=True, show_default=True, help="Symmetric quantization.")
@click.option("--act-order", is_flag=True, help="Quantize the most active inputs first: better, and a little slower.")
@click.option(
    "--calibration", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="JSON lines of messages."
)
@click.option(
    "--held-out",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="JSON lines of messages for the report.",
)
@click.option(
    "--examples", type=click.IntRange(1), default=128, show_default=True, help="Number of dialogues to calibrate with."
)
@click.option(
    "--prompts",
    type=click.IntRange(1),
    default=48,
    show_default=True,
    help="Number of held-out prompts for the report.",
)
@click.option(
    "--new-tokens",
    type=click.IntRange(1),
    default=64,
    show_default=True,
    help="Most tokens of an answer in the report.",
)
@click.option("--report-only", is_flag=True, help="OUT exists already: only report.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def quantize(
    model: str,
    out: Path | None,
    to: str,
    bits: str,
    group_size: int,
    *,
    sym: bool,
    act_order: bool,
    calibration: Path | None,
    held_out: Path | None,
    examples: int,
    prompts: int,
    new_tokens: int,
    report_only: bool,
    as_json: bool,
) -> None:
    """Quantize MODEL to the folder OUT as a GPTQ checkpoint, and report the quality before and after.

    MODEL is `demo`, a folder or a Hugging Face name. Without --calibration it is calibrated with dialogues of the
    demo's shop, which fit no other model. A worker serves the result with PARLEY_MODEL=OUT. For the others nothing is
    written: set PARLEY_QUANTIZE, and the worker quantizes while it loads the model.
    """
    if (to == "gptq") != (out is not None):
        raise WrongUseError("OUT is required for --to gptq and not allowed otherwise; the others write nothing")
    if out is not None and report_only != any(out.glob("*.safetensors")):
        raise WrongUseError(f"{out} has {'no weights to examine' if report_only else 'weights already'}")
    if out is not None and not report_only and find_spec("gptqmodel") is None:
        raise WrongUseError(
            "GPTQModel is needed: install this package with its extra `gptq`, without constraints.txt, or see --to int8"
        )
    warn_of_unknown_settings()
    note(f"the report runs up to {prompts} prompts on both models: minutes on a CPU; reduce it with --prompts")
    from models.checkpoints.loading import CheckpointError, load_checkpoint
    from models.weights.gptq import QuantizationError
    from parley_quantize.dialogues import CALIBRATION, HELD_OUT, of_file
    from parley_quantize.quality import compare
    from parley_quantize.solver import Recipe
    from parley_quantize.solver import quantize as solve

    try:
        shown = of_file(calibration or CALIBRATION)
        asked = of_file(held_out or HELD_OUT)[:prompts]
        if out is not None and not report_only:
            if calibration is None and model != "demo":
                note(f"warning: {model} is calibrated with the demo's dialogues; pass your own with --calibration")
            with contextlib.redirect_stdout(sys.stderr):  # GPTQModel's progress must not mix with the report
                solve(model, out, Recipe(int(bits), group_size, sym, act_order), shown[:examples])
        before = load_checkpoint(model)
        after = load_checkpoint(model, quantize=to) if out is None else load_checkpoint(str(out))
        report = compare(before, after, asked, new_tokens, _progress)
    except (CheckpointError, QuantizationError, ValueError) as error:
        raise WrongUseError(str(error)) from None
    click.echo(json.dumps(dataclasses.asdict(report), indent=2) if as_json else report.table())


def _progress(name: str, done: int, all_of_them: int) -> None:
    if sys.stderr.isatty():
        click.echo(f"\r{name}: {done} of {all_of_them} prompts ", nl=done == all_of_them, err=True)
    elif done == all_of_them or done % _TOLD_EVERY == 0:
        note(f"{name}: {done} of {all_of_them} prompts")
