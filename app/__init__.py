"""Parley: Kafka Streams for conversations.

`faust -A app worker` finds the Faust application here as `app`. It is built when it is first asked for, so that the
wire records and the settings can be imported without a broker, a model or a data directory in mind.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from app.process.process_end import end_at_signals
from app.process.tune_interpreter import uncollected

if TYPE_CHECKING:
    from app.application import app

__all__ = ["app"]


def __getattr__(name: str) -> Any:
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if "app.application" not in sys.modules and "worker" in sys.argv and not {"--help", "-h"} & set(sys.argv):
        end_at_signals()
        _greet()
    with uncollected():
        from app.application import app

    return app


def _greet() -> None:
    """At once, as what is imported next takes seconds."""
    from importlib.metadata import version

    print(f"parley {version('parley')}: a worker starts; Ctrl-C stops it", file=sys.stderr, flush=True)
