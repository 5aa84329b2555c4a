from __future__ import annotations

from pathlib import Path

import pytest

from app.settings import Settings
from tests.integration.commands.terminal import Terminal


@pytest.fixture
def terminal(settings: Settings, tmp_path: Path) -> Terminal:
    return Terminal(settings, tmp_path)
