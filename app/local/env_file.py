"""`.parley/local.env` of the working directory: the addresses of the local servers, as settings.

There is one file and possibly several instances: the most recent `up` writes the file. It names its instance and, if it
replaced another's, that one too, so that `down` can restore the settings of an instance that still runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from app.settings.sources import LOCAL_ENV

OWNER = "# written by `parley local up`, data in "
FORMER = "# in place of "


class EnvFile:
    """The file that an instance writes into a working directory, and removes only if it is its own."""

    def __init__(self, working_directory: Path, instance: Path) -> None:
        self.path = working_directory / LOCAL_ENV
        self._instance = instance

    @property
    def is_of_another(self) -> bool:
        return self.path.exists() and self._path_after(OWNER) != self._instance

    @property
    def former(self) -> Path | None:
        """The other instance whose settings this one's `write` replaces or has replaced."""
        return self._path_after(OWNER) if self.is_of_another else self._path_after(FORMER)

    def write(self, values: Mapping[str, str]) -> None:
        former = self.former
        lines = [f"{OWNER}{self._instance}", *([f"{FORMER}{former}"] if former else [])]
        lines += [f"{name}={value}" for name, value in values.items()]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        partial = self.path.with_suffix(".part")
        partial.write_text("".join(f"{line}\n" for line in lines))
        partial.replace(self.path)

    def remove(self) -> bool:
        """Remove the file if it is this instance's; returns whether it was."""
        if not self.path.exists() or self.is_of_another:
            return False
        self.path.unlink(missing_ok=True)
        return True

    def _path_after(self, by: str) -> Path | None:
        try:
            head = self.path.read_text().splitlines()[:2]
        except OSError:
            return None
        return next((Path(line.removeprefix(by)) for line in head if line.startswith(by)), None)
