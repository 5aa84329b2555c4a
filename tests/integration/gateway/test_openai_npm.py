"""OpenAI's client for JavaScript against the gateway; its tests are in `npm/`."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.integration.gateway.gateway_process import GatewayProcess
from tests.integration.npm import NODE, NPM, installed

HERE = Path(__file__).parent / "npm"
pytestmark = pytest.mark.skipif(
    NODE is None or NPM is None, reason="node is not installed: OpenAI's client for JavaScript was not run"
)


def test_its_suite_passes(gateway: GatewayProcess) -> None:
    installed(HERE)
    run = subprocess.run(
        [str(NODE), "--test", str(HERE / "client.test.mjs")],
        env=os.environ | {"GATEWAY": gateway.url},
        check=False,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "# fail 0" in run.stdout
    assert "# skipped 0" in run.stdout
