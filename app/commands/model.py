"""`parley model`: what a worker would make of a model, and the prompts that it would get."""

from __future__ import annotations

import dataclasses
import json
import logging
import time
from typing import IO

import click

from app.commands.terminal import WrongUseError, note, settings_of_terminal
from app.process.printable import printable
from app.process.process_end import end_at_signals
from app.settings import Settings

_NAME_WIDTH = 14


@click.group(short_help="Check a model, and show its prompts.")
def model() -> None:
    """Check a model, and show the prompts that it would get, without a worker."""


@model.command()
@click.argument("name", metavar="[MODEL]", default="")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def check(name: str, *, as_json: bool) -> None:
    """Load MODEL as a worker would, and report what it is; exit code 2 and one line if it cannot be served right.

    MODEL is `demo`, a folder or a Hugging Face name, and without it PARLEY_MODEL. The settings of a worker apply:
    PARLEY_DTYPE, PARLEY_ADAPTERS, PARLEY_CONTEXT_LENGTH and so on.
    """
    settings = _settings_for(name)
    from app.serving.loading import LoadError
    from app.serving.model_check import check_model

    try:
        report = check_model(settings)
    except LoadError as error:
        raise WrongUseError(str(error)) from None
    if as_json:
        click.echo(json.dumps(dataclasses.asdict(report), indent=2, ensure_ascii=False))
        return
    for row, text in report.table:
        click.echo(printable(f"{row:<{_NAME_WIDTH}}{text}"))
    for warning in report.warnings:
        click.echo(printable(f"{'warning':<{_NAME_WIDTH}}{warning}"))


@model.command()
@click.argument("name", metavar="MODEL")
@click.argument("file", metavar="[FILE.json]", type=click.File("rb"), default="-")
@click.option("--text", "as_text", is_flag=True, help="Print the prompt as it is, and its number of tokens after it.")
def render(name: str, file: IO[bytes], *, as_text: bool) -> None:
    """Print the prompt that MODEL would get for a body of chat completions, with its special tokens.

    FILE.json has `messages`, and `tools` and other fields if there are some; without FILE.json it is read from standard
    input. The output is JSON: `prompt` and its `token_ids`.
    """
    settings = _settings_for(name)
    from app.commands.prompt_preview import PreviewError, preview
    from app.serving.loading import LoadError

    try:
        shown = preview(settings, file.read(), time.time())
    except (LoadError, PreviewError) as error:
        raise WrongUseError(str(error)) from None
    if shown.ignored:
        note(f"warning: without effect: {', '.join(shown.ignored)}")
    if as_text:
        click.echo(printable(shown.prompt))
        note(f"{len(shown.token_ids)} tokens")
    else:
        click.echo(json.dumps({"prompt": shown.prompt, "token_ids": shown.token_ids}, ensure_ascii=False))


def _settings_for(name: str) -> Settings:
    end_at_signals()
    # Each warning of the libraries is in the report or in the error.
    logging.getLogger("transformers").setLevel(logging.ERROR)
    _tell_of_conversions()
    settings = settings_of_terminal()
    engine = "torch" if settings.engine == "paced" else settings.engine
    return settings.model_copy(update={"model": name or settings.model, "engine": engine})


def _tell_of_conversions() -> None:
    """A GGUF file is converted at its first use, which takes a minute."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(message)s"))
    conversions = logging.getLogger("models.files.gguf")
    conversions.handlers, conversions.propagate = [handler], False
    conversions.setLevel(logging.INFO)
