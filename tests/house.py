"""The size of the house: `python -m tests.house` prints each figure with its limit, and fails above one.

A limit is what the house had when it was last tidied. A change that needs more raises the limit in the same commit and
says why; one that deletes lowers it. The words of each page have limits of their own in `tests/unit/test_documents.py`,
and the files that a plain request enters in `tests/unit/test_plain_path.py`.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[1]
BESIDE = ("deploy/packages/quantize/*.py",)
"""Packages that are installed beside the product by who needs them."""
PRODUCT = ("app/*.py", "agents/*.py", "tables/*.py", "models/*.py", "deploy/*.py", *(f":!{one}" for one in BESIDE))
ROOMS = ("app/*.py", "agents/*.py", "tables/*.py", "models/*.py")
CORE = ("agents/*.py", "app/answering/*.py", "app/delivery/*.py", "tables/*.py")
GENERATED = frozenset({"docs/settings.md", "docs/chart.md", "docs/models.md"})

LIMITS = {
    "lines of the product": 81_618,
    "files of the product": 738,
    "lines of packages beside it": 415,
    "lines of the core": 9_400,
    "lines of the tests": 108_283,
    "words of documents written by hand": 42_875,
    "loose files in models": 0,
    "circles between rooms of models": 0,
    "class names with two meanings": 0,
}


def figures() -> dict[str, int]:
    rooms = _listed(*ROOMS)
    return {
        "lines of the product": _lines(_listed(*PRODUCT)),
        "files of the product": len(_listed(*PRODUCT)),
        "lines of packages beside it": _lines(_listed(*BESIDE)),
        "lines of the core": _lines(_listed(*CORE)),
        "lines of the tests": _lines(_listed("tests/*.py")),
        "words of documents written by hand": sum(
            len((ROOT / name).read_text().split()) for name in _listed("*.md") if name not in GENERATED
        ),
        "loose files in models": sum(
            1
            for name in rooms
            if name.startswith("models/") and name.count("/") == 1 and not name.endswith("__init__.py")
        ),
        "circles between rooms of models": len(circles()),
        "class names with two meanings": len(doubles()),
    }


def doubles() -> dict[str, list[str]]:
    """Public classes that more than one file of the product defines, with these files."""
    places = defaultdict(list)
    for name in _listed(*ROOMS):
        for node in _tree(name).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(name)
    return {name: files for name, files in sorted(places.items()) if len(files) > 1}


def circles() -> list[tuple[str, ...]]:
    """Rooms of `models` that import each other, except for types alone."""
    graph = {room: set(imports) for room, imports in imports_of_rooms().items()}
    found = []
    while True:
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            circle = error.args[1]
            found.append(tuple(circle))
            graph[circle[1]].discard(circle[0])
        else:
            return found


def imports_of_rooms() -> dict[str, Counter[str]]:
    """The rooms that each room of `models` imports, without those for types alone."""
    rooms: dict[str, Counter[str]] = defaultdict(Counter)
    for name in _listed("models/*.py"):
        if name.count("/") > 1:
            room = name.split("/")[1]
            rooms[room].update(other for other in _rooms_imported(_tree(name)) if other != room)
    return rooms


def _rooms_imported(tree: ast.Module) -> Iterator[str]:
    """Imports for types alone, which nothing executes, are left out."""
    types = {id(node) for block in ast.walk(tree) if _is_for_types(block) for node in ast.walk(block)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and id(node) not in types and (node.module or "").startswith("models."):
            yield (node.module or "").split(".")[1]


def _is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def _tree(name: str) -> ast.Module:
    return ast.parse((ROOT / name).read_text())


def _lines(names: list[str]) -> int:
    return sum(len((ROOT / name).read_text().splitlines()) for name in names)


def _listed(*patterns: str) -> list[str]:
    listed = subprocess.run(["git", "ls-files", *patterns], cwd=ROOT, check=True, capture_output=True, text=True)
    return [name for name in listed.stdout.splitlines() if (ROOT / name).is_file() and not name.endswith("_pb2.py")]


def main() -> int:
    now = figures()
    for name, figure in now.items():
        print(f"{name:36} {figure:7,} of at most {LIMITS[name]:7,}{'  TOO MANY' if figure > LIMITS[name] else ''}")
    if "--names" in sys.argv:
        for name, files in doubles().items():
            print(f"{name}: {', '.join(files)}")
        for circle in circles():
            print(" -> ".join(circle))
    return 1 if any(figure > LIMITS[name] for name, figure in now.items()) else 0


if __name__ == "__main__":
    sys.exit(main())
