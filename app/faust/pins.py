"""The versions of Faust and aiokafka whose private names app.faust uses, compared with what is installed.

Another version could lack a name, or use it differently, which would show only in the middle of a rebalance.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version

PINS: Mapping[str, str] = {"faust-streaming": "0.15.3", "aiokafka": "0.14.0"}


class PinError(Exception):
    """An installed library is not the version that Parley was written for; the message is one line."""


def check(pins: Mapping[str, str] = PINS) -> None:
    """Raise `PinError` if another version is installed."""
    wrong = [f"{name} {version(name)} (needs {pinned})" for name, pinned in pins.items() if version(name) != pinned]
    if wrong:
        raise PinError(f"installed: {', '.join(wrong)}; install the versions that pyproject.toml pins")
