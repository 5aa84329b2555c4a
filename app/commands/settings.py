"""`parley settings`: the current settings and their meaning, and the table in docs/settings.md."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import click

from app.commands.terminal import settings_of_terminal
from app.settings import SUBJECTS, Settings
from app.settings.names import PREFIX

_LOGIN_IN_URL = re.compile(r"(?<=://)[^/@\s;]*@")
_NEEDS_QUOTES = re.compile(r"[\s#'\"]")


@click.command(short_help="Show every setting with its value.")
@click.option("--markdown", is_flag=True, help="The table of all settings and their defaults, as in docs/settings.md.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def settings(*, markdown: bool, as_json: bool) -> None:
    """Show every setting with its value in the format of `.env`; secrets and credentials in URLs are shown as ***."""
    if markdown:
        click.echo(settings_table())
        return
    current = settings_of_terminal()
    if as_json:
        written = current.model_dump(mode="json")
        shown = {f"{PREFIX}{name.upper()}": _hidden(name, value) for name, value in written.items()}
        click.echo(json.dumps(shown, indent=2, ensure_ascii=False))
        return
    for name, field in Settings.model_fields.items():
        value = _env_value(_hidden(name, getattr(current, name)))
        comment = click.style(f"# {field.description}", dim=True)
        click.echo(f"{PREFIX}{name.upper()}={value}  {comment}")


def _hidden(name: str, value: object) -> object:
    """The value, without what is secret in it."""
    if Settings.model_fields[name].repr is False and value:
        return "***"
    return _LOGIN_IN_URL.sub("***@", value) if isinstance(value, str) else value


def _env_value(value: object) -> str:
    """A value in the format of `.env`. An empty one needs quotes, or the comment after it would be the value."""
    text = "" if value is None else str(value)
    if text and not _NEEDS_QUOTES.search(text):
        return text
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def settings_table() -> str:
    """A table for each subject, under its heading."""
    lines: list[str] = []
    for subject, fields in SUBJECTS:
        lines += [f"## {subject}", "", "| setting | default | meaning |", "|---|---|---|"]
        for name, field in fields.model_fields.items():
            lines.append(f"| `{PREFIX}{name.upper()}` | {_shown(field.default)} | {field.description} |")
        lines.append("")
    return "\n".join(lines).rstrip()


def _shown(default: Any) -> str:
    if default in {"", None}:
        return "empty"
    if isinstance(default, float) and default.is_integer():
        default = int(default)
    return f"`{default.as_posix() if isinstance(default, Path) else default}`"
