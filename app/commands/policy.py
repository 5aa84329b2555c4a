"""`parley policy`: check a policy file without starting anything."""

from __future__ import annotations

import os
from pathlib import Path

import click

from app.commands.terminal import WrongUseError, note, settings_of_terminal
from app.policy.file import PolicyError, mistakes_in, read_policy
from app.printable import printable
from models.checkpoint_files import CheckpointError, check_folder

_File = click.Path(dir_okay=False, path_type=Path)


@click.group()
def policy() -> None:
    """Check a policy file."""


@policy.command()
@click.argument("path", metavar="[FILE]", type=_File, required=False)
def check(path: Path | None) -> None:
    """Print every mistake of FILE (default: PARLEY_POLICY), one a line; exit code 2 if there is one."""
    path = path or settings_of_terminal().policy
    if path is None:
        raise WrongUseError("no file: name one, or set PARLEY_POLICY")
    try:
        mistakes = mistakes_in(path) or _missing(path)
    except PolicyError as error:
        raise WrongUseError(str(error)) from None
    for mistake in mistakes:
        click.echo(printable(mistake))
    if mistakes:
        raise WrongUseError(f"policy {path}: {len(mistakes)} mistake{'s' if mistakes[1:] else ''}")
    note(f"policy {path}: no mistakes")


def _missing(path: Path) -> list[str]:
    """What the models need of this machine and it does not have."""
    mistakes: list[str] = []
    for name, spec in read_policy(path).models.items():
        if spec.engine in {"torch", "vllm"} and spec.path:
            try:
                check_folder(spec.path)
            except CheckpointError as error:
                mistakes.append(f"models.{name}.path: {error}")
        if spec.api_key_env and not os.environ.get(spec.api_key_env):
            mistakes.append(f"models.{name}.api_key_env: the environment has no {spec.api_key_env}")
    return mistakes
