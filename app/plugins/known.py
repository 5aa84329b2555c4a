"""The plug-ins of each kind, Parley's own among them: one door, one list of names.

Packages are found by their entry points when a name is first asked for; a process that names no plug-in reads none.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from types import MappingProxyType

from parley_client.plugins.discovery import Kind, Plugin, PluginError, installed

from models.tools.forms import FORMATS

_OWN: Mapping[Kind, Mapping[str, str]] = MappingProxyType(
    {
        Kind.ENGINES: {
            "torch": "app.serving.loading:torch_models",
            "vllm": "app.serving.loading:vllm_models",
            "paced": "app.serving.loading:paced_models",
            "openai": "app.serving.loading:remote_models",
        },
        Kind.FEATURES: {
            "homes": "app.features.own.homes:Homes",
            "user_limit": "app.features.own.user_limit:UserLimit",
            "best_answer": "app.features.own.best_answer:BestAnswer",
        },
        Kind.JUDGES: {
            "profanity": "app.features.guard.judges.profanity:ProfanityJudge",
            "classifier": "app.features.guard.judges.classifier:ClassifierJudge",
            "moderation": "app.features.guard.judges.endpoint:EndpointJudge",
        },
        Kind.STORES: {"milvus": "app.search.opening:open_milvus"},
        Kind.TOOL_FORMATS: dict.fromkeys(FORMATS, "models.tools.forms:FORMATS"),
        Kind.RECORD_FORMATS: {
            "json": "app.foreign.formats:decode_json",
            "avro": "app.foreign.avro:avro_reader",
            "protobuf": "app.foreign.protobuf:protobuf_reader",
        },
    }
)

_VERSION = version("parley")


def own(kind: Kind) -> tuple[Plugin, ...]:
    """What of this kind Parley brings."""
    return tuple(Plugin(kind, name, place, "parley", _VERSION) for name, place in _OWN.get(kind, {}).items())


@cache
def known(kind: Kind) -> Mapping[str, Plugin]:
    """All of a kind by their names; raises `PluginError` if a name stands twice."""
    return installed(kind, own(kind))


def named(kind: Kind, name: str) -> Plugin:
    """Raises `PluginError` if no package has it."""
    for one in own(kind):
        if one.name == name:
            return one
    plugins = known(kind)
    if name not in plugins:
        there_are = ", ".join(sorted(plugins)) or "none"
        raise PluginError(
            f"no installed package has {name!r} ({kind}); there are: {there_are}; install one beside Parley"
        )
    return plugins[name]


def check_names() -> None:
    """Raise `PluginError` if a name stands twice, used or not: another order of packages would mean another one."""
    for kind in Kind:
        known(kind)
