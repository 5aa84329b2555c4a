"""Ask Parley and follow its answers, over HTTP through a gateway or over Kafka."""

from parley_client.answer import Answer, Event, Update
from parley_client.blocking import BlockingAnswer, Parley
from parley_client.client import AsyncParley, Following
from parley_client.errors import AnswerFailedError, ParleyError, RefusedError, UnreachableError
from parley_client.rule import Dropped, ReaderRule

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
