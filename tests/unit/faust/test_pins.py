"""The pinned versions of Faust and aiokafka."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from app.faust.pins import PINS, PinError, check

PYPROJECT = Path(__file__).parents[3] / "pyproject.toml"


def test_the_pins_are_those_of_pyproject() -> None:
    dependencies = tomllib.loads(PYPROJECT.read_text())["project"]["dependencies"]
    assert {f"{name}=={version}" for name, version in PINS.items()} <= set(dependencies)


def test_the_installed_versions_are_the_pinned_ones() -> None:
    check()


def test_another_version_is_rejected_by_name() -> None:
    with pytest.raises(PinError, match=r"aiokafka 0\.14\.0 \(needs 0\.13\.0\)"):
        check({**PINS, "aiokafka": "0.13.0"})
