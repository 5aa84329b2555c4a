"""Parley: Kafka Streams for conversations.

`faust -A app worker` finds the Faust application here as `app`. It is built when it is first asked for, so that the
wire records and the settings can be imported without a broker, a model or a data directory in mind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from app.application import app

__all__ = ["app"]


def __getattr__(name: str) -> Any:
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from app.application import app  # noqa: PLC0415

    return app
