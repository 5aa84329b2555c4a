"""Files of packages that are used only if they are the known ones."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path


class UnknownFileError(Exception):
    """A file is not the known one, or cannot be read; the message is one line."""


def check_files(folder: Path, known: Mapping[str, str], package: str) -> None:
    """Compare the files with their SHA-256 by name; raises `UnknownFileError`."""
    for name, expected in known.items():
        path = folder / name
        try:
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise UnknownFileError(f"{path} cannot be read ({error}); install {package} again") from None
        if digest != expected:
            raise UnknownFileError(
                f"{path.name} of {package} is not the known file (sha256 {digest[:12]}..., expected "
                f"{expected[:12]}...); install {package} again"
            )
