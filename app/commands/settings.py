"""`parley settings`: the current settings and their meaning, and the table in docs/settings.md."""

from __future__ import annotations

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
def settings(*, markdown: bool) -> None:
    """Show every setting with its value in the format of `.env`; secrets and credentials in URLs are shown as ***."""
    if markdown:
        click.echo(settings_table())
        return
    current = settings_of_terminal()
    for name, field in Settings.model_fields.items():
        value = "***" if field.repr is False and getattr(current, name) else _env_value(getattr(current, name))
        comment = click.style(f"# {field.description}", dim=True)
        click.echo(f"{PREFIX}{name.upper()}={value}  {comment}")


def _env_value(value: object) -> str:
    """A value in the format of `.env`. An empty one needs quotes, or the comment after it would be the value."""
    text = "" if value is None else _LOGIN_IN_URL.sub("***@", str(value))
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
