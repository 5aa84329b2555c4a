"""OpenAI's client for JavaScript against the gateway; its tests are in `npm/`."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.integration.gateway.gateway_process import GatewayProcess

HERE = Path(__file__).parent / "npm"
NODE, NPM = shutil.which("node"), shutil.which("npm")
pytestmark = pytest.mark.skipif(
    NODE is None or NPM is None, reason="node is not installed: OpenAI's client for JavaScript was not run"
)


@pytest.fixture(scope="module")
def client() -> Path:
    """Installed beside its tests, in a folder that git ignores, when it is not there as locked."""
    installed = HERE / "node_modules" / ".package-lock.json"
    if not installed.exists() or installed.stat().st_mtime < (HERE / "package-lock.json").stat().st_mtime:
        command = [str(NPM), "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
        subprocess.run(command, cwd=HERE, check=True, capture_output=True, text=True, timeout=240)
    return HERE / "client.test.mjs"


def test_its_suite_passes(client: Path, gateway: GatewayProcess) -> None:
    run = subprocess.run(
        [str(NODE), "--test", str(client)],
        env=os.environ | {"GATEWAY": gateway.url},
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "# fail 0" in run.stdout
    assert "# skipped 0" in run.stdout
