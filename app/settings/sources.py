"""Where the values of settings come from: the environment, two files, and files of secrets."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from dotenv import dotenv_values

LOCAL_ENV = Path(".parley/local.env")
ENV_FILES = (LOCAL_ENV, Path(".env"))  # later files override earlier ones
FILE = "_FILE"


class SettingsError(Exception):
    """A setting is invalid; the message is one line that names it and the remedy."""


def values() -> dict[str, str]:
    """All variables of the environment and the files, Parley's or not, by their names in upper case."""
    sources: list[Mapping[str, str | None]] = [dotenv_values(path) for path in ENV_FILES if path.is_file()]
    return {name.upper(): value or "" for source in (*sources, os.environ) for name, value in source.items()}


def secrets_in_files(names: Iterable[str], given: Mapping[str, str]) -> dict[str, str]:
    """Secrets that are named by files, as `PARLEY_JWT_SECRET_FILE`; raises `SettingsError`."""
    read: dict[str, str] = {}
    for name in names:
        if not (path := given.get(f"{name}{FILE}")):
            continue
        if given.get(name):
            raise SettingsError(f"{name} and {name}{FILE} are both set: set one of them")
        try:
            read[name] = Path(path).read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise SettingsError(f"{name}{FILE}={path}: {why}") from None
    return read
