from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

FAKE = Path(__file__).parent / "fake"


@pytest.fixture
def _fake_vllm(monkeypatch):
    """VLLM is the stand-in of `fake/`, and gone again afterwards."""
    before = {name: module for name, module in sys.modules.items() if name.split(".")[0] == "vllm"}
    for name in before:
        del sys.modules[name]
    monkeypatch.syspath_prepend(str(FAKE))
    yield
    for name in [name for name in sys.modules if name.split(".")[0] == "vllm"]:
        del sys.modules[name]
    sys.modules.update(before)


@pytest.fixture
def _no_vllm(monkeypatch):
    assert find_spec("vllm") is None
