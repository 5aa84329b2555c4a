"""The names by which callers find the models of a worker.

A model that the settings name by its folder is `default` to callers: where it is on a machine is not theirs to know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.policy.file import DEFAULT_MODEL, Policy
from app.settings import Settings
from models.files.checkpoint import is_folder

if TYPE_CHECKING:
    from models.served.registry import ModelRegistry  # brings transformers, which a gateway does not need


class OfferedModels:
    """Those of the settings and of the policy that are served; the default one first."""

    def __init__(self, settings: Settings, policy: Policy, models: ModelRegistry) -> None:
        self._settings = settings
        self._models = models
        self.use(policy)

    def use(self, policy: Policy) -> None:
        """The registry has the models of this policy by now."""
        first, *others = names_of(self._settings, policy)
        first = first if self._models.find(first) is not None else DEFAULT_MODEL
        served = (name for name in others if self._models.find(name) is not None)
        self._names = tuple(dict.fromkeys((first, *served)))

    def names(self) -> tuple[str, ...]:
        return self._names


def names_of(settings: Settings, policy: Policy) -> list[str]:
    """What the settings and the policy call their models; the default one first."""
    return [*map(shown, settings.models), *policy.names]


def shown(name: str) -> str:
    """How callers call the model that the settings call so."""
    return DEFAULT_MODEL if is_folder(name) else name
