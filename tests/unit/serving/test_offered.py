"""The names by which callers find a worker's models."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from app.policy.check import read_policy
from app.policy.file import Policy
from app.serving.offered import OfferedModels
from app.settings import Settings
from models.files.checkpoint import is_folder
from models.served.registry import ModelRegistry, ServedModel


@dataclass(frozen=True)
class Engine:
    model_version: str


def served(*names: str) -> ServedModel:
    engine, nothing = cast(Any, Engine(f"{names[0]}@1")), cast(Any, None)
    return ServedModel(engine, nothing, nothing, frozenset(names), nothing)


def test_the_default_model_is_first_and_what_is_not_served_is_not_offered(tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text("[models.small]\npath = 'demo'\n[models.gone]\npath = 'demo'\n")
    policy = read_policy(Settings(_env_file=None, policy=file))
    registry = ModelRegistry(served("default", "auto", "demo"), served("small"))
    offered = OfferedModels(Settings(_env_file=None), policy, registry)
    assert offered.names() == ("demo", "small")
    registry.replace(served("default", "auto", "demo"))
    offered.use(Policy())
    assert offered.names() == ("demo",)


def test_a_model_that_is_named_by_its_folder_is_default() -> None:
    settings = Settings(_env_file=None, model="/srv/models/secret-merger")
    registry = ModelRegistry(served("default", "/srv/models/secret-merger"))
    assert OfferedModels(settings, Policy(), registry).names() == ("default",)


@pytest.mark.parametrize("name", ["/srv/m", "./m", "../m", "~/m", "models/of/mine", "m.gguf", "kept/m"])
def test_the_name_of_a_folder_or_of_a_file_is_known(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kept" / "m").mkdir(parents=True)
    assert is_folder(name)


@pytest.mark.parametrize("name", ["demo", "org/name", "org/name@main", "small", ""])
def test_other_names_are_no_folders(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small").mkdir()
    assert not is_folder(name)
