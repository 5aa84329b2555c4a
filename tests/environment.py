"""Settings as a subprocess takes them, and commands that run with them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from app.settings import PREFIX, Settings


def environment_of(settings: Settings) -> dict[str, str]:
    """The environment of a worker or a command with just these settings."""
    base = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
    values = settings.model_dump(mode="json", exclude_none=True)
    return base | {PREFIX + name.upper(): str(value) for name, value in values.items()}


def parley(settings: Settings, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`parley` with these settings in that folder, once it has ended, which has to be within minutes."""
    return subprocess.run(
        [str(Path(sys.executable).with_name("parley")), *arguments],
        env=environment_of(settings),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
