"""The examples of docs/plugins.md, as a wheel of theirs is installed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.test_wheel import ROOT, unpacked_wheel
from tests.plugin_packages import on_the_path

EXAMPLES = ROOT / "deploy" / "examples" / "plugins"


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpacked_wheel(EXAMPLES, tmp_path_factory.mktemp("examples"))


@pytest.fixture
def examples(built: Path) -> Iterator[Path]:
    with on_the_path(built):
        yield built
