"""Every kind of storm, found by its form: a function of this package that makes a `Simulation` of a seed alone.

In a file of tests only those named `..._storm` are kinds; the others there are shorter names of one for a mutant.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from functools import cache

import tests.simulation as room
from tests.simulation.scenario import Simulation

Make = Callable[[int], Simulation]


@cache
def kinds() -> dict[str, Make]:
    found: dict[str, Make] = {}
    for info in pkgutil.iter_modules(room.__path__):
        if info.name == "__main__":
            continue
        module = importlib.import_module(f"{room.__name__}.{info.name}")
        of_tests = info.name.startswith("test_")
        for name, made in vars(module).items():
            is_named = not name.startswith("_") and (name.endswith("storm") or not of_tests)
            if is_named and getattr(made, "__module__", None) == module.__name__ and _makes_a_storm(made):
                assert name not in found, f"two storms are named {name}"
                found[name] = made
    return found


def _makes_a_storm(made: object) -> bool:
    if not inspect.isfunction(made) or inspect.get_annotations(made).get("return") != Simulation.__name__:
        return False
    required = [one.name for one in inspect.signature(made).parameters.values() if one.default is one.empty]
    return required == ["seed"]
