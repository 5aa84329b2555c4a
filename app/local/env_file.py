"""`.parley/local.env` of the working directory: where the local parts are, as settings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from app.settings import LOCAL_ENV

OWNER = "# written by `parley local up`, data in "


class EnvFile:
    """The file that one instance writes for one working directory, and removes only if it is its own."""

    def __init__(self, working_directory: Path, instance: Path) -> None:
        self.path = working_directory / LOCAL_ENV
        self._owner = f"{OWNER}{instance}"

    @property
    def is_of_another(self) -> bool:
        return self.path.exists() and not self._is_own()

    def write(self, values: Mapping[str, str]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        partial = self.path.with_suffix(".part")
        partial.write_text("".join(f"{line}\n" for line in (self._owner, *(f"{k}={v}" for k, v in values.items()))))
        partial.replace(self.path)

    def remove(self) -> None:
        if self._is_own():
            self.path.unlink(missing_ok=True)

    def _is_own(self) -> bool:
        try:
            return self.path.read_text().splitlines()[:1] == [self._owner]
        except OSError:
            return False
