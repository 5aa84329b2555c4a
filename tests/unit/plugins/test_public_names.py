"""What others build on: the public names of the light package with their signatures, as `public_names.txt` has them.

A name may be added; one that is there stays as it is until the next major version. `python -m
tests.unit.plugins.test_public_names` writes the file.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import parley_client

from tests.integration.test_wheel import ROOT

FILE = Path(__file__).with_name("public_names.txt")
PUBLIC = (
    "parley_client",
    "parley_client.agents",
    "parley_client.plugins",
    "parley_client.reader",
    "parley_client.tools",
)


def names() -> list[str]:
    return [line for module in PUBLIC for line in _of_module(module)]


def _of_module(name: str) -> Iterator[str]:
    module = importlib.import_module(name)
    own = [one for one, thing in vars(module).items() if getattr(thing, "__module__", None) == name]
    for public in sorted(getattr(module, "__all__", None) or (one for one in own if not one.startswith("_"))):
        yield from _of_thing(f"{name}.{public}", getattr(module, public))


def _of_thing(path: str, thing: object) -> Iterator[str]:
    if not inspect.isclass(thing):
        yield f"{path}{inspect.signature(thing) if inspect.isfunction(thing) else ''}"
        return
    has_fields = dataclasses.is_dataclass(thing) or "__init__" in vars(thing)
    yield f"class {path}{inspect.signature(thing) if has_fields else ''}"
    for name, member in sorted(vars(thing).items()):
        if not name.startswith("_") and inspect.isfunction(member):
            yield f"    {'async ' * inspect.iscoroutinefunction(member)}{path}.{name}{inspect.signature(member)}"
        elif not name.startswith("_") and isinstance(member, property):
            yield f"    {path}.{name}"


def test_every_public_name_keeps_its_signature() -> None:
    now = set(names())
    gone = [line for line in FILE.read_text().splitlines() if line not in now]
    assert gone == [], "these are gone or other ones, and others build on them"


def test_new_names_are_written_down() -> None:
    assert names() == FILE.read_text().splitlines(), f"run python -m {__name__}"


def test_the_light_package_imports_nothing_of_the_product() -> None:
    folder = Path(parley_client.__file__).parent
    for file in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            modules += [one.name for one in node.names] if isinstance(node, ast.Import) else []
            assert not {one.partition(".")[0] for one in modules} & {"app", "agents", "models", "tables"}, file


def test_every_module_of_the_light_package_is_in_its_wheel() -> None:
    packages = {
        "parley_client",
        *(f"parley_client.{one.name}" for one in pkgutil.iter_modules(parley_client.__path__) if one.ispkg),
    }
    text = (ROOT / "deploy" / "packages" / "python" / "pyproject.toml").read_text()
    assert all(f'"{one}"' in text for one in packages)


def test_a_plug_in_needs_the_light_package_alone() -> None:
    """In an interpreter that finds nothing else."""
    folder = str(Path(parley_client.__file__).parents[1])
    program = f"import sys; sys.path.insert(0, {folder!r}); import parley_client.plugins as p; print(len(p.__all__))"
    ran = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=True)
    assert int(ran.stdout) > 20


if __name__ == "__main__":
    FILE.write_text("\n".join(names()) + "\n")
