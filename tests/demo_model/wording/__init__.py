"""The texts that dialogues are made of, one TOML file a topic; the code beside them says when each is right."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any


def wording(topic: str) -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name(f"{topic}.toml").read_text(encoding="utf-8"))
