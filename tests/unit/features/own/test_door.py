"""Parley's own features behind the door for plug-ins are written as those of strangers."""

from __future__ import annotations

import ast
from importlib.util import find_spec
from pathlib import Path

import pytest
from parley_client.plugins import Feature, Kind, Plugin

from app.plugins.known import own
from app.policy.check import checked
from app.settings import Settings

OWN = own(Kind.FEATURES)
_PRODUCT = {"agents", "app", "models", "tables", "parley_client"}


@pytest.mark.parametrize("plugin", OWN, ids=lambda one: one.name)
def test_they_import_the_light_package_alone(plugin: Plugin) -> None:
    spec = find_spec(plugin.place.partition(":")[0])
    assert spec is not None
    assert spec.origin is not None
    imported = {
        name
        for node in ast.walk(ast.parse(Path(spec.origin).read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([one.name for one in node.names] if isinstance(node, ast.Import) else [node.module or "."])
    }
    assert {name for name in imported if name.partition(".")[0] in _PRODUCT} == {"parley_client.plugins"}
    assert Feature in plugin.load().__mro__


def test_a_policy_does_not_switch_them_on_by_their_names(tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text("".join(f"[plugins.{one.name}]\n" for one in OWN))
    _, mistakes = checked(tmp_path / "policy.toml", Settings())
    assert [one.partition(":")[0] for one in mistakes] == [f"plugins.{one.name}" for one in OWN]
