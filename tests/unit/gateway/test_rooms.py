"""A room of the gateway imports nothing of a room above it; the list of them is in `app/gateway/__init__.py`."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import app.gateway

GATEWAY = Path(app.gateway.__file__).parent


def room_of(path: Path) -> str:
    return path.relative_to(GATEWAY).parts[0].removesuffix(".py")


def test_a_room_imports_only_rooms_below_it() -> None:
    floors = re.findall(r"^    (\w+)  +\S", app.gateway.__doc__ or "", re.MULTILINE)
    files = [path for path in GATEWAY.rglob("*.py") if room_of(path) not in {"__init__", "page"}]
    assert {room_of(path) for path in files} == set(floors)
    upwards, checked = [], 0
    for path in files:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("app.gateway."):
                (other, *_) = (node.module or "").removeprefix("app.gateway.").split(".")
                checked += 1
                if floors.index(other) < floors.index(room_of(path)):
                    upwards.append(f"{path.relative_to(GATEWAY)} imports {node.module}")
            assert not (isinstance(node, ast.ImportFrom) and (node.module == "app.gateway" or node.level))
    assert checked > 200
    assert upwards == []
