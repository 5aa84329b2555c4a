"""Read and check the policy file.

There is one check. Workers and gateways make it when they start and at each change, and `parley policy check` makes it
beforehand, so they have one verdict. It depends on the file and on the settings that all of them share: names of topics
and the limit of prompts. What only a worker has, as the files of models, is found where it is loaded.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from parley_client.plugins.discovery import Kind, PluginError

from app.plugins.known import named, own
from app.policy.agents import agent_mistakes, ask_mistakes
from app.policy.constants import constant_bytes
from app.policy.file import AUTO_MODEL, DEFAULT_MODEL, NO_POLICY, Policy, PolicyError
from app.policy.foreign import SOURCE, foreign_mistakes
from app.policy.mistakes import read_table
from app.policy.pages import page_mistakes
from app.policy.templates import literal_bytes
from app.settings import Settings
from app.wire.ids import MAX_NAME_LENGTH, is_tool_name

MAX_POLICY_BYTES = 1 << 20


def read_policy(settings: Settings) -> Policy:
    """The policy in the file of the settings, an empty one without a file; raises `PolicyError`."""
    if settings.policy is None:
        return NO_POLICY
    policy, mistakes = checked(settings.policy, settings)
    if mistakes:
        more = f" (and {len(mistakes) - 1} more: `parley policy check` shows all)" if mistakes[1:] else ""
        raise PolicyError(f"policy {settings.policy}: {mistakes[0]}{more}")
    return policy


def checked(path: Path, settings: Settings) -> tuple[Policy, list[str]]:
    """What of this file can be read, and all that is wrong with it, each in one line with its path: mistakes of single
    tables, then those between tables. Raises `PolicyError` if it is not TOML.
    """
    raw = _toml(path)
    policy, mistakes = read_table(raw, Policy)
    mistakes += _of_models(policy)
    if isinstance(raw.get("models", {}), dict):
        mistakes += _of_names(policy)
    mistakes += foreign_mistakes(policy.intake, policy.egress, settings.own_topics())
    mistakes += _of_intakes(policy, settings.max_prompt_bytes)
    mistakes += page_mistakes(policy.pages)
    mistakes += _of_tools(policy, has_waits="waits" in raw)
    names = [DEFAULT_MODEL, *policy.names]
    mistakes += agent_mistakes(policy.agents, policy.tools, names, settings.max_prompt_bytes)
    mistakes += ask_mistakes(policy.agents, policy.tools, has_waits="waits" in raw)
    if policy.guard.pii == "redact":
        mistakes += _of_redaction(policy)
    mistakes += _of_plugins(policy)
    return policy, mistakes


def _of_plugins(policy: Policy) -> Iterator[str]:
    """Their packages are installed wherever the policy is read."""
    for name in policy.plugins:
        if any(one.name == name for one in own(Kind.FEATURES)):
            yield f"plugins.{name}: is a feature of Parley's own, with settings of its own; name one of another package"
        try:
            named(Kind.FEATURES, name)
        except PluginError as error:
            yield f"plugins.{name}: {error}"


def _of_redaction(policy: Policy) -> Iterator[str]:
    for at, rules in enumerate(policy.egress):
        would = f"would keep on {rules.topic!r} what guard.pii = 'redact' keeps nowhere"
        if rules.per == "token":
            yield f"egress[{at}].per: 'token' {would}"
        for path in sorted({path for path in rules.fields.values() if path.startswith(SOURCE)}):
            read = [one for one in policy.intake if rules.is_of(one.topic) and one.is_read(path.removeprefix(SOURCE))]
            if read:
                yield f"egress[{at}].fields: {path!r} {would}: models read it of the records of {read[0].topic!r}"


def _toml(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            text = file.read(MAX_POLICY_BYTES + 1)
        if len(text) > MAX_POLICY_BYTES:
            raise PolicyError(f"policy {path}: is larger than {MAX_POLICY_BYTES} bytes")
        return tomllib.loads(text.decode())
    except OSError as error:
        raise PolicyError(f"policy {path}: {error.strerror or error}") from None
    except RecursionError:
        raise PolicyError(f"policy {path}: not TOML that can be read: it is nested too deep") from None
    except ValueError as error:  # also an integer of thousands of digits
        raise PolicyError(f"policy {path}: not TOML: {' '.join(str(error).split())}") from None


def _of_models(policy: Policy) -> Iterator[str]:
    for name in policy.models:
        if name in {DEFAULT_MODEL, AUTO_MODEL}:
            yield f"models.{name}: this name has a meaning of its own; choose another"
        if not 1 <= len(name) <= MAX_NAME_LENGTH:
            yield f'models."{name[:MAX_NAME_LENGTH]}": a name must have 1-{MAX_NAME_LENGTH} characters'
    if sum(spec.memory_share or 0.0 for spec in policy.models.values()) >= 1:
        yield "models: the memory_shares leave nothing for the default model"


def _of_names(policy: Policy) -> Iterator[str]:
    """Names of models and routes. One that cannot be read is empty."""
    names = {DEFAULT_MODEL, *policy.models, ""}
    there_are = f"there are {', '.join(sorted(names - {''}))}"
    unknown_in_chain = sorted({*policy.fallback.chain} - names)
    yield from (f"fallback.chain: there is no model {unknown!r}; {there_are}" for unknown in unknown_in_chain)
    for at, route in enumerate(policy.routes):
        path = f"routes[{at}] ({route.name})" if route.name else f"routes[{at}]"
        if route.name and route.name in {one.name for one in policy.routes[:at]}:
            yield f"{path}: another route has this name"
        for unknown in sorted({*route.models} - names):
            yield f"{path}: there is no model {unknown!r}; {there_are}"


def _of_tools(policy: Policy, *, has_waits: bool) -> Iterator[str]:
    for name, rules in policy.tools.items():
        path = f"tools.{name}" if name.replace("-", "_").isidentifier() else f'tools."{name}"'
        if not is_tool_name(name):
            yield f"{path}: a name must be 1-64 of A-Z a-z 0-9 _ . -"
        if rules.approve is not None and not has_waits:
            yield f"{path}.approve: needs the table [waits]: answers wait asleep for an approval"


def _of_intakes(policy: Policy, most: int) -> Iterator[str]:
    for at, rules in enumerate(policy.intake):
        literal = literal_bytes(rules.templates.get("prompt", ""))
        for name, size in (("constants", constant_bytes(rules.constants)), ("templates", literal)):
            if size > most:
                yield f"intake[{at}].{name}: the prompt has {size} bytes, the limit is {most}"
