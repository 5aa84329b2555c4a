"""What a plug-in of Parley is written against; it imports this package alone.

A plug-in is a Python package with an entry point in one of six groups (`Kind`), whose object is made by Parley's
worker: a class, or a function that returns an instance. What each has to be is a protocol here. Subclass it, and leave
out what has a body.

Each call has a bound, `BOUND_S`, and runs outside the worker's event loop. What a plug-in raises about a request ends
that request, with the plug-in's name; its words go nowhere, as they may quote the request. `Refused` is for what the
sender shall read.
"""

from parley_client.plugins.discovery import Kind, Plugin, PluginError, installed
from parley_client.plugins.engines import Engine, EngineJob
from parley_client.plugins.features import (
    Answered,
    Asked,
    Candidate,
    Decision,
    Feature,
    NoVectors,
    Prompt,
    Sender,
    Worker,
)
from parley_client.plugins.judges import Judge, NoVerdict, turn
from parley_client.plugins.limits import BOUND_S, MOST_DECISION_BYTES, RateLimited, Refused
from parley_client.plugins.record_formats import NotReadable, RecordFormat
from parley_client.plugins.stores import Found, Search, Store, StoreOptions
from parley_client.plugins.tool_formats import ToolFormat

__all__ = [
    "BOUND_S",
    "MOST_DECISION_BYTES",
    "Answered",
    "Asked",
    "Candidate",
    "Decision",
    "Engine",
    "EngineJob",
    "Feature",
    "Found",
    "Judge",
    "Kind",
    "NoVectors",
    "NoVerdict",
    "NotReadable",
    "Plugin",
    "PluginError",
    "Prompt",
    "RateLimited",
    "RecordFormat",
    "Refused",
    "Search",
    "Sender",
    "Store",
    "StoreOptions",
    "ToolFormat",
    "Worker",
    "installed",
    "turn",
]
