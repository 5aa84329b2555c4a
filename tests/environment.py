"""Settings as a subprocess takes them."""

from __future__ import annotations

import os

from app.settings import PREFIX, Settings


def environment_of(settings: Settings) -> dict[str, str]:
    """The environment of a worker or a command with just these settings."""
    base = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
    values = settings.model_dump(mode="json", exclude_none=True)
    return base | {PREFIX + name.upper(): str(value) for name, value in values.items()}
