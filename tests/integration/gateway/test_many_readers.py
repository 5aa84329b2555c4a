"""A short run of tests/benchmarks/readers.py."""

from __future__ import annotations

from pathlib import Path

from tests.benchmarks.readers import measure
from tests.conftest import NewSettings
from tests.integration.gateway.gateway_process import GatewayProcess


async def test_a_hundred_readers_get_every_token_once_and_cost_little(
    new_settings: NewSettings, tmp_path: Path
) -> None:
    settings = await new_settings()
    with GatewayProcess(settings, tmp_path / "gateway.log") as gateway:
        found = await measure(settings, gateway, readers=100, answers=10, tokens=12, rate=6.0)
    assert len(found.raw) == 120
    assert (found.broken, len(found.streamed)) == (0, 1200)
    assert found.memory < 512 * 1024
