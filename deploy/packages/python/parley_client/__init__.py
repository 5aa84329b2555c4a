"""Ask Parley and follow its answers, over HTTP through a gateway or over Kafka.

The clients are imported when they are first asked for: Parley's own processes use the reader rule alone.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from parley_client.errors import AnswerFailedError, ParleyError, RefusedError, UnreachableError
from parley_client.reader import Answer, Dropped, Event, ReaderRule, Update

if TYPE_CHECKING:
    from parley_client.blocking import BlockingAnswer, Parley
    from parley_client.client import AsyncParley, Following

__all__ = [
    "Answer",
    "AnswerFailedError",
    "AsyncParley",
    "BlockingAnswer",
    "Dropped",
    "Event",
    "Following",
    "Parley",
    "ParleyError",
    "ReaderRule",
    "RefusedError",
    "UnreachableError",
    "Update",
]
_CLIENTS = {"AsyncParley": "client", "Following": "client", "BlockingAnswer": "blocking", "Parley": "blocking"}


def __getattr__(name: str) -> Any:
    if name not in _CLIENTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_CLIENTS[name]}"), name)
