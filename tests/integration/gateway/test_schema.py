"""Schemathesis: whatever the OpenAPI document allows, and what it does not, gets a documented reply and never a 5xx."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import NewSettings
from tests.integration.gateway.gateway_process import GatewayProcess
from tests.integration.scripted_worker import scripted_worker

SEED = "20260"
EXAMPLES = "6"
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"


@pytest.mark.parametrize("phases", ["fuzzing", pytest.param("examples,coverage", marks=pytest.mark.slow)])
async def test_every_reply_is_a_documented_one(new_settings: NewSettings, tmp_path: Path, phases: str) -> None:
    settings = await new_settings(gateway_wait_s=0.1, gateway_requests_per_min=0, embedder="none")
    with GatewayProcess(settings, tmp_path / "gateway.log") as gateway:
        async with scripted_worker(settings):
            run = await asyncio.to_thread(schemathesis, gateway, phases, tmp_path)
        assert run.returncode == 0, run.stdout[-8000:] + run.stderr[-2000:]
        assert "Traceback" not in gateway.log.read_text()


def schemathesis(gateway: GatewayProcess, phases: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("schemathesis")), "run", f"{gateway.url}/openapi.json"]
    options = ["--checks", CHECKS, "--max-examples", EXAMPLES, "--seed", SEED, "--request-timeout", "120", "--no-color"]
    # A search without a history is 503, which is what it says.
    chosen = ["--phases", phases, "--exclude-path", "/v1/search", "--generation-database", "none"]
    whole = [*command, *options, *chosen]
    return subprocess.run(whole, check=False, cwd=folder, capture_output=True, text=True, timeout=240)
