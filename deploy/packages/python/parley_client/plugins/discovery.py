"""The plug-ins of this environment, by the entry points of its packages."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import EntryPoint, distributions
from typing import Any


class Kind(enum.StrEnum):
    """The groups of entry points."""

    FEATURES = "parley.features"
    ENGINES = "parley.engines"
    STORES = "parley.stores"
    JUDGES = "parley.judges"
    TOOL_FORMATS = "parley.tool_formats"
    RECORD_FORMATS = "parley.record_formats"


class PluginError(Exception):
    """A plug-in cannot be used; one line with its package, its entry point, and what to do."""


@dataclass(frozen=True, slots=True)
class Plugin:
    """An entry point. `place` is `module:attribute`."""

    kind: Kind
    name: str
    place: str
    package: str
    version: str

    def __str__(self) -> str:
        return f"{self.name!r} of {self.package} {self.version} ({self.kind}: {self.place})"

    def load(self) -> Any:
        """Its object; raises `PluginError`."""
        try:
            return EntryPoint(self.name, self.place, self.kind).load()
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            why = f"{type(error).__name__}: {error}".splitlines()[0][:200]
            remedy = "install a version that fits, or uninstall it"
            raise PluginError(f"the plug-in {self} cannot be loaded: {why}; {remedy}") from error

    def made(self, *arguments: Any) -> Any:
        """What its object makes of the arguments; raises `PluginError`."""
        make = self.load()
        try:
            return make(*arguments)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            why = f"{type(error).__name__}: {error}".splitlines()[0][:200]
            raise PluginError(f"the plug-in {self} does not start: {why}; check its settings") from error


def installed(kind: Kind, own: Iterable[Plugin] = ()) -> dict[str, Plugin]:
    """The plug-ins of a kind by their names, behind Parley's `own`; nothing is imported. Raises `PluginError` if a name
    stands twice.
    """
    found = {one.name: one for one in own}
    seen: set[tuple[str, str, str]] = set()
    for package in distributions():
        of_kind = [point for point in package.entry_points if point.group == kind]
        for point in of_kind:
            name = package.metadata["Name"] or "a package without a name"
            if (name, point.name, point.value) in seen:  # one package, found twice on the path
                continue
            seen.add((name, point.name, point.value))
            plugin = Plugin(kind, point.name, point.value, name, package.version)
            if point.name in found:
                raise PluginError(f"two plug-ins have one name: {found[point.name]} and {plugin}; uninstall one")
            found[point.name] = plugin
    return found
