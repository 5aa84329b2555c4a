"""Gateways and commands start fast and stay small: what is heavy is imported where it is used."""

from __future__ import annotations

import subprocess
import sys

import pytest

GATEWAY = "import app.gateway.server, app.commands.gateway"
COMMANDS = """
from importlib import import_module
from app.commands import _OWN
modules = [import_module(place.partition(":")[0]) for place in _OWN.values()]
assert len(modules) > 20
"""
TAIL, WATCHER = "import app.commands.tail", "import app.watch.child"
HEAVY = ("torch", "faust", "pymilvus", "transformers")


@pytest.mark.parametrize(
    ("imports", "names"),
    [(GATEWAY, HEAVY), (COMMANDS, HEAVY), (TAIL, ("numpy", *HEAVY)), (WATCHER, ("http.client", "pydantic", "numpy"))],
    ids=["gateway", "commands", "tail", "watcher"],
)
def test_they_are_imported_without_torch_and_faust(imports: str, names: tuple[str, ...]) -> None:
    heavy = f"print([name for name in {names} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", f"{imports}\nimport sys\n{heavy}"], capture_output=True, text=True, check=False
    )
    assert (done.stdout.strip(), done.returncode) == ("[]", 0), done.stderr
