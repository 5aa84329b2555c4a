"""The available models: those that workers serve, as each states in its commits (app/delivery/commits/handover.py).

As long as no worker has stated any, they are those of the settings, and other versions that have answered in the last
hour.
"""

from __future__ import annotations

import json
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from app.policy.file import AUTO_MODEL, DEFAULT_MODEL, Policy
from app.serving.offered import shown
from app.settings import Settings
from app.wire.request import Request
from models.files.checkpoint import DEMO

RECENT_S = 3600.0
_MOST_VERSIONS = 100


class ServedModels:
    """`context_lengths`: of the models whose files this machine has. `clock`: monotonic seconds."""

    def __init__(
        self,
        configured: Iterable[str],
        context_lengths: Mapping[str, int] | None = None,
        clock: Callable[[], float] = time.monotonic,
        adapters: Collection[str] = (),
    ) -> None:
        self._adapters = frozenset(adapters)
        self._own = tuple(map(shown, configured))
        self._configured = tuple(dict.fromkeys(self._own))
        self._served: tuple[str, ...] = ()
        self._agents: tuple[str, ...] = ()
        self._context_lengths = context_lengths or {}
        self._clock = clock
        self._last_used_at: OrderedDict[str, float] = OrderedDict()
        self._started_at = int(time.time())

    def use(self, policy: Policy) -> None:
        """The models of this policy are there beside those of the settings."""
        self._configured = tuple(dict.fromkeys((*self._own, *policy.names)))
        self._agents = tuple(policy.agents)

    def serve(self, names: Iterable[str]) -> None:
        """The workers serve these; the default one first. With none, what they serve is not known."""
        self._served = tuple(dict.fromkeys(names))

    @property
    def default(self) -> str:
        """The model of requests that name none."""
        return next(iter(self._listed), "")

    @property
    def _listed(self) -> tuple[str, ...]:
        return self._served or self._configured

    def by_agent(self, request: Request) -> Request:
        """The request of an agent whose name stands in place of a model's: OpenAI's clients have to name one."""
        name = request.model
        if name not in self._agents or name in {*self._served, *self._own}:
            return request
        return msgspec.structs.replace(request, agent=name, model=None)

    def answered(self, version: str) -> None:
        self._last_used_at[version] = self._clock()
        self._last_used_at.move_to_end(version)
        if len(self._last_used_at) > _MOST_VERSIONS:
            self._last_used_at.popitem(last=False)

    def names(self) -> list[str]:
        """Those that are served; if that is not known, the configured models, then versions of others by name. Agents
        follow.
        """
        if self._served:
            return list(dict.fromkeys((*self._served, *self._agents)))
        since = self._clock() - RECENT_S
        recent = sorted(
            version
            for version, at in self._last_used_at.items()
            if at >= since and version.partition("@")[0] not in self._configured
        )
        return list(dict.fromkeys((*self._configured, *recent, *self._agents)))

    def knows(self, name: str) -> bool:
        """Whether a request may name it: a listed model, or a version of one."""
        return name in self.names() or name in self._last_used_at

    def is_unknown(self, name: str) -> bool:
        """Whether no worker can have a model of this name. They may have one before they have stated it."""
        known = {*self._served, *self._configured, *self._adapters, DEFAULT_MODEL, AUTO_MODEL}
        return bool(self._served) and not (self.knows(name) or {name, name.partition("@")[0]} & known)

    def names_of(self, name: str | None) -> frozenset[str]:
        """All names that may mean the same model; a version is `NAME@...`."""
        own = name or self.default
        base = own.partition("@")[0]
        return frozenset({own, base, *([DEFAULT_MODEL] if self.default in {own, base} else [])})

    def is_adapter(self, name: str | None) -> bool:
        return name in self._adapters

    def entry(self, name: str) -> dict[str, Any]:
        """The model as OpenAI's and vLLM's clients expect it; `max_model_len` is null if it is not known here."""
        return {
            "id": name,
            "object": "model",
            "created": self._started_at,
            "owned_by": "parley",
            "root": name,
            "parent": None,
            "max_model_len": self._context_lengths.get(name),
        }


def context_lengths(settings: Settings) -> dict[str, int]:
    """Most tokens of prompt and answer of `PARLEY_MODEL`, if it is `demo` or a folder of this machine."""
    folder = DEMO if settings.model == "demo" else Path(settings.model).expanduser()
    try:
        config = json.loads((folder / "config.json").read_text())
        own = int(config["max_position_embeddings"])
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return {shown(settings.model): min(own, settings.context_length or own)}
