"""`parley policy`: check a policy file without starting anything."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import click

from app.commands.terminal import WrongUseError, note, settings_of_terminal
from app.foreign.formats import decoder_of, encoder_of
from app.foreign.passed import source_paths
from app.policy.check import checked
from app.policy.file import ModelSpec, Policy, PolicyError
from app.policy.foreign import EgressRules, IntakeRules, format_mistakes
from app.policy.guard_rules import PROFANITY, judged
from app.process.printable import printable
from app.serving.loading import LoadError, own_settings
from app.serving.model_check import described_prompts
from app.settings import Settings
from models.files.checkpoint import check_folder
from models.files.errors import CheckpointError

_File = click.Path(dir_okay=False, path_type=Path)


@click.group()
def policy() -> None:
    """Check a policy file."""


@policy.command()
@click.argument("path", metavar="[FILE]", type=_File, required=False)
def check(path: Path | None) -> None:
    """Print every mistake of FILE (default: PARLEY_POLICY), one a line; exit code 2 if there is one."""
    settings = settings_of_terminal()
    path = path or settings.policy
    if path is None:
        raise WrongUseError("no file: name one, or set PARLEY_POLICY")
    try:
        policy, mistakes = checked(path, settings)
    except PolicyError as error:
        raise WrongUseError(str(error)) from None
    mistakes += _missing(policy, settings)
    mistakes += _no_guard(policy, mistakes)
    for mistake in mistakes:
        click.echo(printable(mistake))
    if mistakes:
        raise WrongUseError(f"policy {path}: {len(mistakes)} mistake{'s' if mistakes[1:] else ''}")
    note(f"policy {path}: no mistakes")


def _missing(policy: Policy, settings: Settings) -> list[str]:
    """What the policy needs of a worker's machine, and this one does not have: each of these ends a worker's start."""
    mistakes: list[str] = []
    for name, spec in policy.models.items():
        if spec.engine in {"torch", "vllm"} and spec.path and not [*spec.mistakes()]:
            mistakes += _no_model(name, spec, settings)
        mistakes += _no_key(f"models.{name}", spec.api_key_env)
    if policy.guard.moderation is not None:
        mistakes += _no_key("guard.moderation", policy.guard.moderation.api_key_env)
    mistakes += _no_package(policy)
    for table, rules in [*_listed("intake", policy.intake), *_listed("egress", policy.egress)]:
        if [*format_mistakes(rules)]:
            continue
        try:
            if isinstance(rules, IntakeRules):
                decoder_of(rules, source_paths(policy.egress, rules.topic))
            else:
                encoder_of(rules)
        except PolicyError as error:
            mistakes.append(f"{table}: {error}")
    return mistakes


def _no_model(name: str, spec: ModelSpec, settings: Settings) -> list[str]:
    """Without its weights, which take as long as a worker's start: `parley model check`."""
    try:
        check_folder(spec.path or "")
        described_prompts(own_settings(settings, name, spec))
    except (CheckpointError, LoadError) as error:
        about = f"models.{name}"
        return [str(error).removeprefix("policy: ") if about in str(error) else f"{about}.path: {error}"]
    return []


def _no_guard(policy: Policy, mistakes: Sequence[str]) -> list[str]:
    """What the guard is loaded from: a pipeline, a classifier and its labels."""
    if not policy.guard.is_on or any(one.startswith("guard") for one in mistakes):
        return []
    from app.features.guard.guard import Guard

    try:
        Guard(policy)
    except PolicyError as error:
        return [str(error)]
    return []


def _listed(table: str, tables: Sequence[IntakeRules | EgressRules]) -> list[tuple[str, IntakeRules | EgressRules]]:
    return [(f"{table}[{at}]", rules) for at, rules in enumerate(tables)]


def _no_package(policy: Policy) -> list[str]:
    """Packages of extras that a worker would lack at its start."""
    guard = policy.guard
    has_profanity = PROFANITY in judged(guard.prompt) | judged(guard.answer)
    has_outside = any(spec.engine == "openai" for spec in policy.models.values())
    has_vllm = any(spec.engine == "vllm" for spec in policy.models.values())
    needed = (
        (guard.masks, "guard.pii", "spacy", "guard"),
        (guard.masks, "guard.pii", "presidio_analyzer", "guard"),
        (has_profanity, "guard: profanity", "profanity_check", "guard"),
        (guard.moderation is not None, "guard.moderation", "openai", "outside"),
        (has_outside, "models: engine = 'openai'", "openai", "outside"),
        (has_vllm, "models: engine = 'vllm'", "vllm", "vllm"),
    )
    return [
        f"{where} needs the package {package}: install Parley with its extra `{extra}`"
        for is_needed, where, package, extra in needed
        if is_needed and find_spec(package) is None
    ]


def _no_key(table: str, variable: str | None) -> list[str]:
    has_key = variable is None or os.environ.get(variable)
    return [] if has_key else [f"{table}.api_key_env: the environment has no {variable}"]
